package stats

import (
	"fmt"
	"math"
	"math/rand"
	"testing"
)

// TestMedianCIRanks: the ranks of the bounds are those in the tables of the sign test.
func TestMedianCIRanks(t *testing.T) {
	for _, c := range []struct {
		n         int
		level     float64
		low, high float64 // for the values 1, 2, … n
	}{
		{5, 0.95, math.Inf(-1), math.Inf(1)}, // 1 - 2/32 is 93.75 %
		{6, 0.95, 1, 6},
		{9, 0.95, 2, 8},
		{20, 0.95, 6, 15},
		{10, 0.99, 1, 10},
		{2000, 0.95, 956, 1045},
	} {
		var values []float64
		for i := range c.n {
			values = append(values, float64(i+1))
		}
		if got := MedianCI(values, c.level); got.Low != c.low || got.High != c.high {
			t.Errorf("%d values at %v: %v to %v, want %v to %v", c.n, c.level, got.Low, got.High, c.low, c.high)
		}
	}
	if got := MedianCI(nil, 0.95); !math.IsNaN(got.Median + got.Low + got.High) {
		t.Errorf("no values: %v", got)
	}
}

// TestMedianCIHolds: for any distribution of the values, the interval misses its median at most as often as its level
// permits.
func TestMedianCIHolds(t *testing.T) {
	const series = 4000
	for name, draw := range map[string]func(*rand.Rand) float64{ // the median of each is 0
		"normal":  func(r *rand.Rand) float64 { return r.NormFloat64() },
		"skewed":  func(r *rand.Rand) float64 { return r.ExpFloat64() - math.Ln2 },
		"Cauchy":  func(r *rand.Rand) float64 { return math.Tan(math.Pi * (r.Float64() - 0.5)) },
		"two":     func(r *rand.Rand) float64 { return float64(2*r.Intn(2)-1) + 1e-3*r.NormFloat64() },
		"all one": func(*rand.Rand) float64 { return 0 },
	} {
		for _, n := range []int{7, 14, 28} {
			for _, level := range []float64{0.95, 1 - 0.05/3} {
				r, missed := rand.New(rand.NewSource(int64(n))), 0
				for range series {
					values := make([]float64, n)
					for i := range values {
						values[i] = draw(r)
					}
					if ci := MedianCI(values, level); ci.Low > 0 || ci.High < 0 {
						missed++
					}
				}
				most := series * (1 - level)
				if most += 4 * math.Sqrt(most); float64(missed) > most { // 4 standard deviations of the count
					t.Error(fmt.Sprintf("%s, %d values at %.3f:", name, n, level), missed, "of", series, "miss the median, more than", most)
				}
			}
		}
	}
}
