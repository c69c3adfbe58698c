package stats

import "math"

// MedianCI returns the median of values with the interval between two of the values that holds the median of what they are
// drawn from with at least the given level (like 0.95), whatever that distribution is. The values are drawn independently. Where
// they are too few for the level the bounds are infinite (it takes 6 for 0.95); without values all are NaN.
//
// Of n values the k-th smallest and the k-th largest hold the median unless fewer than k values are on one side of it, of
// which the probability is twice that of a binomial of n and 1/2 below k (W. R. Thompson, "On confidence ranges for the
// median and other expectation distributions for populations of unknown distribution form", Annals of Mathematical
// Statistics 7, 1936, p. 122). k is the largest that keeps the level.
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

// lnChoose is the logarithm of the number of ways to choose k of n.
func lnChoose(n, k int) float64 {
	ln := func(n int) float64 { v, _ := math.Lgamma(float64(n + 1)); return v }
	return ln(n) - ln(k) - ln(n-k)
}
