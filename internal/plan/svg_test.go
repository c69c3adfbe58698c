package plan

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/test/render"
)

// label is a text of a picture with the area that it covers.
type label struct {
	text       string
	x, y, w, h float64
}

// labels returns a picture's texts. It assumes the widest of the usual sans-serif fonts, at 0.62 of the font size per
// character.
func labels(t *testing.T, svg []byte) (list []label, width, height float64) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	num := func(e xml.StartElement, name string, def float64) float64 {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				v, err := strconv.ParseFloat(a.Value, 64)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
		}
		return def
	}
	var open *xml.StartElement
	for {
		tok, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			if e.Name.Local == "svg" {
				width, height = num(e, "width", 0), num(e, "height", 0)
			}
			if e.Name.Local == "text" {
				c := e.Copy()
				open = &c
			}
		case xml.EndElement:
			open = nil
		case xml.CharData:
			if open == nil {
				continue
			}
			size := num(*open, "font-size", 11)
			l := label{text: string(e), x: num(*open, "x", 0), y: num(*open, "y", 0) - 0.75*size, h: 0.9 * size}
			l.w = float64(len(l.text)) * 0.58 * size
			for _, a := range open.Attr {
				if a.Name.Local == "text-anchor" {
					l.x -= l.w / 2
				}
			}
			list = append(list, l)
		}
	}
}

// TestPictures: no label of any machine's picture overlaps another or leaves the picture.
func TestPictures(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		c, h, _ := goldenCase(t, file)
		p, err := Make(c, []topology.Host{h}, Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := p.SVG(&b, []topology.Host{h}, Ledger{Held: []Held{{Host: h.Name, CPUs: []int{h.CPUs[len(h.CPUs)-1].ID}}}}); err != nil {
			t.Fatal(err)
		}
		list, w, ht := labels(t, b.Bytes())
		if len(list) < len(h.CPUs)/2 {
			t.Errorf("%s: %d labels for %d CPUs", file, len(list), len(h.CPUs))
		}
		// Rows of 20 pixels keep this from being quadratic in 768 CPUs.
		rows := map[int][]label{}
		for _, l := range list {
			if l.x < 0 || l.y < 0 || l.x+l.w > w+1 || l.y+l.h > ht+1 {
				t.Errorf("%s: %q leaves the picture: %+v of %v x %v", file, l.text, l, w, ht)
			}
			for r := int(l.y) / 20; r <= int(l.y+l.h)/20; r++ {
				for _, o := range rows[r] {
					if l.x < o.x+o.w && o.x < l.x+l.w && l.y < o.y+o.h && o.y < l.y+l.h {
						t.Errorf("%s: %q and %q overlap", file, l.text, o.text)
					}
				}
				rows[r] = append(rows[r], l)
			}
		}
		// The notes state in words the facts that the drawing cannot show: the cluster, the meaning of the bars, VMs
		// that are not pinned, QEMU's threads, distances.
		notes := p.notes()
		notes = append(notes, "plan")
		if len(h.Nodes) > 1 {
			notes = append(notes, h.Name+": distance")
		}
		if len(p.VMs[0].Pins) == 0 {
			notes = append(notes, "not pinned: ")
		}
		if len(p.VMs[0].EmulatorCPUs) > 0 {
			notes = append(notes, "QEMU's other threads of ")
		}
		for _, want := range notes {
			if !slices.ContainsFunc(list, func(l label) bool { return strings.HasPrefix(l.text, want) }) {
				t.Errorf("%s: nothing says %q", file, want)
			}
		}
		for i := range p.VMs {
			want := fmt.Sprintf("%s: %d vCPU", p.VMs[i].Name, p.VMs[i].VCPUs)
			found := false
			for _, l := range list {
				found = found || len(l.text) >= len(want) && l.text[:len(want)] == want
			}
			if !found {
				t.Errorf("%s: no legend for %s", file, p.VMs[i].Name)
			}
		}
	}
}

// TestRender: the picture of a plan has its VMs' colours in every viewer.
func TestRender(t *testing.T) {
	hosts := []topology.Host{machine(t, "dl380g8")}
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 2, VCPUs: 4, Memory: 4 << 30}), hosts, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.SVG(&b, hosts, Ledger{}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "var(") {
		t.Error("its colours are in a style sheet")
	}
	of, all := render.Counts(render.SVG(t, b.Bytes()))
	colours := 0
	for c, n := range of {
		if n >= 50 && (c.R != c.G || c.G != c.B) {
			colours++
		}
	}
	if black := of[color.RGBA{A: 255}]; colours < 3 || black*10 > all {
		t.Errorf("%d colours, %d of %d pixels are black", colours, black, all)
	}
}
