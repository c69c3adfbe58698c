package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"

	"nearmetal/internal/spec"
)

//go:embed example.yaml
var example []byte

//go:embed rules.md
var rules []byte

// markdown returns the page: an example, the rules for all keys, and a table for each object.
func markdown(c comments) ([]byte, error) {
	if _, err := spec.Parse("example.yaml", example); err != nil {
		return nil, fmt.Errorf("the example is wrong: %w", err)
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "<!-- Generated from internal/spec by \"make docs\"; do not edit. -->\n# The cluster file\n\n")
	fmt.Fprintf(&page, "A cluster file says which VMs there are and what they see of the host. All keys are\noptional; an empty file is one VM.\n\n```yaml\n%s```\n\n%s", example, rules)
	err := object(&page, c, "The top of the file", "", spec.Schema())
	return page.Bytes(), err
}

// object writes the table of an object and those of the objects in it; at is its path.
func object(page *bytes.Buffer, c comments, title, at string, t *spec.Type) error {
	fmt.Fprintf(page, "\n## %s\n\n", title)
	if at != "" {
		fmt.Fprintf(page, "%s\n\n", c[t.Name])
	}
	page.WriteString("| Key | Value | Default | Meaning |\n|---|---|---|---|\n")
	for i := range t.Fields {
		f := &t.Fields[i]
		meaning, err := c.of(t, f)
		if err != nil {
			return err
		}
		fmt.Fprintf(page, "| `%s` | %s | %s | %s |\n", f.Key, value(at, f), byDefault(f), strings.ReplaceAll(meaning, "|", `\|`))
	}
	for i := range t.Fields {
		f := &t.Fields[i]
		inner, path := f.Type, below(at, f.Key)
		for inner.Kind == spec.List || inner.Kind == spec.Map {
			inner, path = inner.Elem, path+"[]"
		}
		if inner.Kind == spec.Object {
			if err := object(page, c, path, path, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func below(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}

// value describes the possible values of a key.
func value(at string, f *spec.Field) string {
	var words []string
	for _, w := range f.Enum {
		if w != "" {
			words = append(words, "`"+w+"`")
		}
	}
	if len(words) > 0 {
		return strings.Join(words, ", ")
	}
	t, prefix, path := f.Type, "", below(at, f.Key)
	for t.Kind == spec.List || t.Kind == spec.Map {
		if t.Kind == spec.List {
			prefix += "list of "
		} else {
			prefix += "names with "
		}
		t, path = t.Elem, path+"[]"
	}
	text := string(t.Kind)
	switch {
	case t.Kind == spec.Object:
		text = fmt.Sprintf("[%s](#%s)", path, anchor(path))
	case f.Min != "" && f.Max != "":
		text += fmt.Sprintf(", %s to %s", f.Min, f.Max)
	case f.Min != "":
		text += ", at least " + f.Min
	case f.Max != "":
		text += ", at most " + f.Max
	}
	return prefix + text
}

// anchor returns the link that Markdown makes of a heading.
func anchor(heading string) string {
	return strings.NewReplacer(".", "", "[", "", "]", "").Replace(strings.ToLower(heading))
}

func byDefault(f *spec.Field) string {
	switch {
	case f.Required:
		return "required"
	case f.Default != "":
		return "`" + f.Default + "`"
	}
	return ""
}
