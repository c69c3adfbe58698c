package terminal

import (
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
)

// ErrorLines returns the lines in which an error is shown. Most errors have one line. Those of cluster files, those
// with the end of a VM's console (a method Lines) and joined ones (errors.Join) have more, each line once.
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
		if err.Error() == strings.Join(parts, "\n") { // no text was added around them
			return lines
		}
	}
	return []string{PlainError(err)}
}

// PlainError returns the text of an error without the names of the system calls that failed: "nope: no such file or
// directory" for "lstat nope: no such file or directory".
func PlainError(err error) string { return withoutCalls(err.Error(), err) }

// withoutCalls is PlainError for a text that contains err's text.
func withoutCalls(text string, err error) string {
	switch e := err.(type) {
	case *fs.PathError:
		if e.Path != "" && e.Op != "write" && e.Op != "read" {
			text = strings.ReplaceAll(text, e.Error(), e.Path+": "+e.Err.Error())
		}
	case *exec.Error:
		if e.Err == exec.ErrNotFound {
			text = strings.ReplaceAll(text, e.Error(), e.Name+": no such program in PATH")
		}
	case interface{ Unwrap() error }:
		text = withoutCalls(text, e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			text = withoutCalls(text, one)
		}
	}
	return text
}

// longestWord bounds, in bytes, how much of a word, such as a file's name, a message shows.
const longestWord = 255

// Bounded shortens each word of a line that is longer than a file's name may be, by leaving out its middle.
func Bounded(line string) string {
	if len(line) <= longestWord {
		return line
	}
	words := strings.Split(line, " ")
	for i, w := range words {
		if len(w) > longestWord {
			const end = 20
			words[i] = strings.ToValidUTF8(w[:longestWord-end-3]+"..."+w[len(w)-end:], "")
		}
	}
	return strings.Join(words, " ")
}
