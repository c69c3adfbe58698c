package stats

import "math"

// Series describes repetitions in the order of their measurement, in addition to their median. The zero value
// describes no repetitions.
type Series struct {
	// Noise is the spread relative to the median: 1.4826 MAD / |median|, which is σ / µ for normally distributed
	// values. 0 if the median is 0.
	Noise float64 `json:"noise"`
	// Drift is the change of the value from the first to the last repetition, relative to the median, by the median
	// of all slopes (Theil and Sen). Noise by itself also causes some.
	Drift float64 `json:"drift"`
	// Outliers are the indices, from 0, of values whose modified z-score is above 3.5 (Iglewicz and Hoaglin 1993).
	// They are only listed, and count like all other values.
	Outliers []int `json:"outliers,omitempty"`
}

// Describe returns the series of finite values, which it does not change.
func Describe(values []float64) Series {
	var s Series
	n := len(values)
	if n == 0 {
		return s
	}
	m := Median(values)
	away := make([]float64, n)
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	mad := Median(away)
	if m != 0 {
		s.Noise = 1.4826 * mad / math.Abs(m)
		s.Drift = slope(values) * float64(n-1) / math.Abs(m)
	}
	if n < 5 || mad == 0 {
		return s
	}
	for i := range values {
		if 0.6745*away[i]/mad > 3.5 {
			s.Outliers = append(s.Outliers, i)
		}
	}
	return s
}

// slope returns the median of the slopes between all pairs, a step being one repetition. With more than 200 values
// each is paired only with the one half a series later.
func slope(values []float64) float64 {
	n := len(values)
	if n < 2 {
		return 0
	}
	var slopes []float64
	if n <= 200 {
		for i := range values {
			for j := i + 1; j < n; j++ {
				slopes = append(slopes, (values[j]-values[i])/float64(j-i))
			}
		}
	} else {
		half := n / 2
		for i := 0; i+half < n; i++ {
			slopes = append(slopes, (values[i+half]-values[i])/float64(half))
		}
	}
	return Median(slopes)
}
