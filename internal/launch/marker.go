package launch

import (
	"strings"

	"nearmetal/internal/pattern"
)

var ourVariable = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Ours gives the names of the variables in environ (NAME=value) that Env's have been put
// there as, the marker among them; none where there are none. It asks no cluster: the one
// that they lead to may have ended.
func Ours(environ []string) []string {
	for _, v := range environ {
		list, ok := strings.CutPrefix(v, marker+"=")
		if !ok {
			continue
		}
		names := []string{marker}
		for _, name := range strings.Split(list, ":") {
			if ourVariable().MatchString(name) {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}
