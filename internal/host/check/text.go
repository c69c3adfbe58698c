package check

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Text defines the layout of a report for people.
type Text struct {
	Columns int // of the terminal; less than 40 counts as 40
	All     bool
	// Problems omits the rows that need no action.
	Problems bool
	// Paint colours the word of a status; nil: no colours.
	Paint func(s Status, word string) string
}

// statusWidth is the width of the longest status in the column.
const statusWidth = len("unknown")

// firstShown is how many rows to fix first are listed at the top of a report.
const firstShown = 3

// Report formats a report: first the summary and the rows to fix first; then the rows that need action with their
// costs and fixes, the others in one line each; those that do not apply only with All.
func (t Text) Report(r *Report) string {
	var b strings.Builder
	b.WriteString(t.wrap(heading(r), "", "  "))
	b.WriteString(t.wrap(summary(r), "", "  "))
	if first := r.First(firstShown); len(first) > 0 {
		b.WriteString("\nfix first\n")
		for i, row := range first {
			b.WriteString(t.wrap(fmt.Sprintf("%d. %s: %s", i+1, row.ID, row.Found), "  ", "     "))
			b.WriteString(t.wrap(fix(row), "     ", "     "))
		}
	}
	group := Group("")
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Status == NotApplicable && !t.All || t.Problems && row.Status != Warn && row.Status != Fail {
			continue
		}
		if row.Group != group {
			group = row.Group
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		b.WriteString(t.row(row, r.CauseOf(row)))
	}
	return b.String()
}

func heading(r *Report) string {
	words := []string{}
	for _, w := range []string{r.Host, r.CPU} {
		if w != "" {
			words = append(words, w)
		}
	}
	if r.Kernel != "" {
		words = append(words, "kernel "+r.Kernel)
	}
	if r.Root != "" {
		words = append(words, "read from "+printable(r.Root))
	}
	s := strings.Join(words, ", ")
	if r.Profile != "" {
		s += ", as " + string(r.Profile)
	}
	return s
}

// row formats one row. cause is the row that it follows from, "" for none.
func (t Text) row(r *Result, cause string) string {
	status := string(r.Status)
	if r.Status == NotApplicable {
		status = "-"
	}
	word := fmt.Sprintf("%-*s", statusWidth, status)
	if t.Paint != nil {
		word = t.Paint(r.Status, word)
	}
	indent := strings.Repeat(" ", 2+statusWidth+1)
	var b strings.Builder
	line := t.wrap(r.ID+": "+r.Found, indent, indent+"  ")
	b.WriteString("  " + word + " " + strings.TrimPrefix(line, indent))
	if r.Status != Warn && r.Status != Fail {
		return b.String()
	}
	if cause != "" {
		b.WriteString(t.wrap("follows from "+cause, indent, indent+"  "))
		return b.String()
	}
	b.WriteString(t.wrap("wanted: "+r.Wanted, indent, indent+"        "))
	b.WriteString(t.wrap("cost: "+r.Cost, indent, indent+"      "))
	b.WriteString(t.wrap(fix(r), indent, indent+"     "))
	return b.String()
}

// fix returns the line with a row's fix.
func fix(r *Result) string {
	switch {
	case r.Fixable:
		return "fix: nearmetal check --fix " + r.ID + " (" + r.Fix + ")"
	case r.Needs != Nothing && r.Needs != Other:
		return "fix: " + r.Fix + " [needs: " + string(r.Needs) + "]"
	}
	return "fix: " + r.Fix
}

// summary returns the line with the counts of rows.
func summary(r *Report) string {
	var parts []string
	for _, s := range []Status{Fail, Warn, Unknown, OK, NotApplicable} {
		if n := r.Count(s); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	s := strings.Join(parts, ", ")
	fixable := 0
	for i := range r.Rows {
		if r.Rows[i].Fixable {
			fixable++
		}
	}
	if fixable > 0 {
		s += fmt.Sprintf("; %d can be fixed now: nearmetal check --fix", fixable)
	}
	return s
}

// Explain formats all information on a row, and its result if r is given.
func (t Text) Explain(row *Row, r *Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", row.ID, row.Title)
	field := func(name, text string) {
		if text != "" {
			b.WriteString(t.wrap(text, fmt.Sprintf("  %-10s ", name), "             "))
		}
	}
	if r != nil {
		field("here", string(r.Status)+": "+r.Found)
		for n, i := range r.Items {
			if len(r.Items) == 1 {
				break // the line above already has it
			}
			const most = 32
			if n == most {
				fmt.Fprintf(&b, "             and %d more\n", len(r.Items)-most)
				break
			}
			b.WriteString(t.wrap(fmt.Sprintf("%s: %s, %s", i.Name, i.Found, i.Status), "             ", "               "))
		}
	}
	field("group", string(row.Group))
	field("reads", row.Reads)
	field("wants", row.Wants)
	field("why", row.Why)
	field("cost", row.Costs)
	fix := row.Fix
	if r != nil && r.Fix != "" {
		fix = r.Fix
	}
	field("fix", fix)
	needs := string(row.Needs)
	if row.Fixable() {
		needs = "nothing: nearmetal check --fix " + row.ID
	}
	field("needs", needs)
	field("conflict", row.Conflict)
	field("source", row.Source)
	var profiles []string
	for _, p := range row.Profiles {
		profiles = append(profiles, string(p))
	}
	field("profiles", strings.Join(profiles, ", "))
	return b.String()
}

// Wrap breaks text at blanks; the prefix of the first line is first, that of the others rest.
func (t Text) Wrap(text, first, rest string) string { return t.wrap(text, first, rest) }

// wrap breaks text at blanks; the prefix of the first line is first, that of the others rest.
func (t Text) wrap(text, first, rest string) string {
	columns := max(t.Columns, 40)
	text = printable(text)
	var b strings.Builder
	line, length := first, utf8.RuneCountInString(first)
	empty := true
	for _, w := range strings.Fields(text) {
		n := utf8.RuneCountInString(w)
		switch {
		case empty:
			line, length, empty = line+w, length+n, false
		case length+1+n <= columns:
			line, length = line+" "+w, length+1+n
		default:
			b.WriteString(line + "\n")
			line, length = rest+w, utf8.RuneCountInString(rest)+n
		}
	}
	b.WriteString(line + "\n")
	return b.String()
}

// Indented returns text below a heading, with line breaks.
func (t Text) Indented(text string) string { return t.wrap(text, "    ", "      ") }

// Hanging returns text with line breaks, all lines but the first indented.
func (t Text) Hanging(text string) string { return t.wrap(text, "", "  ") }
