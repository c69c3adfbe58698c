package spec

import "strings"

// Nearest returns the candidate that word was probably meant to be, or "" if none is near: at most a third of the
// letters differ (at least one), ignoring case.
func Nearest(word string, candidates []string) string {
	const longest = 64 // no key, flag or value is longer; bounds the work
	if word == "" || len(word) > longest {
		return ""
	}
	best, limit := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if c == "" || len(c) > longest {
			continue
		}
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap with their neighbour to turn a into b
// (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
