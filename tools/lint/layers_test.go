package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIncludes(t *testing.T) {
	top := t.TempDir()
	for _, l := range layers {
		if err := os.MkdirAll(filepath.Join(top, "fabric", l), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "#include <stdio.h>\n#include \"tune.h\"\n#include \"base/x.h\"\n"
		if l == "ring" {
			text += "#include \"ofi/open.h\"\n#include \"ring.h\"\n"
		}
		if err := os.WriteFile(filepath.Join(top, "fabric", l, "x.c"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(top, "fabric", "remote", "x.c")); err != nil {
		t.Fatal(err)
	}
	got, err := includes(top)
	if err != nil || len(got) != 3 || !strings.Contains(got[0], `fabric/ring/x.c: includes "ofi/open.h" of the higher directory ofi`) ||
		!strings.Contains(got[1], `"ring.h": write DIR/FILE`) || !strings.Contains(got[2], "fabric/remote: there are no sources") {
		t.Errorf("got %q, %v", got, err)
	}
}
