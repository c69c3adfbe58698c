// Package stats implements the few statistics by which benchmarks are judged: the median, its bootstrap confidence
// interval, and that of a ratio of two medians.
package stats

import (
	"math"
	"math/rand"
	"slices"
	"sort"
	"time"
)

// Interval is a median with the bounds of its confidence interval, in the values' unit.
type Interval struct {
	Median, Low, High float64
}

// resamples is the number of draws of a bootstrap that is not computed exactly.
const resamples = 2000

// mostPairs is the number of pairs of medians up to which all ratios are computed.
const mostPairs = 4096

// mostExact is the number of values up to which the bootstrap of a median is computed exactly: the sum over all
// resamples instead of a random sample.
const mostExact = 25

// Median returns the median of values, NaN if there are none. values is not changed.
func Median(values []float64) float64 {
	return median(sorted(values))
}

// MedianDuration returns the median of d, 0 if it is empty. d is not changed.
func MedianDuration(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	values := make([]float64, len(d))
	for i := range d {
		values[i] = float64(d[i])
	}
	return time.Duration(Median(values))
}

// BootstrapCI returns the median of values and its percentile bootstrap interval at the given level (like 0.95). Few
// values are resampled exactly: the resample's k-th smallest is at most the i-th smallest of n values with the
// probability that a binomial of n and i/n is k or more (Efron, "Bootstrap Methods", Annals of Statistics 7, 1979,
// section 3). Otherwise seed makes the draw repeatable. One value is its own interval; none yield NaN.
func BootstrapCI(values []float64, level float64, seed int64) Interval {
	s := sorted(values)
	m := median(s)
	if len(s) == 0 {
		return Interval{m, m, m}
	}
	dist := medians(s, seed)
	return Interval{m, quantile(dist, (1-level)/2), quantile(dist, (1+level)/2)}
}

// RatioCI returns the median of a over the median of b with the percentile bootstrap interval of that ratio, a and b
// resampled independently. It is NaN if either is empty or b's median is 0.
func RatioCI(a, b []float64, level float64, seed int64) Interval {
	sa, sb := sorted(a), sorted(b)
	m := median(sa) / median(sb)
	if len(sa) == 0 || len(sb) == 0 || median(sb) == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	da, db := medians(sa, seed), medians(sb, seed+1)
	var ratios []weighted
	if len(da)*len(db) <= mostPairs {
		ratios = make([]weighted, 0, len(da)*len(db))
		for _, x := range da {
			for _, y := range db {
				ratios = append(ratios, weighted{x.value / y.value, x.weight * y.weight})
			}
		}
	} else {
		draw := rand.New(rand.NewSource(seed))
		ca, cb := cumulated(da), cumulated(db)
		for range resamples {
			x, y := ca.quantile(draw.Float64()), cb.quantile(draw.Float64())
			ratios = append(ratios, weighted{x / y, 1.0 / resamples})
		}
	}
	slices.SortFunc(ratios, byValue)
	return Interval{m, quantile(ratios, (1-level)/2), quantile(ratios, (1+level)/2)}
}

// GeoMean returns the geometric mean of positive values, NaN if there are none or one is not positive.
func GeoMean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(values)))
}

type weighted struct{ value, weight float64 }

func byValue(a, b weighted) int {
	switch {
	case a.value < b.value:
		return -1
	case a.value > b.value:
		return 1
	}
	return 0
}

// medians returns the bootstrap distribution of the median of sorted values, ascending.
func medians(s []float64, seed int64) []weighted {
	n := len(s)
	if n <= mostExact {
		return exact(s)
	}
	draw := rand.New(rand.NewSource(seed))
	out := make([]weighted, resamples)
	again := make([]float64, n)
	for i := range out {
		for j := range again {
			again[j] = s[draw.Intn(n)]
		}
		slices.Sort(again)
		out[i] = weighted{median(again), 1.0 / resamples}
	}
	slices.SortFunc(out, byValue)
	return out
}

// quantile returns the smallest value at or below which a share q of the weight is.
func quantile(d []weighted, q float64) float64 {
	sum := 0.0
	for _, w := range d {
		if sum += w.weight; sum >= q-1e-12 {
			return w.value
		}
	}
	return d[len(d)-1].value
}

// cumulative is a distribution whose weights are the sums up to each value.
type cumulative []weighted

func cumulated(d []weighted) cumulative {
	out := make(cumulative, len(d))
	sum := 0.0
	for i, w := range d {
		sum += w.weight
		out[i] = weighted{w.value, sum}
	}
	return out
}

func (c cumulative) quantile(q float64) float64 {
	i := sort.Search(len(c)-1, func(i int) bool { return c[i].weight >= q-1e-12 })
	return c[i].value
}

func sorted(values []float64) []float64 {
	s := slices.Clone(values)
	slices.Sort(s)
	return s
}

func median(s []float64) float64 {
	n := len(s)
	switch {
	case n == 0:
		return math.NaN()
	case n%2 == 1:
		return s[n/2]
	}
	return s[n/2-1]/2 + s[n/2]/2
}
