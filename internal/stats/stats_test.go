package stats

import (
	"math"
	"math/rand"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{3}, 3},
		{[]float64{5, 1, 3}, 3},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
	} {
		if got := Median(c.in); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("the median of nothing is a number")
	}
	in := []float64{2, 1}
	Median(in)
	if in[0] != 2 {
		t.Error("Median sorted what it was given")
	}
}

// TestExactBootstrap: the exact bootstrap and one drawn by hand agree.
func TestExactBootstrap(t *testing.T) {
	for _, values := range [][]float64{{10, 12, 11, 15, 9, 13, 10.5}, {10, 12, 11, 15, 9, 13.3}, {3, 4}, {5}} {
		weights := map[float64]float64{}
		sum := 0.0
		for _, w := range medians(sorted(values), 0) {
			weights[w.value] += w.weight
			sum += w.weight
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Errorf("%v: the weights' sum is %v", values, sum)
		}
		draw := rand.New(rand.NewSource(1))
		const n = 200000
		for range n {
			again := make([]float64, len(values))
			for j := range again {
				again[j] = values[draw.Intn(len(values))]
			}
			weights[Median(again)] -= 1.0 / n
		}
		for v, w := range weights {
			if math.Abs(w) > 0.005 {
				t.Errorf("%v: median %v: the weight differs from the drawn one by %v", values, v, w)
			}
		}
	}
}

// TestCoverage: a 95 % interval contains the true median of a known distribution about that often.
func TestCoverage(t *testing.T) {
	draw := rand.New(rand.NewSource(7))
	for _, n := range []int{9, 20, 51} {
		in := 0
		const runs = 400
		for i := range runs {
			v := make([]float64, n)
			for j := range v {
				v[j] = draw.ExpFloat64()
			}
			ci := BootstrapCI(v, 0.95, int64(i))
			if ci.Low <= math.Ln2 && math.Ln2 <= ci.High {
				in++
			}
			if ci.Low > ci.Median || ci.Median > ci.High {
				t.Fatalf("n=%d: %+v is not in order", n, ci)
			}
		}
		if share := float64(in) / runs; share < 0.88 || share > 0.995 {
			t.Errorf("n=%d: the interval held the median in %.1f %% of runs", n, 100*share)
		}
	}
}

func TestSeeded(t *testing.T) {
	v := []float64{1, 5, 2, 8, 3, 9, 4, 7}
	if a, b := BootstrapCI(v, 0.95, 3), BootstrapCI(v, 0.95, 3); a != b {
		t.Errorf("the same seed: %+v and %+v", a, b)
	}
}

func TestRatio(t *testing.T) {
	r := RatioCI([]float64{10, 11, 12}, []float64{5, 5, 5}, 0.95, 1)
	if r.Median != 2.2 || r.Low != 2 || r.High != 2.4 {
		t.Errorf("ratio is %+v", r)
	}
	if r := RatioCI(nil, []float64{1}, 0.95, 1); !math.IsNaN(r.Median) {
		t.Errorf("a ratio of nothing is %+v", r)
	}
	if r := RatioCI([]float64{1}, []float64{0}, 0.95, 1); !math.IsNaN(r.Median) {
		t.Errorf("a ratio to 0 is %+v", r)
	}
	even := RatioCI([]float64{10, 11, 12, 13}, []float64{5, 6, 5, 6, 5, 6}, 0.95, 1)
	if !(even.Low <= even.Median && even.Median <= even.High) {
		t.Errorf("ratio of even numbers is %+v", even)
	}
}

func TestGeoMean(t *testing.T) {
	if got := GeoMean([]float64{1, 4}); got != 2 {
		t.Errorf("GeoMean(1, 4) = %v", got)
	}
}

func FuzzRatioCI(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, 4.0, int64(1))
	f.Add(0.0, math.Inf(1), math.NaN(), -1.0, int64(0))
	f.Fuzz(func(t *testing.T, a, b, c, d float64, seed int64) {
		RatioCI([]float64{a, b}, []float64{c, d}, 0.95, seed)
		RatioCI([]float64{a, b, c}, []float64{c, d, a}, 0.95, seed)
		BootstrapCI([]float64{a, b, c, d}, 0.95, seed)
	})
}

func BenchmarkRatioCI(b *testing.B) {
	x, y := []float64{10, 11, 12, 10.5, 11.5}, []float64{5, 6, 5.5, 5.2, 5.9}
	for i := range b.N {
		RatioCI(x, y, 0.95, int64(i))
	}
}

func TestMedianDuration(t *testing.T) {
	for _, tt := range []struct {
		d    []time.Duration
		want time.Duration
	}{{nil, 0}, {[]time.Duration{3}, 3}, {[]time.Duration{9, 1, 2}, 2}, {[]time.Duration{4, 8}, 6}} {
		if got := MedianDuration(tt.d); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.d, got, tt.want)
		}
	}
}
