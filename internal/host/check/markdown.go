package check

import (
	"fmt"
	"strings"
)

//go:generate go run ./gen ../../../docs/reference/checks.md

// Markdown returns all rows as a page: a heading per group, a section per row.
func Markdown() string {
	var b strings.Builder
	b.WriteString("# Checks\n\nEvery row of `nearmetal check`, generated from internal/host/check. See docs/check.md.\n")
	group := Group("")
	for _, r := range rows {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n## %s\n", group)
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n", r.ID, r.Title)
		var profiles []string
		for _, p := range r.Profiles {
			profiles = append(profiles, string(p))
		}
		needs := string(r.Needs)
		if r.Fixable() {
			needs = "nothing: `nearmetal check --fix " + r.ID + "`"
		}
		for _, f := range []struct{ name, text string }{
			{"reads", r.Reads}, {"wants", r.Wants}, {"why", r.Why}, {"cost", r.Costs}, {"fix", r.Fix}, {"needs", needs},
			{"conflict", r.Conflict}, {"source", r.Source}, {"profiles", strings.Join(profiles, ", ")},
		} {
			if f.text != "" {
				fmt.Fprintf(&b, "- %s: %s\n", f.name, escapeUnless(f.name, f.text))
			}
		}
	}
	return b.String()
}

func escapeUnless(name, text string) string {
	if name == "needs" {
		return text // a text of this package, with its code spans
	}
	return escapeMarkdown(text)
}

// escapeMarkdown preserves asterisks, underscores and angle brackets of paths.
func escapeMarkdown(s string) string {
	return strings.NewReplacer("*", `\*`, "_", `\_`, "<", `\<`, "~", `\~`).Replace(s)
}
