package terminal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// An error names the file and the fault, not the call.
func TestPlain(t *testing.T) {
	_, missing := os.Open("/nosuch")
	_, program := exec.LookPath("nosuch")
	list := errors.Join(missing, fmt.Errorf("b: %w", &fs.PathError{Op: "lstat", Path: "/other", Err: syscall.EACCES}))
	for want, err := range map[string]error{
		"/nosuch: no such file or directory":                                  missing,
		"cannot read x: /nosuch: no such file or directory":                   fmt.Errorf("cannot read x: %w", missing),
		"nosuch: no such program in PATH":                                     program,
		"a: /nosuch: no such file or directory\nb: /other: permission denied": fmt.Errorf("a: %w", list),
		"write /dev/full: broken pipe":                                        &fs.PathError{Op: "write", Path: "/dev/full", Err: errors.New("broken pipe")},
	} {
		if got := PlainError(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	long := "a " + strings.Repeat("é", 3000) + " z"
	got := Bounded(long)
	if len(got) > longestWord+4 || !strings.HasPrefix(got, "a é") || !strings.HasSuffix(got, "é z") || !strings.Contains(got, "...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	for _, line := range []string{"", strings.Repeat("word ", 100), strings.Repeat("x", longestWord)} {
		if got := Bounded(line); got != line {
			t.Errorf("%q became %q", line, got)
		}
	}
}
