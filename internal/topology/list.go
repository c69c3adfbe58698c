package topology

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/text"
	"nearmetal/internal/topology/machine"
)

// ParseList parses the kernel's list format ("0-3,8,10-11"; an empty string is the empty list) into ascending numbers
// below max. It accepts strides ("0-7:2/4") as defined in Documentation/admin-guide/kernel-parameters.rst.
func ParseList(s string, max int) ([]int, error) {
	s = strings.TrimSpace(s)
	if s == "" || s == "(null)" {
		return nil, nil
	}
	var set []bool
	count := 0
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		used, group := 1, 1
		if r, stride, ok := strings.Cut(part, ":"); ok {
			u, g, ok := strings.Cut(stride, "/")
			var err1, err2 error
			used, err1 = strconv.Atoi(u)
			group, err2 = strconv.Atoi(g)
			if !ok || err1 != nil || err2 != nil || used < 1 || group < used {
				return nil, fmt.Errorf("list %q: bad stride %q", clip(s), clip(part))
			}
			part = r
		}
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		b := a
		if err == nil && ranged {
			b, err = strconv.Atoi(hi)
		}
		if err != nil || a < 0 || b < a {
			return nil, fmt.Errorf("list %q: %q is not a number or range", clip(s), clip(part))
		}
		if b >= max {
			return nil, fmt.Errorf("list %q: %d is above this program's maximum (%d)", clip(s), b, max-1)
		}
		if b >= len(set) {
			set = append(set, make([]bool, b+1-len(set))...)
		}
		for i := a; i <= b; i++ {
			if (i-a)%group < used && !set[i] {
				set[i] = true
				count++
			}
		}
	}
	out := make([]int, 0, count)
	for i, in := range set {
		if in {
			out = append(out, i)
		}
	}
	return out, nil
}

// FormatList writes ascending numbers in the kernel's list format.
func FormatList(n []int) string { return machine.FormatList(n) }

// clip shortens text from a file to at most 60 bytes, for a message.
func clip(s string) string { return text.Clip(s, 60) }
