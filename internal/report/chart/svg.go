package chart

import (
	"bufio"
	"html"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
)

// Colours are a palette: a CSS colour (#rrggbb) for each role.
type Colours map[string]string

// Light and Dark are the palettes of a page's two modes. The colours of series are those of Okabe and Ito ("Color
// Universal Design", 2008), which colour-blind readers can distinguish; the baseline has a slate grey, which is
// darkest in print.
var (
	Light = Colours{
		"ink": "#172033", "muted": "#566074", "grid": "#e3e7ee", "ground": "#ffffff", "band": "#e2f3ea", "ruled": "#172033",
		"s0": "#39424f", "s1": "#0072b2", "s2": "#d55e00", "s3": "#009e73", "s4": "#b8578e", "s5": "#c98a00", "s6": "#56b4e9",
	}
	Dark = Colours{
		"ink": "#e6eaf2", "muted": "#a3aec0", "grid": "#2b3444", "ground": "#161c27", "band": "#17382b", "ruled": "#e6eaf2",
		"s0": "#c6cfdd", "s1": "#58b0f0", "s2": "#ff9150", "s3": "#35cf9d", "s4": "#e79ac6", "s5": "#f2bb4b", "s6": "#a5dcff",
	}
)

// CSS returns the palette as declarations of variables: --ink:#172033;…
func (c Colours) CSS() string {
	var names []string
	for name := range c {
		names = append(names, name)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString("--" + name + ":" + c[name] + ";")
	}
	return b.String()
}

// Style returns the style sheet for the SVG of Inline: a class for each role.
func Style() string {
	var b strings.Builder
	for _, role := range []string{"ink", "muted", "grid", "ground", "band", "ruled", "s0", "s1", "s2", "s3", "s4", "s5", "s6"} {
		b.WriteString(".f-" + role + "{fill:var(--" + role + ")}.k-" + role + "{stroke:var(--" + role + ")}")
	}
	b.WriteString("svg.plot polyline{fill:none;stroke-linejoin:round}svg.plot text{font-family:var(--sans)}svg.plot .b{font-weight:600}")
	return b.String()
}

// Inline writes the scene as an SVG element of a page that contains the rules of Style and the variables of a
// palette.
func (s *Scene) Inline(w io.Writer) error {
	b := bufio.NewWriter(w)
	s.svg(b, `class="plot" `, nil)
	return b.Flush()
}

// SVG writes the scene as a file of its own. Each shape has its colour as an attribute, because image viewers do not
// support style sheets with variables, and paint black instead.
func (s *Scene) SVG(w io.Writer) error {
	b := bufio.NewWriter(w)
	s.svg(b, `xmlns="http://www.w3.org/2000/svg" font-family="'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',sans-serif" stroke-linejoin="round" `, Light)
	b.WriteByte('\n')
	return b.Flush()
}

// svg writes the scene in the colours of c; nil: with a class for each role.
func (s *Scene) svg(b *bufio.Writer, attributes string, c Colours) {
	b.WriteString("<svg " + attributes + `viewBox="0 0 ` + num(s.Width) + " " + num(s.Height) + `" width="` + num(s.Width) + `" height="` + num(s.Height) + `"`)
	if s.Title != "" {
		b.WriteString(` role="img" aria-label="` + html.EscapeString(xmlText(s.Title)) + `"`)
	} else {
		b.WriteString(` aria-hidden="true"`)
	}
	b.WriteString(">")
	for i := range s.shapes {
		s.shapes[i].svg(b, c)
	}
	b.WriteString("</svg>")
}

// painted returns the attributes for a shape's colours and line width.
func (s *shape) painted(c Colours) string {
	if c == nil {
		var class []string
		if s.fill != noPaint {
			class = append(class, "f-"+string(s.fill))
		}
		if s.stroke != noPaint {
			class = append(class, "k-"+string(s.stroke))
		}
		if s.bold {
			class = append(class, "b")
		}
		return ` class="` + strings.Join(class, " ") + `"`
	}
	fill := "none"
	if s.fill != noPaint && s.kind != polyline {
		fill = c[string(s.fill)]
	}
	out := ` fill="` + fill + `"`
	if s.stroke != noPaint {
		out += ` stroke="` + c[string(s.stroke)] + `"`
	}
	if s.bold {
		out += ` font-weight="600"`
	}
	return out
}

func (s *shape) svg(b *bufio.Writer, c Colours) {
	switch s.kind {
	case group:
		b.WriteString("<g>")
		if s.text != "" {
			b.WriteString("<title>" + html.EscapeString(xmlText(s.text)) + "</title>")
		}
		return
	case end:
		b.WriteString("</g>")
		return
	case text:
		p := s.points[0]
		b.WriteString(`<text x="` + num(p.x) + `" y="` + num(p.y) + `" font-size="` + num(s.size) + `"`)
		if s.anchor != "start" {
			b.WriteString(` text-anchor="` + s.anchor + `"`)
		}
		if s.rotate {
			b.WriteString(` transform="rotate(-90 ` + num(p.x) + " " + num(p.y) + `)"`)
		}
		b.WriteString(s.painted(c) + ">" + html.EscapeString(xmlText(s.text)) + "</text>")
		return
	case circle:
		b.WriteString(`<circle cx="` + num(s.points[0].x) + `" cy="` + num(s.points[0].y) + `" r="` + num(s.radius) + `"`)
	default:
		b.WriteString([]string{polyline: "<polyline", polygon: "<polygon"}[s.kind] + ` points="`)
		for i, p := range s.points {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(num(p.x) + "," + num(p.y))
		}
		b.WriteByte('"')
	}
	if s.stroke != noPaint && s.width != 1 {
		b.WriteString(` stroke-width="` + num(s.width) + `"`)
	}
	b.WriteString(s.painted(c))
	if s.opacity > 0 {
		b.WriteString(` fill-opacity="` + strconv.FormatFloat(s.opacity, 'f', 2, 64) + `"`)
	}
	if len(s.dash) > 0 {
		b.WriteString(` stroke-dasharray="`)
		for i, d := range s.dash {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(num(d))
		}
		b.WriteByte('"')
	}
	b.WriteString("/>")
}

// num formats a coordinate with one decimal.
func num(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "0"
	}
	r := math.Round(v*10) / 10
	return strconv.FormatFloat(r, 'f', -1, 64)
}

// xmlText removes the characters that XML cannot represent.
func xmlText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r == 0xFFFE || r == 0xFFFF {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
}
