package launch

import (
	"fmt"
	"hash/crc32"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// The marker holds NAME@SUM of each variable that Env has put into an environment, with a colon between. The sum, of
// its value, shows whether somebody has set another since: that is the user's own.

var ourVariable = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]{0,63})(?:@([0-9a-f]{8}))?$`)

// mark is the marker's word for a variable.
func mark(name, value string) string { return name + "@" + sum(value) }

func sum(value string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(value))) }

// marked are the names in the value of a marker with the sums of their values, "" where there is none.
func marked(list string) (names []string, sums map[string]string) {
	sums = map[string]string{}
	for _, word := range strings.Split(list, ":") {
		if m := ourVariable().FindStringSubmatch(word); m != nil {
			names = append(names, m[1])
			sums[m[1]] = m[2]
		}
	}
	return names, sums
}

// Ours returns the names of the variables in environ (NAME=value) that Env's have been put
// there as, the marker among them; none where there are none. It asks no cluster: the one
// that they lead to may have ended.
func Ours(environ []string) []string {
	for _, v := range environ {
		if list, ok := strings.CutPrefix(v, marker+"="); ok {
			names, _ := marked(list)
			return append([]string{marker}, names...)
		}
	}
	return nil
}
