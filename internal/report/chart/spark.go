package chart

import "math"

// Spark lays the first series out as a small line without axes, over the first rule's band.
func (f *Figure) Spark() *Scene {
	s := &Scene{Width: 120, Height: 28}
	if len(f.Series) == 0 {
		return s
	}
	points := thin(f.Series[0].Points, 120)
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		low, high = math.Min(low, p.Y), math.Max(high, p.Y)
	}
	for _, r := range f.Rules {
		low, high = math.Min(low, r.Low), math.Max(high, r.High)
	}
	if !(high > low) {
		low, high = low-1, high+1
	}
	y := &span{axis: &f.Y, low: low, hi: high, from: s.Height - 3, to: 3}
	for _, r := range f.Rules {
		a, b := y.at(r.High), y.at(r.Low)
		s.rect(band, 0, 0, a, s.Width, b-a)
		s.line(ruled, 1, nil, point{0, a}, point{s.Width, a})
	}
	line := make([]point, len(points))
	for i, p := range points {
		line[i] = point{2 + float64(i)/math.Max(1, float64(len(points)-1))*(s.Width-4), y.at(p.Y)}
	}
	s.line(seriesPaint(f.Series[0].Style), 1.8, nil, line...)
	return s
}
