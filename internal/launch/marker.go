package launch

import (
	"fmt"
	"hash/crc32"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// The marker is a list of NAME@SUM, separated by colons, with each variable that Env has set. SUM is a checksum of
// its value: if the variable has another value now, the user has set it.

var ourVariable = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]{0,63})(?:@([0-9a-f]{8}))?$`)

// mark returns the marker's entry for a variable.
func mark(name, value string) string { return name + "@" + sum(value) }

func sum(value string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(value))) }

// marked returns the names in the value of a marker, and the sums of their values, "" if an entry has none.
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

// Ours returns the names of the variables in environ (NAME=value) that Env has set according to the marker, including
// the marker itself, or nil without a marker. It queries no cluster, because theirs may have ended.
func Ours(environ []string) []string {
	for _, v := range environ {
		if list, ok := strings.CutPrefix(v, marker+"="); ok {
			names, _ := marked(list)
			return append([]string{marker}, names...)
		}
	}
	return nil
}
