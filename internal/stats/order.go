package stats

import "math"

// MedianCI returns the median of values with an interval between two of the values. With at least the given level
// (like 0.95) the interval contains the median of the distribution from which the values are drawn independently,
// whatever that distribution is. With too few values for the level the bounds are infinite (0.95 needs 6); without
// values all results are NaN.
//
// Of n values the interval from the k-th smallest to the k-th largest contains the median unless fewer than k values
// are on one side of it, which has twice the probability of a binomial of n and 1/2 below k (W. R. Thompson, "On
// confidence ranges for the median and other expectation distributions for populations of unknown distribution form",
// Annals of Mathematical Statistics 7, 1936, p. 122). k is the largest that keeps the level.
func MedianCI(values []float64, level float64) Interval {
	s := sorted(values)
	n := len(s)
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	k, below := 0, 0.0
	for k < n/2 {
		below += 2 * math.Exp(lnChoose(n, k)-float64(n)*math.Ln2)
		if below > 1-level {
			break
		}
		k++
	}
	if k == 0 {
		return Interval{median(s), math.Inf(-1), math.Inf(1)}
	}
	return Interval{median(s), s[k-1], s[n-k]}
}

// lnChoose returns the logarithm of the number of ways to choose k of n.
func lnChoose(n, k int) float64 {
	ln := func(n int) float64 { v, _ := math.Lgamma(float64(n + 1)); return v }
	return ln(n) - ln(k) - ln(n-k)
}
