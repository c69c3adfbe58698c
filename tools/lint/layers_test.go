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

func TestIncludesOfState(t *testing.T) {
	top := t.TempDir()
	for _, l := range layers {
		if err := os.MkdirAll(filepath.Join(top, "fabric", l), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"x.c":     map[string]string{"object": "#include \"proto/state.h\"\n", "ring": "#include \"remote/state.h\"\n"}[l],
			"state.h": map[string]string{"proto": "/* (types) */\nstruct a {\n\tint (*b)(void);\n};\nint f(void);\n", "remote": "struct a;\n"}[l],
		} {
			if err := os.WriteFile(filepath.Join(top, "fabric", l, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, err := includes(top)
	if err != nil || len(got) != 2 || !strings.Contains(got[0], `fabric/ring/x.c: includes "remote/state.h" of the higher directory remote`) ||
		!strings.Contains(got[1], "fabric/proto/state.h: has a function") {
		t.Errorf("got %q, %v", got, err)
	}
}
