// Package verdict decides whether one side of a benchmark is faster than another, from alternating repetitions on a
// machine whose cores another host may move.
package verdict

import (
	"math"

	"nearmetal/internal/stats"
)

// Looks are the counts of repetitions after which a verdict is computed, each twice the previous one. The first is
// the smallest with an interval at the level of one look. A point that is undecided after the last stays so.
var Looks = [...]int{7, 14, 28}

const (
	// Margin is the relative difference up to which two sides count as equal: that of bench-fabric for an earlier
	// build.
	Margin = 0.02
	// Wrong is the maximum probability, over all looks, that a point's verdict is wrong: that it is called faster and
	// is not, slower and is not, or equal and differs by more than the margin.
	Wrong = 0.05
)

// level is the level of the interval at one look. The looks share the probability of an error: the probability that
// one of several events happens is at most the sum of theirs (Bonferroni; O. J. Dunn, "Multiple comparisons among
// means", Journal of the American Statistical Association 56, 1961, p. 52).
const level = 1 - Wrong/float64(len(Looks))

// Word is a verdict on one point.
type Word string

// The verdicts on a point.
const (
	Faster    Word = "faster"
	Equal     Word = "equal"
	Slower    Word = "slower"
	Undecided Word = "undecided"
)

// Value is a value of one repetition.
type Value struct {
	Rep      int
	Value    float64 // in the metric's unit
	PingPong float64 // of a cache line between two cores around the repetition, in us; 0: not known
	Moved    bool    // the cores were moved during the repetition
}

// Ratios returns the performance of a over that of b for each repetition that both have in one state of the cores,
// above 1 if a is better. more means that a larger value is better. Of several states it uses the one with the most
// pairs. Values that are not positive have no ratio.
func Ratios(a, b []Value, more bool) []float64 {
	other := map[int]*Value{}
	for i := range b {
		other[b[i].Rep] = &b[i]
	}
	var ratios, at []float64 // at: the ping-pong of each pair
	var pingpongs []float64
	for i := range a {
		x, y := &a[i], other[a[i].Rep]
		if y == nil || x.Moved || y.Moved || !(x.Value > 0) || !(y.Value > 0) {
			continue
		}
		r := y.Value / x.Value
		if more {
			r = x.Value / y.Value
		}
		pingpong := math.Sqrt(x.PingPong * y.PingPong)
		if pingpong > 0 && (x.PingPong > stats.SameState*y.PingPong || y.PingPong > stats.SameState*x.PingPong) {
			continue
		}
		if math.IsInf(r, 0) || !(r > 0) {
			continue
		}
		ratios, at = append(ratios, r), append(at, pingpong)
		if pingpong > 0 {
			pingpongs = append(pingpongs, pingpong)
		}
	}
	states := stats.States(pingpongs)
	if len(states) < 2 {
		return ratios
	}
	var out []float64
	for i, r := range ratios {
		if at[i] == 0 || at[i] >= states[0].From && at[i] <= states[0].To {
			out = append(out, r)
		}
	}
	return out
}

// Judge returns the median of ratios with its interval at the level of one look, and the resulting verdict: equal if
// the interval is within the margin, faster if above 1, slower if below 1.
func Judge(ratios []float64) (stats.Interval, Word) {
	ci := stats.MedianCI(ratios, level)
	switch {
	case ci.Low >= 1-Margin && ci.High <= 1/(1-Margin):
		return ci, Equal
	case ci.Low > 1:
		return ci, Faster
	case ci.High < 1:
		return ci, Slower
	}
	return ci, Undecided
}
