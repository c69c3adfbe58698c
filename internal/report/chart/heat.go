package chart

import "math"

// Heat is a square of cells, darker the larger their value is.
type Heat struct {
	Title  string
	Labels []string    // of rows and columns, as many as there are
	Values [][]float64 // by row and column, 0 or more
	Rows   string      // what rows are
	Cols   string      // what columns are
	Words  func(v float64) string
}

// heatMost is the most labels that are written at an axis.
const heatMost = 32

// Scene lays the square out. Shades follow the logarithm, since traffic differs by powers of ten.
func (h *Heat) Scene() *Scene {
	const left, top, side = 90.0, 70.0, 480.0
	n := len(h.Labels)
	s := &Scene{Width: left + side + 30, Height: top + side + 40, Title: h.Title}
	s.rect(ground, 0, 0, 0, s.Width, s.Height)
	s.label(ink, 15, 16, 26, "start", cutText(h.Title, 15, s.Width-32)).bold = true
	s.label(muted, 12, left+side/2, 48, "middle", h.Cols)
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
			s.label(muted, 10, left-6, at+3.5, "end", cutText(name, 10, 60))
			s.label(muted, 10, left+(float64(i)+0.5)*cell, top-6, "middle", cutText(name, 10, math.Max(cell, 12)))
		}
		for j, v := range h.Values[i] {
			if v <= 0 {
				continue
			}
			s.open(name + " → " + h.Labels[j] + ": " + h.Words(v))
			s.rect(seriesPaint(1), 0.1+0.9*math.Log1p(v)/math.Log1p(most), left+float64(j)*cell, top+float64(i)*cell, cell, cell)
			s.close()
		}
	}
	for i := 0; i <= n; i += every {
		d := float64(i) * cell
		s.line(grid, 1, nil, point{left, top + d}, point{left + side, top + d})
		s.line(grid, 1, nil, point{left + d, top}, point{left + d, top + side})
	}
	return s
}
