package chart

import "math"

// Heat is a square of cells, which are darker for larger values.
type Heat struct {
	Title  string
	Labels []string    // of rows and columns, one per row of Values
	Groups []string    // group of each label, such as a VM; nil: no groups
	Values [][]float64 // by row and column, 0 or more
	Rows   string      // meaning of the rows
	Cols   string      // meaning of the columns
	Words  func(v float64) string
}

const (
	heatMost  = 32 // maximum number of labels of an axis
	heatSteps = 60 // shades in the key
)

// shade returns the opacity for a value. It is logarithmic, because traffic differs by powers of ten.
func shade(v, most float64) float64 { return 0.1 + 0.9*math.Log1p(v)/math.Log1p(most) }

// Scene lays the square out, with lines between groups and a key of its shades.
func (h *Heat) Scene() *Scene {
	const left, top, side = 100.0, 92.0, 480.0
	n := len(h.Labels)
	s := &Scene{Width: left + side + 30, Height: top + side + 78, Title: h.Title}
	s.rect(ground, 0, 0, 0, s.Width, s.Height)
	s.label(ink, 15, 16, 26, "start", cutText(h.Title, 15, s.Width-32)).bold = true
	s.label(muted, 12, left+side/2, 50, "middle", h.Cols)
	s.label(muted, 12, 20, top+side/2, "middle", h.Rows).rotate = true
	if n == 0 {
		return s
	}
	most := 0.0
	for _, row := range h.Values {
		for _, v := range row {
			most = math.Max(most, v)
		}
	}
	cell := side / float64(n)
	every := (n + heatMost - 1) / heatMost
	for i, name := range h.Labels {
		at := top + (float64(i)+0.5)*cell
		if i%every == 0 {
			s.label(muted, 10, left-6, at+3.5, "end", cutText(name, 10, 40))
			s.label(muted, 10, left+(float64(i)+0.5)*cell, top-6, "middle", cutText(name, 10, math.Max(cell, 12)))
		}
		for j, v := range h.Values[i] {
			if v <= 0 {
				continue
			}
			s.open(h.name(i) + " → " + h.name(j) + ": " + h.Words(v))
			s.rect(seriesPaint(1), shade(v, most), left+float64(j)*cell, top+float64(i)*cell, cell, cell)
			s.close()
		}
	}
	line := func(i int, stroke paint, width float64) {
		d := float64(i) * cell
		s.line(stroke, width, nil, point{left, top + d}, point{left + side, top + d})
		s.line(stroke, width, nil, point{left + d, top}, point{left + d, top + side})
	}
	for i := 0; i <= n; i += every {
		line(i, grid, 1)
	}
	h.groups(s, left, top, cell, line)
	if most > 0 {
		h.scale(s, left, top+side+30, most)
	}
	return s
}

// name returns a row's label with its group.
func (h *Heat) name(i int) string {
	if i < len(h.Groups) && h.Groups[i] != "" {
		return h.Labels[i] + " (" + h.Groups[i] + ")"
	}
	return h.Labels[i]
}

// groups draws a line before and after each run of a group, and the group's name if there is room.
func (h *Heat) groups(s *Scene, left, top, cell float64, line func(i int, stroke paint, width float64)) {
	if len(h.Groups) != len(h.Labels) {
		return
	}
	line(0, ink, 1.5)
	for from := 0; from < len(h.Groups); {
		to := from
		for to < len(h.Groups) && h.Groups[to] == h.Groups[from] {
			to++
		}
		line(to, ink, 1.5)
		room := float64(to-from) * cell
		middle := (float64(from)+float64(to))/2*cell + 3.5
		if name := cutText(h.Groups[from], 11, room-4); room >= 18 && name != "…" {
			s.label(ink, 11, left+middle-3.5, top-22, "middle", name)
			s.label(ink, 11, left-50, top+middle-3.5, "middle", name).rotate = true
		}
		from = to
	}
}

// scale draws the key: the shades with some of their values.
func (h *Heat) scale(s *Scene, x, y, most float64) {
	const width, height, labels = 300.0, 12.0, 4
	for i := range heatSteps {
		v := math.Expm1(float64(i) / (heatSteps - 1) * math.Log1p(most))
		s.rect(seriesPaint(1), shade(v, most), x+float64(i)*width/heatSteps, y, width/heatSteps, height)
	}
	for i := range labels + 1 {
		at := float64(i) / labels
		v := math.Max(1, math.Round(math.Expm1(at*math.Log1p(most))))
		s.label(muted, 10, x+at*width, y+height+13, "middle", h.Words(v))
	}
	s.rect(ground, 0, x+width+40, y, height, height)
	s.line(grid, 1, nil, point{x + width + 40, y}, point{x + width + 40 + height, y}, point{x + width + 40 + height, y + height}, point{x + width + 40, y + height}, point{x + width + 40, y})
	s.label(muted, 10, x+width+58, y+height-2, "start", "nothing")
	if len(h.Groups) == len(h.Labels) {
		s.line(ink, 1.5, nil, point{x + width + 108, y + height/2}, point{x + width + 128, y + height/2})
		s.label(muted, 10, x+width+133, y+height-2, "start", "edge of a VM")
	}
}
