package stats

import (
	"math"
	"reflect"
	"testing"
)

func TestDescribe(t *testing.T) {
	s := Describe([]float64{10, 11, 9, 10.5, 30, 9.5})
	if !reflect.DeepEqual(s.Outliers, []int{4}) {
		t.Errorf("outliers %v, not the value 30 alone", s.Outliers)
	}
	// The median is 10.25, and 0.75 the median distance from it.
	if want := 1.4826 * 0.75 / 10.25; math.Abs(s.Noise-want) > 1e-12 {
		t.Errorf("noise %g, want %g", s.Noise, want)
	}
	if !reflect.DeepEqual(Describe(nil), Series{}) || !reflect.DeepEqual(Describe([]float64{3}), Series{}) {
		t.Error("one value or none have noise")
	}
}

// TestDrift: a steady rise of 1 per repetition from 100 is a drift of 9/104.5 over ten.
func TestDrift(t *testing.T) {
	var v []float64
	for i := 0; i < 10; i++ {
		v = append(v, 100+float64(i))
	}
	if got, want := Describe(v).Drift, 9/104.5; math.Abs(got-want) > 1e-12 {
		t.Errorf("drift %g, want %g", got, want)
	}
	for len(v) < 400 {
		v = append(v, 100+float64(len(v)))
	}
	if got, want := Describe(v).Drift, 399/299.5; math.Abs(got-want) > 1e-9 {
		t.Errorf("drift of many %g, want %g", got, want)
	}
}
