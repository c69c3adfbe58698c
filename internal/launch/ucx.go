package launch

import (
	"slices"
	"strings"
)

// Preload returns environ (NAME=value) of a program in a VM with the library in file preloaded: nearmetal's transport
// for UCX. What the user preloads stays, in front of it.
func Preload(environ []string, file string) []string {
	const name = "LD_PRELOAD="
	out := slices.Clone(environ)
	for i, v := range out {
		theirs, ok := strings.CutPrefix(v, name)
		if !ok {
			continue
		}
		// The dynamic linker separates them by spaces or colons.
		list := strings.FieldsFunc(theirs, func(r rune) bool { return r == ' ' || r == ':' })
		if !slices.Contains(list, file) {
			out[i] = name + strings.Join(append(list, file), ":")
		}
		return out
	}
	return append(out, name+file)
}
