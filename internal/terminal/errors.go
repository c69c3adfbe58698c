package terminal

import (
	"errors"
	"slices"
	"strings"
)

// ErrorLines returns the lines in which an error is shown. Most have one; those of cluster files,
// those with the end of a VM's console (a method Lines) and those that are several (errors.Join)
// have more, each once.
func ErrorLines(err error) []string {
	var several interface{ Lines() []string }
	if errors.As(err, &several) {
		if lines := several.Lines(); len(lines) > 0 {
			return lines
		}
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var parts, lines []string
		for _, e := range joined.Unwrap() {
			parts = append(parts, e.Error())
			for _, l := range ErrorLines(e) {
				if !slices.Contains(lines, l) {
					lines = append(lines, l)
				}
			}
		}
		if err.Error() == strings.Join(parts, "\n") { // nothing was said around them
			return lines
		}
	}
	return []string{err.Error()}
}
