package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/render"
)

func rgb(t *testing.T, hex string) color.RGBA {
	t.Helper()
	c := color.RGBA{A: 255}
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B); err != nil {
		t.Fatal(err)
	}
	return c
}

func heat() *Heat {
	return &Heat{Title: "Bytes between ranks", Rows: "from rank", Cols: "to rank", Labels: []string{"0", "1", "2", "3"}, Groups: []string{"vm0", "vm0", "vm1", "vm1"},
		Values: [][]float64{{0, 10, 1000, 0}, {5e6, 0, 0, 1}, {0, 77, 0, 1e9}, {3, 0, 1e9, 0}}, Words: func(v float64) string { return fmt.Sprintf("%.0f B", v) }}
}

// Checks that a picture in a file has its colours in every viewer: each role that it uses is visible, and almost
// nothing is black.
func TestRender(t *testing.T) {
	for name, x := range map[string]struct {
		scene *Scene
		roles string
	}{
		"lines": {example().Scene(), "ink muted grid ground s0 s1 s2"},
		"bars":  {bars().Scene(), "ink muted grid ground s0 s1 s2 s3"},
		"heat":  {heat().Scene(), "ink muted grid ground s1"},
	} {
		var b bytes.Buffer
		if err := x.scene.SVG(&b); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "var(") || strings.Contains(b.String(), "<style") {
			t.Errorf("%s: its colours are in a style sheet", name)
		}
		of, all := render.Counts(render.SVG(t, b.Bytes()))
		for _, role := range strings.Fields(x.roles) {
			if n := of[rgb(t, Light[role])]; n < 20 {
				t.Errorf("%s: %s (%s) is seen in %d of %d pixels", name, role, Light[role], n, all)
			}
		}
		if n := of[color.RGBA{A: 255}]; n*100 > all {
			t.Errorf("%s: %d of %d pixels are black", name, n, all)
		}
	}
}

// Checks that the traffic picture has a key, names of VMs, lines between them, and an explanation of empty cells.
func TestHeatLegend(t *testing.T) {
	var b bytes.Buffer
	if err := heat().Scene().SVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">vm0<", ">vm1<", ">1000000000 B<", ">nothing<", ">edge of a VM<", "0 (vm0) → 2 (vm1): 1000 B"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the picture", want)
		}
	}
	if n := strings.Count(b.String(), `stroke-width="1.5"`); n != 2*3+1 {
		t.Errorf("%d lines at VMs", n)
	}
	checkXML(t, b.Bytes())
	for _, h := range []*Heat{{}, {Labels: []string{"0"}, Values: [][]float64{{0}}}} {
		b.Reset()
		if err := h.Scene().SVG(&b); err != nil {
			t.Fatal(err)
		}
		checkXML(t, b.Bytes())
	}
}

// Checks that the pictures of the documents also have colours.
func TestDocuments(t *testing.T) {
	files, err := filepath.Glob("../../../docs/*.svg")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		of, all := render.Counts(render.SVG(t, text))
		colours := 0
		for c, n := range of {
			if n >= 20 && (c.R != c.G || c.G != c.B) {
				colours++
			}
		}
		if black := of[color.RGBA{A: 255}]; colours < 4 || black*10 > all {
			t.Errorf("%s: %d colours, %d of %d pixels are black", filepath.Base(file), colours, black, all)
		}
	}
}
