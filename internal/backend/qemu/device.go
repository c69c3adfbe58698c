package qemu

import (
	"errors"
	"fmt"
	"strings"
)

// part is one part of a machine: a device, its backend, or a global setting.
type part interface {
	// Valid returns an error for values that QEMU would reject or misread.
	Valid() error
	// Args returns the part's arguments on QEMU's command line. They are defined only for a valid part.
	Args() []string
}

// option joins a QEMU option of the form "type,key=value,…". Commas in values are doubled, which is QEMU's quoting.
func option(first string, rest ...string) string {
	out := []string{comma(first)}
	for _, r := range rest {
		if r != "" {
			out = append(out, comma(r))
		}
	}
	return strings.Join(out, ",")
}

func comma(s string) string { return strings.ReplaceAll(s, ",", ",,") }

// validID checks a name that becomes part of an option against QEMU's rules for IDs.
func validID(what, s string, limit int) error {
	if s == "" || len(s) > limit {
		return fmt.Errorf("%s %.60q: 1 to %d characters", what, s, limit)
	}
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || !(c >= '0' && c <= '9') && c != '-' && c != '.' && c != '_') {
			return fmt.Errorf("%s %.60q: letters, digits, - . _, a letter first", what, s)
		}
	}
	return nil
}

// fdPath returns the path by which QEMU reopens an inherited file.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

const mib = 1 << 20

// size formats bytes exactly, as QEMU parses them.
func size(bytes uint64) string {
	if bytes%mib == 0 {
		return fmt.Sprintf("%dM", bytes/mib)
	}
	return fmt.Sprintf("%dB", bytes)
}

var errNoFD = errors.New("no file descriptor")
