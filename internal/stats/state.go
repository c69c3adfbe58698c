package stats

import "slices"

// SameState is the factor within which two ping-pongs of a cache line are of one state of the cores. A virtual machine's two
// cores are two hyperthreads of one core at one time, and two cores without a common cache at another: its host moves them,
// for seconds or minutes, and figures differ by up to 4 times.
const SameState = 1.5

// State is a range of ping-pongs, in their unit, of which no two differ by more than SameState.
type State struct {
	From, To, Middle float64 // Middle is the median
	N                int     // ping-pongs in it
}

// States groups ping-pongs, of any unit: the range that holds the most of them, then the one that holds the most of the rest,
// and so on. To cut where there is a gap would not do: two or three that were taken while the cores moved would make one state
// of two. pingpongs is left as it is.
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
		if n == 0 { // no number is in one state with itself: NaN
			return all
		}
		all = append(all, State{rest[at], rest[at+n-1], median(rest[at : at+n]), n})
		rest = slices.Delete(rest, at, at+n)
	}
	return all
}
