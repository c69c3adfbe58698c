package suite

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/text"
)

// Expand replaces the names in braces by values: {size}, or {grid.0} for the part before the first x of a value such
// as 2x4. {{ is a brace.
func Expand(text string, values map[string]string) (string, error) {
	var b strings.Builder
	rest := text
	for {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			b.WriteString(rest)
			return b.String(), nil
		}
		b.WriteString(rest[:i])
		brace := rest[i : i+1]
		if strings.HasPrefix(rest[i+1:], brace) || brace == "}" {
			b.WriteString(brace)
			rest = rest[i+1:]
			rest = strings.TrimPrefix(rest, brace)
			continue
		}
		name, after, ok := strings.Cut(rest[i+1:], "}")
		if !ok {
			return "", fmt.Errorf("a brace is not closed: write {{ for one that stands for itself")
		}
		value, err := lookup(name, values)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
		rest = after
	}
}

func lookup(name string, values map[string]string) (string, error) {
	if v, ok := values[name]; ok {
		return v, nil
	}
	base, part, ok := strings.Cut(name, ".")
	v, known := values[base]
	if !ok || !known {
		return "", fmt.Errorf("there is no parameter {%s}", text.Clip(name, 40))
	}
	parts := strings.Split(v, "x")
	i, err := strconv.Atoi(part)
	if err != nil || i < 0 || i >= len(parts) {
		return "", fmt.Errorf("{%s}: %s has no such part", text.Clip(name, 40), text.Quote(v))
	}
	return parts[i], nil
}

// eachName calls f for the names in the braces of a text.
func eachName(text string, f func(name string) error) error {
	rest := text
	for {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			return nil
		}
		if strings.HasPrefix(rest[i+1:], "{") {
			rest = rest[i+2:]
			continue
		}
		name, after, ok := strings.Cut(rest[i+1:], "}")
		if !ok {
			return fmt.Errorf("a brace is not closed: write {{ for one that stands for itself")
		}
		if err := f(name); err != nil {
			return err
		}
		rest = after
	}
}

// maxValues bounds the values of a parameter.
const maxValues = 4096

// Spread returns the values of a parameter's list: ranges such as "1..all" and "4..64" become the doublings in
// between with the last one. cores is the least number of the variants' cores, and same means that all have that
// many: only then is "all" a number, and else a word that means each variant's own.
func Spread(list []string, cores int, same bool) ([]string, error) {
	var out []string
	for _, v := range list {
		a, b, isRange := strings.Cut(v, "..")
		if !isRange {
			if n, err := Count(v, cores); err == nil && same && strings.HasPrefix(v, "all") {
				v = strconv.Itoa(n)
			}
			out = append(out, v)
			continue
		}
		low, err := Count(a, cores)
		if err == nil && low < 1 {
			err = fmt.Errorf("it begins below 1")
		}
		var high int
		if err == nil {
			high, err = Count(b, cores)
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not a range such as 1..all or 4..64: %v", text.Quote(v), err)
		}
		for n := low; n < high; n *= 2 {
			out = append(out, strconv.Itoa(n))
		}
		switch {
		case strings.HasPrefix(b, "all") && !same:
			out = append(out, b)
		case high >= low:
			out = append(out, strconv.Itoa(high))
		}
	}
	if len(out) > maxValues {
		return nil, fmt.Errorf("these are more than %d values", maxValues)
	}
	return out, nil
}

// Count returns the number that a value represents: 8, 2x4 (its product), all (the cores of a variant) or all/2, at
// least 1.
func Count(value string, cores int) (int, error) {
	if rest, ok := strings.CutPrefix(value, "all"); ok {
		if rest == "" {
			return cores, nil
		}
		d, err := strconv.Atoi(strings.TrimPrefix(rest, "/"))
		if err != nil || d < 1 || !strings.HasPrefix(rest, "/") {
			return 0, fmt.Errorf("%s is not a number, nor all or all/2", text.Quote(value))
		}
		return max(1, cores/d), nil
	}
	product := 1
	for _, part := range strings.Split(value, "x") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1 || n > 10_000_000 || product > 10_000_000 {
			return 0, fmt.Errorf("%s is not a number of at least 1", text.Quote(value))
		}
		product *= n
	}
	return product, nil
}
