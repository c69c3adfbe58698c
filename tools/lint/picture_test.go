package main

import (
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/render"
)

// tree makes a repository of Go packages with the imports in the lists.
func tree(t *testing.T, imports map[string][]string) string {
	t.Helper()
	top := t.TempDir()
	for name, list := range imports {
		text := "package p\n"
		for _, to := range list {
			text += "import _ \"" + module + to + "\"\n"
		}
		file := filepath.Join(top, name, "p.go")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return top
}

// The picture has an arrow for each import that other arrows do not imply, and lint reports a picture of other imports.
func TestPicture(t *testing.T) {
	top := tree(t, map[string][]string{"cmd/x": {"a/c", "b"}, "internal/a": {"a/c"}, "internal/a/c": {"b", "d", "words"},
		"internal/b": {"d"}, "internal/d": {"words"}, "internal/words": nil})
	svg, err := draw(top)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(svg), "<path fill=\"none\""); n != 3 {
		t.Errorf("%d arrows, want cmd to a, a to b, b to d", n)
	}
	if err := os.MkdirAll(filepath.Join(top, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		svg    string
		faults int
	}{{string(svg), 0}, {string(svg) + "\n", 1}} {
		if err := os.WriteFile(filepath.Join(top, pictureFile), []byte(c.svg), 0o644); err != nil {
			t.Fatal(err)
		}
		if faults, err := picture(top); err != nil || len(faults) != c.faults {
			t.Errorf("%q, %v, want %d", faults, err, c.faults)
		}
	}
}

func TestPictureCircle(t *testing.T) {
	top := tree(t, map[string][]string{"cmd/x": {"a"}, "internal/a": {"b/c"}, "internal/b": {"a"}, "internal/b/c": nil})
	if _, err := draw(top); err == nil || !strings.Contains(err.Error(), "a, b, a") {
		t.Error(err)
	}
}

// The picture in the repository has its colours in every viewer.
func TestRender(t *testing.T) {
	svg, err := os.ReadFile("../../" + pictureFile)
	if err != nil {
		t.Fatal(err)
	}
	of, all := render.Counts(render.SVG(t, svg))
	for _, c := range []color.RGBA{{0xe8, 0xf0, 0xfb, 0xff}, {0xfd, 0xf0, 0xd5, 0xff}, {0xff, 0xff, 0xff, 0xff}} {
		if of[c]*100 < all {
			t.Errorf("%v is seen in %d of %d pixels", c, of[c], all)
		}
	}
}
