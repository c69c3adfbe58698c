package chart

import (
	"fmt"
	"image/color"
	"io"
	"sync"

	"github.com/go-fonts/liberation/liberationsansbold"
	"github.com/go-fonts/liberation/liberationsansregular"
	"golang.org/x/image/font/opentype"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/vgimg"
)

// pngDPI is the resolution: a picture of the usual width has 960 pixels, which is sharp in a document.
const pngDPI = 150

// pixel is a CSS pixel in points.
const pixel = vg.Inch / 72

// faces parses the fonts once. They are part of the program, so that a picture is the same on every machine.
var faces = sync.OnceValues(func() ([2]font.Face, error) {
	var out [2]font.Face
	for i, ttf := range [][]byte{liberationsansregular.TTF, liberationsansbold.TTF} {
		f, err := opentype.Parse(ttf)
		if err != nil {
			return out, fmt.Errorf("the font of pictures: %w", err)
		}
		out[i] = font.Face{Font: font.Font{Typeface: "Liberation", Variant: "Sans"}, Face: f}
	}
	return out, nil
})

// PNG writes the scene as a picture on a white background.
func (s *Scene) PNG(w io.Writer) error {
	both, err := faces()
	if err != nil {
		return err
	}
	c := vgimg.NewWith(vgimg.UseWH(vg.Length(s.Width)*pixel, vg.Length(s.Height)*pixel), vgimg.UseDPI(pngDPI), vgimg.UseBackgroundColor(color.White))
	for i := range s.shapes {
		s.shapes[i].paint(c, both, s.Height)
	}
	_, err = vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	return err
}

func (s *shape) paint(c vg.Canvas, both [2]font.Face, height float64) {
	at := func(p point) vg.Point {
		return vg.Point{X: vg.Length(p.x) * pixel, Y: vg.Length(height-p.y) * pixel}
	}
	switch s.kind {
	case group, end:
		return
	case text:
		face := both[0]
		if s.bold {
			face = both[1]
		}
		face.Font.Size = vg.Length(s.size) * pixel
		c.SetColor(rgba(s.fill, 0))
		p := at(s.points[0])
		w := face.Width(s.text)
		switch s.anchor {
		case "middle":
			p.X -= w / 2
		case "end":
			p.X -= w
		}
		if s.rotate {
			c.Push()
			c.Translate(p)
			c.Rotate(3.14159265 / 2)
			c.FillString(face, vg.Point{}, s.text)
			c.Pop()
			return
		}
		c.FillString(face, p, s.text)
		return
	}
	var path vg.Path
	if s.kind == circle {
		p, r := at(s.points[0]), vg.Length(s.radius)*pixel
		path.Move(vg.Point{X: p.X + r, Y: p.Y})
		path.Arc(p, r, 0, 2*3.14159265)
		path.Close()
	} else {
		for i, p := range s.points {
			if i == 0 {
				path.Move(at(p))
			} else {
				path.Line(at(p))
			}
		}
		if s.kind == polygon {
			path.Close()
		}
	}
	if s.fill != noPaint {
		c.SetColor(rgba(s.fill, s.opacity))
		c.Fill(path)
	}
	if s.stroke != noPaint {
		c.SetColor(rgba(s.stroke, 0))
		c.SetLineWidth(vg.Length(s.width) * pixel)
		dash := make([]vg.Length, len(s.dash))
		for i, d := range s.dash {
			dash[i] = vg.Length(d) * pixel
		}
		c.SetLineDash(dash, 0)
		c.Stroke(path)
	}
}

// rgba returns the light palette's colour of a role; opacity 0 is opaque.
func rgba(p paint, opacity float64) color.Color {
	var r, g, b uint8
	fmt.Sscanf(Light[string(p)], "#%02x%02x%02x", &r, &g, &b)
	a := 1.0
	if opacity > 0 {
		a = opacity
	}
	return color.NRGBA{r, g, b, uint8(255*a + 0.5)}
}
