package chart

import (
	"bytes"
	"encoding/xml"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"
)

func example() *Figure {
	f := &Figure{Name: "latency", Title: "Latency", Legend: true,
		X:     Axis{Label: "Message size (bytes)", Scale: Log2, Bytes: true},
		Y:     Axis{Label: "Latency (µs), lower is better", Scale: Log},
		Rules: []Rule{{Low: 1, High: 1}}}
	for style, name := range []string{"native.48", "VM.44", "native.44"} {
		s := Series{Name: name, Style: style}
		for e := 0; e <= 22; e++ {
			v := (0.5 + math.Ldexp(1, e)/12000) * (1 + 0.05*float64(style))
			s.Points = append(s.Points, Point{X: math.Ldexp(1, e), Y: v, Low: v * 0.9, High: v * 1.2, Tip: name})
		}
		f.Series = append(f.Series, s)
	}
	return f
}

func bars() *Figure {
	f := &Figure{Name: "bars", Title: "Bars", Bars: true, Legend: true, X: Axis{Label: "Nodes", Names: []string{"1", "2", "4"}}, Y: Axis{Label: "Time (s)"}}
	for style, name := range []string{"native.48", "native.44", "VM.44", "VM.44.untuned"} {
		s := Series{Name: name, Style: style}
		for i := range 3 {
			s.Points = append(s.Points, Point{X: float64(i), Y: 10 / float64(i+1), Low: 9 / float64(i+1), High: 11 / float64(i+1), Top: "−3.1 %"})
		}
		f.Series = append(f.Series, s)
	}
	return f
}

// checkXML parses a picture as XML and counts its elements.
func checkXML(t *testing.T, data []byte) map[string]int {
	t.Helper()
	count := map[string]int{}
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return count
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, data)
		}
		if e, ok := tok.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := example().Scene().SVG(&b); err != nil {
		t.Fatal(err)
	}
	count := checkXML(t, b.Bytes())
	if count["circle"] != 24 { // 23 points of the baseline and its key
		t.Errorf("%d circles", count["circle"])
	}
	for _, want := range []string{"Latency (µs), lower is better", "Message size (bytes)", "4 KiB", "1 MiB", "VM.44"} {
		if !strings.Contains(b.String(), ">"+want+"<") {
			t.Errorf("%q is not in the picture", want)
		}
	}
	b.Reset()
	if err := bars().Scene().SVG(&b); err != nil {
		t.Fatal(err)
	}
	checkXML(t, b.Bytes())
	if n := strings.Count(b.String(), "−3.1 %"); n != 12 {
		t.Errorf("%d of 12 bars have their delta", n)
	}
}

// Checks that a message of 0 B is drawn at a labelled position of its own, left of all others and of the break.
func TestZeroOnLogAxis(t *testing.T) {
	f := example()
	f.Legend = false
	f.X.Zero = true
	f.Series = f.Series[:1]
	f.Series[0].Points = append([]Point{{X: 0, Y: 0.5, Low: 0.5, High: 0.5, Tip: "native.48"}}, f.Series[0].Points...)
	s := f.Scene()
	var b bytes.Buffer
	if err := s.SVG(&b); err != nil {
		t.Fatal(err)
	}
	if n := checkXML(t, b.Bytes())["circle"]; n != 24 || !strings.Contains(b.String(), ">0 B<") {
		t.Errorf("%d points of 24; is 0 B a label: %v", n, strings.Contains(b.String(), ">0 B<"))
	}
	var places []float64
	for _, sh := range s.shapes {
		if sh.kind == circle {
			places = append(places, sh.points[0].x)
		}
		for i := 1; sh.kind == polyline && sh.stroke == seriesPaint(0) && sh.width == 2 && i < len(sh.points); i++ {
			if len(places) > 0 && sh.points[i-1].x == places[0] {
				t.Error("a line goes over the break")
			}
		}
	}
	if len(places) != 24 || places[0] > places[1]-20 {
		t.Errorf("places %v: the first is no more than the second on a scale", places)
	}
	// Values that do not fit a logarithmic axis are omitted if the axis is not broken.
	f.X.Zero = false
	b.Reset()
	if err := f.Scene().SVG(&b); err != nil || checkXML(t, b.Bytes())["circle"] != 23 {
		t.Error("0 is drawn on an axis without a place for it")
	}
}

func TestPNG(t *testing.T) {
	for _, f := range []*Figure{example(), bars()} {
		var b bytes.Buffer
		if err := f.Scene().PNG(&b); err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		colours := map[any]bool{}
		for y := range img.Bounds().Dy() {
			for x := range img.Bounds().Dx() {
				colours[img.At(x, y)] = true
			}
		}
		if img.Bounds().Dx() < 900 || len(colours) < 20 {
			t.Errorf("%s: %v with %d colours", f.Name, img.Bounds(), len(colours))
		}
	}
}

// Checks that everything is drawn within the picture, for any values.
func TestInside(t *testing.T) {
	huge := example()
	huge.Series[1].Points[3].Y = 1e300
	huge.Series[1].Points[4].Y = 1e-300
	huge.Series[1].Points[5].Y = math.NaN()
	huge.Series[1].Points[6].Low = math.Inf(-1)
	huge.Series[2].Points[7].Y = 0
	linear := example()
	linear.Y.Scale = Linear
	linear.Series[0].Points[0].Y = math.MaxFloat64
	linear.Series[0].Points[1].Y = -math.MaxFloat64
	for _, f := range []*Figure{example(), bars(), huge, linear, {}, {Series: []Series{{Points: []Point{{X: 1, Y: 5, Low: 5, High: 5}}}}}} {
		s := f.Scene()
		for _, sh := range s.shapes {
			for _, p := range sh.points {
				if !(p.x >= -1 && p.x <= s.Width+1 && p.y >= -60 && p.y <= s.Height+60) {
					t.Fatalf("%s: a shape of kind %d at %v of %v×%v", f.Name, sh.kind, p, s.Width, s.Height)
				}
			}
		}
	}
}

func TestThin(t *testing.T) {
	var points []Point
	for i := range 10000 {
		points = append(points, Point{X: float64(i), Y: 1})
	}
	points[5000].Y = 100
	out := thin(points, 400)
	if len(out) > 400 {
		t.Fatalf("%d points", len(out))
	}
	found := false
	for i, p := range out {
		found = found || p.Y == 100
		if i > 0 && out[i-1].X >= p.X {
			t.Fatal("the points are not in order")
		}
	}
	if !found {
		t.Error("the one point that sticks out is gone")
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis    Axis
		low, hi float64
		want    string
	}{
		{Axis{Scale: Log}, 0.4, 2000, "1 10 100 1000"},
		{Axis{Scale: Log}, 0.9, 11, "1 2 5 10"},
		{Axis{Scale: Log}, 1.5, 2.1, "1.5 1.6 1.7 1.8 1.9 2 2.1"},
		{Axis{Scale: Log2, Bytes: true}, 1, 1 << 22, "1 B 16 B 256 B 4 KiB 64 KiB 1 MiB"},
		{Axis{}, 0, 1.1, "0 0.2 0.4 0.6 0.8 1"},
		{Axis{Percent: true}, 0.8, 1.1, "80 % 85 % 90 % 95 % 100 % 105 % 110 %"},
		{Axis{Scale: Log}, 1e-300, 1e300, ""},
	} {
		ticks := c.axis.ticks(c.low, c.hi, 6, nil)
		var names []string
		for _, k := range ticks {
			names = append(names, k.label)
		}
		if got := strings.Join(names, " "); c.want != "" && got != c.want {
			t.Errorf("ticks of %v from %v to %v: %q, want %q", c.axis.Scale, c.low, c.hi, got, c.want)
		}
		if len(ticks) == 0 || len(ticks) > 16 {
			t.Errorf("%d ticks from %v to %v", len(ticks), c.low, c.hi)
		}
	}
}

func TestHostileNames(t *testing.T) {
	f := example()
	f.Title = `"><script>alert(1)</script>`
	f.Series[0].Name = "</text><script>\x00\x1b[2J\xff"
	f.Series[0].Points[0].Tip = "</title><script>"
	f.X.Label = "<img src=x onerror=alert(1)>"
	var b bytes.Buffer
	if err := f.Scene().SVG(&b); err != nil {
		t.Fatal(err)
	}
	if count := checkXML(t, b.Bytes()); count["script"]+count["img"] != 0 {
		t.Error("a name became markup")
	}
}

func FuzzScene(f *testing.F) {
	f.Add(1.0, 2.0, 0.5, 100.0, true, uint8(0))
	f.Add(math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.NaN(), false, uint8(1))
	f.Add(5e-324, 1.7e308, 0.0, 1.0, false, uint8(2))
	f.Fuzz(func(t *testing.T, a, b, c, d float64, bars bool, scale uint8) {
		fig := &Figure{Bars: bars, X: Axis{Scale: Scale(scale % 3), Zero: scale%2 == 0}, Y: Axis{Scale: Scale(scale / 3 % 3), Bytes: scale > 100},
			Series: []Series{{Points: []Point{{X: a, Y: b, Low: c, High: d}, {X: c, Y: d, Low: a, High: b}, {X: d, Y: a, Low: d, High: d}}}}}
		if bars {
			fig.X.Names = []string{"a", "b"}
		}
		var out bytes.Buffer
		if err := fig.Scene().SVG(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
			t.Errorf("a place that is not a number: %s", out.String())
		}
	})
}
