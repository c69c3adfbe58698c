package chart

import "math"

// Scene is the layout of a plot: shapes in the order in which they are painted, in CSS pixels, with the origin at the
// top left.
type Scene struct {
	Width, Height float64
	Title         string
	shapes        []shape
}

// paint is the role of a shape's colour; a page's style sheet defines the colour.
type paint string

// Roles of colours. Those of series are "s0" to "s6".
const (
	noPaint paint = ""
	ink     paint = "ink"   // text
	muted   paint = "muted" // ticks and titles of axes
	grid    paint = "grid"
	ground  paint = "ground" // background of the plot
	band    paint = "band"   // the tolerance
	ruled   paint = "ruled"  // the line at 1.0
)

type shapeKind int

const (
	polyline shapeKind = iota
	polygon
	circle
	text
	group // the shapes up to end belong together and share a tip
	end
)

type point struct{ x, y float64 }

type shape struct {
	kind         shapeKind
	points       []point // the first is the centre of a circle, or the position of a text
	stroke, fill paint
	width        float64 // of the stroke
	opacity      float64 // of the fill; 0: opaque
	dash         []float64
	radius       float64
	text         string // of a text, or the tip of a group
	size         float64
	anchor       string // "start", "middle", "end"
	bold, rotate bool   // rotate: by 90° to the left
}

func (s *Scene) line(stroke paint, width float64, dash []float64, p ...point) {
	s.shapes = append(s.shapes, shape{kind: polyline, points: p, stroke: stroke, width: width, dash: dash})
}

func (s *Scene) rect(fill paint, opacity, x, y, w, h float64) {
	s.shapes = append(s.shapes, shape{kind: polygon, fill: fill, opacity: opacity, points: []point{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}})
}

func (s *Scene) label(fill paint, size, x, y float64, anchor, content string) *shape {
	s.shapes = append(s.shapes, shape{kind: text, points: []point{{x, y}}, fill: fill, size: size, anchor: anchor, text: content})
	return &s.shapes[len(s.shapes)-1]
}

func (s *Scene) open(tip string) { s.shapes = append(s.shapes, shape{kind: group, text: tip}) }
func (s *Scene) close()          { s.shapes = append(s.shapes, shape{kind: end}) }

// styles is the number of colours of series.
const styles = 7

func seriesPaint(style int) paint {
	return paint("s" + string(rune('0'+((style%styles)+styles)%styles)))
}

// dashes distinguish lines without colour.
var dashes = [styles][]float64{nil, {7, 3}, {2, 2.5}, {9, 3, 2, 3}, {4, 2}, {12, 4}, {1, 3}}

// marker draws the marker of a style at p.
func (s *Scene) marker(style int, faint bool, p point, r float64) {
	fill, stroke := seriesPaint(style), ground
	if faint {
		fill, stroke = ground, muted
	}
	sh := shape{kind: polygon, fill: fill, stroke: stroke, width: 1}
	at := func(angles ...float64) {
		for _, a := range angles {
			a *= math.Pi / 180
			sh.points = append(sh.points, point{p.x + r*math.Cos(a), p.y - r*math.Sin(a)})
		}
	}
	switch style % 6 {
	case 0:
		sh.kind, sh.points, sh.radius = circle, []point{p}, r*0.88
	case 1:
		at(45, 135, 225, 315)
	case 2:
		r *= 1.2
		at(90, 210, 330)
	case 3:
		r *= 1.15
		at(0, 90, 180, 270)
	case 4:
		r *= 1.2
		at(270, 30, 150)
	case 5:
		for i := range 10 {
			q := r * 1.35
			if i%2 == 1 {
				q = r * 0.6
			}
			a := (90 + float64(i)*36) * math.Pi / 180
			sh.points = append(sh.points, point{p.x + q*math.Cos(a), p.y - q*math.Sin(a)})
		}
	}
	s.shapes = append(s.shapes, sh)
}

// hatch draws the lines that distinguish a style's bars in greyscale; style 0 has none.
func (s *Scene) hatch(style int, x, y, w, h float64) {
	kind := style % 4
	if kind == 0 || w < 3 || h < 3 {
		return
	}
	step := 6.5
	if n := (w + h) / step; n > 120 {
		step = (w + h) / 120
	}
	add := func(a, b point) { s.line(ground, 1, nil, a, b) }
	if kind == 1 || kind == 3 {
		for d := step; d < w+h; d += step { // rising lines: x + y' = d, from the bottom left
			x0, y0 := math.Max(0, d-h), math.Min(d, h)
			x1, y1 := math.Min(d, w), math.Max(0, d-w)
			add(point{x + x0, y + h - y0}, point{x + x1, y + h - y1})
		}
	}
	if kind == 2 || kind == 3 {
		for d := step; d < w+h; d += step {
			x0, y0 := math.Max(0, d-h), math.Min(d, h)
			x1, y1 := math.Min(d, w), math.Max(0, d-w)
			add(point{x + x0, y + y0}, point{x + x1, y + y1})
		}
	}
}

// textWidth estimates the width of s in a sans-serif font of the given size, with a margin.
func textWidth(s string, size float64) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case r == 'i' || r == 'l' || r == '.' || r == ',' || r == ' ' || r == 'j' || r == 't' || r == 'f' || r == '(' || r == ')':
			w += 0.33
		case r == 'm' || r == 'w' || r == 'M' || r == 'W' || r == '%':
			w += 0.9
		case r >= 'A' && r <= 'Z':
			w += 0.69
		case r > 0x2E80:
			w++
		default:
			w += 0.57
		}
	}
	return w * size
}

// cutText shortens s so that it fits into width.
func cutText(s string, size, width float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	r := []rune(s)
	for len(r) > 1 && textWidth(string(r), size)+size*0.8 > width {
		r = r[:len(r)-1]
	}
	return string(r) + "…"
}
