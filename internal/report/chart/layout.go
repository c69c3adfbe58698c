package chart

import (
	"math"
	"slices"
)

// Sizes of a picture, in CSS pixels. It is laid out for the width of a phone and scaled up elsewhere.
const (
	width      = 440
	height     = 290
	smallWidth = 330
	fontSize   = 13
	right      = 14
	zeroPlace  = 14  // of the value 0 on a broken axis, from the start of the axis
	zeroRoom   = 46  // from the start of the axis to its smallest value after the break
	mostMarked = 60  // maximum number of points of a series with a marker and a whisker each
	mostDrawn  = 400 // maximum number of points of a series' line
)

// Scene lays a figure out.
func (f *Figure) Scene() *Scene {
	s := &Scene{Width: width, Height: height, Title: f.Title}
	if f.Small {
		s.Width, s.Height = smallWidth, 230
	}
	top := 12.0
	if f.Legend {
		s.rect(ground, 0, 0, 0, s.Width, s.Height) // its height is set below
		s.label(ink, fontSize+2, 10, top+8, "start", cutText(f.Title, fontSize+2, s.Width-20)).bold = true
		top = f.legend(s, top+18) + 4
		s.Height += top - 12
		s.shapes[0].points = []point{{0, 0}, {s.Width, 0}, {s.Width, s.Height}, {0, s.Height}}
	}

	var xs, ys []float64
	for _, r := range f.Series {
		for _, p := range r.Points {
			if f.X.known(p.X) && f.Y.known(p.Y) {
				xs, ys = append(xs, p.X), append(ys, p.Y, p.Low, p.High)
			}
		}
	}
	for _, r := range f.Rules {
		ys = append(ys, r.Low, r.High)
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	x, y := &span{axis: &f.X}, &span{axis: &f.Y}
	x.low, x.hi = f.X.fit(xs, false)
	y.low, y.hi = f.Y.fit(ys, f.Bars)
	if f.Bars {
		y.hi = math.Min(y.hi+(y.hi/2-y.low/2)*2*f.overhead(s.Width-60), math.MaxFloat64)
	}

	// The title of the y axis is above the axis, so that it can be read horizontally.
	s.label(muted, fontSize, 10, top+fontSize-3, "start", cutText(f.Y.Label, fontSize, s.Width-20))
	yTicks := f.Y.ticks(y.low, y.hi, 6, nil)
	left := 22.0
	for _, t := range yTicks {
		left = math.Min(math.Max(left, textWidth(t.label, fontSize)+20), s.Width/2)
	}
	y.from, y.to = s.Height-44, top+fontSize+10
	x.from, x.to, x.edge = left, s.Width-right, left
	if f.X.broken() {
		x.zero, x.from = left+zeroPlace, left+zeroRoom
	}
	n := int((x.to - x.from) / 58)
	xTicks := f.X.ticks(x.low, x.hi, max(n, 3), xs)
	if f.X.broken() {
		xTicks = slices.Insert(xTicks, 0, tick{0, f.X.name(0)})
	}

	f.rules(s, x, y, false)
	for _, t := range yTicks {
		py := y.at(t.value)
		s.line(grid, 1, nil, point{left, py}, point{x.to, py})
		s.label(muted, fontSize, left-6, py+4, "end", t.label)
	}
	f.xAxis(s, x, y, xTicks)
	f.rules(s, x, y, true)
	if f.Bars {
		f.bars(s, x, y)
	} else {
		f.lines(s, x, y)
	}
	return s
}

// legend writes the names of the series from y on, in as many lines as they need, and returns the y position after
// them.
func (f *Figure) legend(s *Scene, y float64) float64 {
	x := 10.0
	for _, r := range f.Series {
		name := cutText(r.Name, fontSize, s.Width-60)
		w := textWidth(name, fontSize) + 42
		if x > 10 && x+w > s.Width-6 {
			x, y = 10, y+17
		}
		f.key(s, r, x, y+4)
		s.label(ink, fontSize, x+28, y+8, "start", name)
		x += w
	}
	return y + 17
}

// key draws the legend key of a series.
func (f *Figure) key(s *Scene, r Series, x, y float64) {
	if f.Bars {
		s.rect(barPaint(r), 0, x, y-6, 22, 12)
		s.hatch(r.Style, x, y-6, 22, 12)
		return
	}
	if !r.Faint {
		s.line(seriesPaint(r.Style), 2, dashes[r.Style%styles], point{x, y}, point{x + 22, y})
	}
	s.marker(r.Style, r.Faint, point{x + 11, y}, 4)
}

// Key returns the key of a series as a picture of its own, for a legend next to the plot.
func Key(style int, faint, bars bool) *Scene {
	s := &Scene{Width: 26, Height: 12}
	(&Figure{Bars: bars}).key(s, Series{Style: style, Faint: faint}, 2, 6)
	return s
}

func barPaint(r Series) paint {
	if r.Faint {
		return grid
	}
	return seriesPaint(r.Style)
}

func (f *Figure) xAxis(s *Scene, x, y *span, ticks []tick) {
	if f.X.broken() { // two slanted strokes with a gap between them
		const half, slant = 3.0, 2.5
		gap := x.from - 12
		s.line(muted, 1, nil, point{x.edge, y.from}, point{gap - half, y.from})
		s.line(muted, 1, nil, point{gap + half, y.from}, point{x.to, y.from})
		for _, at := range []float64{gap - half, gap + half} {
			s.line(muted, 1, nil, point{at - slant, y.from + 5}, point{at + slant, y.from - 5})
		}
	} else {
		s.line(muted, 1, nil, point{x.from, y.from}, point{x.to, y.from})
	}
	room := (x.to - x.from) / math.Max(1, float64(len(ticks)))
	last := math.Inf(-1)
	for _, t := range ticks {
		p := x.at(t.value)
		label := t.label
		if len(f.X.Names) > 0 {
			label = cutText(label, fontSize, math.Max(room-4, 16))
		} else {
			s.line(muted, 1, nil, point{p, y.from}, point{p, y.from + 4})
		}
		w := textWidth(label, fontSize)
		if p-w/2 < last+3 {
			continue
		}
		// Keeps a label at the right end within the picture.
		anchor, at := "middle", p
		if p+w/2 > s.Width-2 {
			anchor, at = "end", s.Width-2
		}
		last = p + w/2
		s.label(muted, fontSize, at, y.from+17, anchor, label)
	}
	s.label(muted, fontSize, (x.from+x.to)/2, y.from+36, "middle", cutText(f.X.Label, fontSize, s.Width-20))
}

// rules draws the bands, or with lines the lines, which are drawn later over them.
func (f *Figure) rules(s *Scene, x, y *span, lines bool) {
	for _, r := range f.Rules {
		if !f.Y.known(r.Low) || !f.Y.known(r.High) {
			continue
		}
		if r.Low != r.High && !lines {
			a, b := y.at(r.High), y.at(r.Low)
			s.open(r.Label)
			s.rect(band, 0, x.edge, a, x.to-x.edge, b-a)
			s.close()
		}
		if r.Low == r.High && lines {
			p := y.at(r.Low)
			s.line(ruled, 1.5, nil, point{x.edge, p}, point{x.to, p})
		}
	}
}

// overhead returns the share of the plot's height that the labels over its bars need.
func (f *Figure) overhead(plotWidth float64) float64 {
	widest := 0.0
	for _, r := range f.Series {
		for _, p := range r.Points {
			widest = math.Max(widest, textWidth(p.Top, fontSize-1))
		}
	}
	switch w := f.barWidth(plotWidth); {
	case widest == 0:
		return 0
	case widest <= w+8:
		return 0.1
	}
	return 0.38
}

// barWidth returns the width of a bar in a plot of the given width.
func (f *Figure) barWidth(plotWidth float64) float64 {
	return math.Min(plotWidth/float64(max(1, len(f.X.Names)))*0.8/float64(max(1, len(f.Series))), 64)
}
