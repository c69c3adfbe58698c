package stats

import (
	"math"
	"slices"
	"sync"
)

// orders are the weights of the medians of all resamples of n values, for each n up to mostExact.
var orders = sync.OnceValue(func() (out [mostExact + 1][]order) {
	for n := 1; n <= mostExact; n++ {
		out[n] = ordersOf(n)
	}
	return out
})

// order is the probability that a resample's median is the mean of the i-th and the j-th smallest value.
type order struct {
	i, j   int // from 0; equal for an odd number of values
	weight float64
}

func ordersOf(n int) []order {
	var out []order
	share := func(k int) float64 { return float64(k) / float64(n) }
	h := (n + 1) / 2
	// least returns the probability that at least k of n draws are among the i smallest.
	least := func(i, k int) float64 {
		sum := 0.0
		for d := k; d <= n; d++ {
			sum += choose(n, d) * math.Pow(share(i), float64(d)) * math.Pow(1-share(i), float64(n-d))
		}
		return sum
	}
	for i := 1; i <= n; i++ {
		rest := least(i, h) - least(i-1, h) // the h-th smallest of the resample is the i-th
		if n%2 == 0 {
			for j := i + 1; j <= n; j++ {
				// Half of the draws are at most the i-th value, half at least the j-th.
				p := choose(n, h) * (math.Pow(share(i), float64(h)) - math.Pow(share(i-1), float64(h))) *
					(math.Pow(share(n-j+1), float64(h)) - math.Pow(share(n-j), float64(h)))
				out = append(out, order{i - 1, j - 1, p})
				rest -= p
			}
		}
		out = append(out, order{i - 1, i - 1, math.Max(rest, 0)})
	}
	return out
}

func choose(n, k int) float64 {
	c := 1.0
	for i := 1; i <= k; i++ {
		c = c * float64(n-k+i) / float64(i)
	}
	return c
}

// exact returns the bootstrap distribution of the median of at most mostExact sorted values.
func exact(s []float64) []weighted {
	list := orders()[len(s)]
	out := make([]weighted, len(list))
	for k, o := range list {
		out[k] = weighted{s[o.i]/2 + s[o.j]/2, o.weight}
	}
	if len(s)%2 == 0 {
		slices.SortFunc(out, byValue)
	}
	return out
}
