package chart

import "math"

func (f *Figure) lines(s *Scene, x, y *span) {
	for _, r := range f.Series {
		points := make([]Point, 0, len(r.Points))
		for _, p := range r.Points {
			if f.X.known(p.X) && f.Y.known(p.Y) {
				points = append(points, p)
			}
		}
		marked := len(points) <= mostMarked
		if !marked {
			points = thin(points, mostDrawn)
			f.tube(s, r, points, x, y)
		}
		line := make([]point, 0, len(points))
		for _, p := range points {
			if p.X != 0 || !f.X.broken() { // no line over the break
				line = append(line, point{x.at(p.X), y.at(p.Y)})
			}
		}
		if !r.Faint && len(line) > 1 {
			w := 2.0
			if !marked {
				w = 1.2
			}
			s.line(seriesPaint(r.Style), w, dashes[r.Style%styles], line...)
		}
		if !marked {
			continue
		}
		for _, p := range points {
			at := point{x.at(p.X), y.at(p.Y)}
			s.open(p.Tip)
			f.whisker(s, r, p, at.x, y, 3)
			size := 4.2
			if len(points) > 24 {
				size = 3.2
			}
			s.marker(r.Style, r.Faint, at, size)
			s.close()
		}
	}
}

// whisker draws the confidence interval of p at px; w is half the width of its ends.
func (f *Figure) whisker(s *Scene, r Series, p Point, px float64, y *span, w float64) {
	if p.Low == p.High || !f.Y.known(p.Low) || !f.Y.known(p.High) {
		return
	}
	a, b := y.at(p.Low), y.at(p.High)
	if math.Abs(a-b) < 1 {
		return // too small to be visible
	}
	c := seriesPaint(r.Style)
	if f.Bars {
		c = ink
	}
	if r.Faint {
		c = muted
	}
	s.line(c, 1.2, nil, point{px, a}, point{px, b})
	s.line(c, 1.2, nil, point{px - w, a}, point{px + w, a})
	s.line(c, 1.2, nil, point{px - w, b}, point{px + w, b})
}

// tube draws the intervals of many points as one area.
func (f *Figure) tube(s *Scene, r Series, points []Point, x, y *span) {
	var upper, lower []point
	for _, p := range points {
		if p.Low == p.High || !f.Y.known(p.Low) || !f.Y.known(p.High) {
			continue
		}
		upper = append(upper, point{x.at(p.X), y.at(p.High)})
		lower = append(lower, point{x.at(p.X), y.at(p.Low)})
	}
	if len(upper) < 2 || r.Faint {
		return
	}
	for i := len(lower) - 1; i >= 0; i-- {
		upper = append(upper, lower[i])
	}
	s.shapes = append(s.shapes, shape{kind: polygon, points: upper, fill: seriesPaint(r.Style), opacity: 0.2})
}

// thin keeps at most n of points: the lowest and the highest of each section, so that outliers remain visible.
func thin(points []Point, n int) []Point {
	if len(points) <= n {
		return points
	}
	buckets := n / 2
	out := make([]Point, 0, n)
	for b := range buckets {
		from, to := b*len(points)/buckets, (b+1)*len(points)/buckets
		low, high := from, from
		for i := from; i < to; i++ {
			if points[i].Y < points[low].Y {
				low = i
			}
			if points[i].Y > points[high].Y {
				high = i
			}
		}
		if low == high {
			out = append(out, points[low])
			continue
		}
		out = append(out, points[min(low, high)], points[max(low, high)])
	}
	return out
}

func (f *Figure) bars(s *Scene, x, y *span) {
	n := len(f.Series)
	if n == 0 || len(f.X.Names) == 0 {
		return
	}
	w := f.barWidth(x.to - x.from)
	zero := y.from
	if y.axis.Scale == Linear {
		zero = y.at(math.Max(0, y.low))
	}
	for i, r := range f.Series {
		for _, p := range r.Points {
			if !f.Y.known(p.Y) {
				continue
			}
			left := x.at(p.X) + (float64(i)-float64(n)/2)*w
			at := y.at(p.Y)
			s.open(p.Tip)
			gap := math.Min(1.5, w*0.1)
			s.rect(barPaint(r), 0, left+gap, math.Min(at, zero), w-2*gap, math.Abs(zero-at))
			s.hatch(r.Style, left+gap, math.Min(at, zero), w-2*gap, math.Abs(zero-at))
			f.whisker(s, r, p, left+w/2, y, math.Min(4, w/3))
			s.close()
			if p.Top != "" {
				top := at
				if f.Y.known(p.High) {
					top = math.Min(top, y.at(p.High))
				}
				f.over(s, p.Top, left+w/2, top-4, w)
			}
		}
	}
}

// over writes the label of a bar of width w, vertically if it does not fit horizontally.
func (f *Figure) over(s *Scene, label string, x, y, w float64) {
	const size = fontSize - 1
	if textWidth(label, size) <= w+8 {
		s.label(ink, size, x, y, "middle", label)
		return
	}
	if w >= 10 {
		// Keeps the label's minus sign from looking like a continuation of the whisker.
		s.label(ink, size, x+4, y-4, "start", label).rotate = true
	}
}
