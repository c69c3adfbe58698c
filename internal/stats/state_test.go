package stats

import (
	"math"
	"reflect"
	"testing"
)

func TestStates(t *testing.T) {
	for _, c := range []struct {
		name      string
		pingpongs []float64
		want      []State
	}{
		{"none", nil, nil},
		{"no number", []float64{math.NaN()}, nil},
		{"one", []float64{0.25, 0.22, 0.23}, []State{{0.22, 0.25, 0.23, 3}}},
		{"most first", []float64{0.06, 0.23, 0.25, 0.065, 0.22}, []State{{0.22, 0.25, 0.23, 3}, {0.06, 0.065, 0.0625, 2}}},
		// Two values in between are each close to the next, and join nothing.
		{"bridged", []float64{0.08, 0.08, 0.08, 0.11, 0.16, 0.23, 0.23, 0.23, 0.23},
			[]State{{0.16, 0.23, 0.23, 5}, {0.08, 0.11, 0.08, 4}}},
	} {
		if got := States(c.pingpongs); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
