package stats

import "slices"

// SameState is the factor within which two ping-pongs of a cache line belong to one state of the cores. At one time a
// virtual machine's two cores are two hyperthreads of one core, and at another two cores without a common cache,
// because its host moves them. A state lasts seconds or minutes, and figures differ by up to 4 times.
const SameState = 1.5

// State is a range of ping-pongs, in their unit, in which no two differ by more than SameState.
type State struct {
	From, To, Middle float64 // Middle is the median
	N                int     // number of ping-pongs
}

// States groups ping-pongs, of any unit: first the range with the most of them, then the one with the most of the
// rest, and so on. Cutting at gaps would fail: two or three ping-pongs measured while the cores moved would join two
// states. pingpongs is not changed.
func States(pingpongs []float64) []State {
	rest := sorted(pingpongs)
	var all []State
	for len(rest) > 0 {
		at, n := 0, 0
		for from, to := 0, 0; from < len(rest); from++ {
			for to < len(rest) && rest[to] <= SameState*rest[from] {
				to++
			}
			if to-from > n {
				at, n = from, to-from
			}
		}
		if n == 0 { // NaN is in no state
			return all
		}
		all = append(all, State{rest[at], rest[at+n-1], median(rest[at : at+n]), n})
		rest = slices.Delete(rest, at, at+n)
	}
	return all
}
