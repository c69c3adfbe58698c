package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIncludesUCX(t *testing.T) {
	top := t.TempDir()
	for name, text := range map[string]string{
		"abi/log.c":  "#include <stdio.h>\n#include \"log.h\"\n",
		"abi/log.h":  "",
		"abi/uct.c":  "#include \"ring/ring.h\"\n",
		"peer.c":     "#include \"abi/log.h\"\n#include \"base.h\"\n#include \"peer.h\"\n#include \"ring/ring.h\"\n",
		"memory.c":   "#include \"peer.h\"\n",
		"more.c":     "",
		"register.c": "#include \"window.h\"\n#include \"gone.h\"\n",
	} {
		path := filepath.Join(top, "ucx", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := includesUCX(top)
	if err != nil || len(got) != 4 || !strings.Contains(got[0], `ucx/abi/uct.c: includes "ring/ring.h", which is no lower part`) ||
		!strings.Contains(got[1], `ucx/memory.c: includes "peer.h", which is higher`) ||
		!strings.Contains(got[2], "ucx/more.c: it is none of the parts") || !strings.Contains(got[3], `ucx/register.c: includes "gone.h"`) {
		t.Errorf("got %q, %v", got, err)
	}
}
