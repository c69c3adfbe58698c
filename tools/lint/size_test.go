package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A package with too many lines and a type with too many fields are named; tests do not count.
func TestSizes(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, sizedBelow, "x")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package x\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "type T struct {\n"+strings.Repeat("\tT\n", 1)+"\ta, b int\n}\n")
	write("a_test.go", strings.Repeat("\n", maxPackage))
	if faults, err := sizes(top); err != nil || len(faults) > 0 {
		t.Errorf("%q, %v", faults, err)
	}
	write("b.go", "type Big struct {\n\ta, b int\n"+strings.Repeat("\t_ int\n", maxTypeSize-1)+"}\n"+strings.Repeat("\n", maxPackage))
	faults, err := sizes(top)
	if got := strings.Join(faults, "\n"); err != nil || len(faults) != 2 || !strings.Contains(got, "type Big has 16 fields") || !strings.Contains(got, "cluster/x has ") {
		t.Errorf("%q, %v", faults, err)
	}
}
