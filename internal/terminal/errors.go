package terminal

import "errors"

// ErrorLines gives the lines in which an error is shown. Most have one; those of cluster files and
// those with the end of a VM's console (a method Lines) have more.
func ErrorLines(err error) []string {
	var several interface{ Lines() []string }
	if errors.As(err, &several) {
		if lines := several.Lines(); len(lines) > 0 {
			return lines
		}
	}
	return []string{err.Error()}
}
