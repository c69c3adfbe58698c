// Package render has tests look at pictures as a viewer shows them: librsvg, which GNOME, Wikipedia and many converters use.
package render

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"os/exec"
	"testing"
)

// SVG draws a picture in twice its size. Without rsvg-convert the test is skipped.
func SVG(t testing.TB, svg []byte) image.Image {
	t.Helper()
	program, err := exec.LookPath("rsvg-convert")
	if err != nil {
		t.Skip("no rsvg-convert (librsvg2-bin)")
	}
	cmd := exec.Command(program, "--zoom", "2", "--format", "png")
	cmd.Stdin = bytes.NewReader(svg)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("rsvg-convert: %v: %s", err, errs.String())
	}
	img, err := png.Decode(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// Counts returns how many pixels of a picture have each colour, and how many pixels there are. A pixel that shows
// nothing counts as white, which is what is behind it on paper.
func Counts(img image.Image) (of map[color.RGBA]int, all int) {
	of = map[color.RGBA]int{}
	at := img.Bounds()
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			r, g, b, a := img.At(x, y).RGBA()
			w := 0xffff - a
			of[color.RGBA{uint8((r + w) >> 8), uint8((g + w) >> 8), uint8((b + w) >> 8), 255}]++
			all++
		}
	}
	return of, all
}
