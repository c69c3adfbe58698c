package conf

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/text"
)

// maxHosts bounds the number of names in one expression.
const maxHosts = 1 << 16

// Expand returns the names in a Slurm host list: "n[1-3,07],login" is n1 n2 n3 n07 login (slurm.conf(5), NodeName).
// Several brackets in a name multiply.
func Expand(list string) ([]string, error) {
	var out []string
	for _, part := range SplitOutside(list, '[', ']') {
		names, err := expandOne(part)
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > maxHosts {
			return nil, fmt.Errorf("%q expands to more than %d names", text.Clip(list, 60), maxHosts)
		}
	}
	return out, nil
}

// SplitOutside splits a list at the commas that are not within open and shut, such as brackets.
func SplitOutside(list string, open, shut byte) []string {
	var parts []string
	depth, start := 0, 0
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case open:
			depth++
		case shut:
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, list[start:])
}

func expandOne(name string) ([]string, error) {
	open := strings.IndexByte(name, '[')
	if open < 0 {
		if name == "" || strings.ContainsRune(name, ']') {
			return nil, fmt.Errorf("%q is not a list of hosts", text.Clip(name, 60))
		}
		return []string{name}, nil
	}
	length := strings.IndexByte(name[open:], ']')
	if length < 0 {
		return nil, fmt.Errorf("the bracket of %q is not closed", text.Clip(name, 60))
	}
	tails := []string{""}
	if rest := name[open+length+1:]; rest != "" {
		var err error
		if tails, err = expandOne(rest); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, r := range strings.Split(name[open+1:open+length], ",") {
		low, high, isRange := strings.Cut(r, "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.ParseUint(low, 10, 31)
		b, err2 := strconv.ParseUint(high, 10, 31)
		if err1 != nil || err2 != nil || a > b || len(low) > 10 {
			return nil, fmt.Errorf("%q of %q is not a range of numbers", text.Clip(r, 60), text.Clip(name, 60))
		}
		if (b-a+1)*uint64(len(tails)) > maxHosts {
			return nil, fmt.Errorf("%q expands to more than %d names", text.Clip(name, 60), maxHosts)
		}
		for n := a; n <= b; n++ {
			for _, tail := range tails {
				// All numbers have the width of the first: n[001-100].
				out = append(out, fmt.Sprintf("%s%0*d%s", name[:open], len(low), n, tail))
			}
		}
		if len(out) > maxHosts {
			return nil, fmt.Errorf("%q expands to more than %d names", text.Clip(name, 60), maxHosts)
		}
	}
	return out, nil
}
