// Package golden compares what tests make with files that hold what it should be. A test that
// imports it takes the flag -update, which writes the files anew:
//
//	go test ./internal/plan -update
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

// Update says that files are to be written instead of compared (-update).
var Update = flag.Bool("update", false, "write the golden files anew")

// Check compares got with a file, or writes it. The path is relative to the test's folder.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *Update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update writes it anew)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}
