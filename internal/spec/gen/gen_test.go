package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestPagesAreFresh fails if the types were changed and the pages were not generated again.
func TestPagesAreFresh(t *testing.T) {
	made, err := pages("..")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range made {
		page, err := os.ReadFile(filepath.Join("../../../docs/reference", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(page, text) {
			t.Errorf("docs/reference/%s is stale: run make docs", name)
		}
	}
	if !json.Valid(made["cluster.schema.json"]) {
		t.Error("the schema is not JSON")
	}
}

func TestGenerate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "reference")
	if err := generate("..", dir); err != nil {
		t.Fatal(err)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "cluster.md")); err != nil || !bytes.Contains(page, []byte("| `memory` |")) {
		t.Errorf("%v, %d bytes", err, len(page))
	}
	if err := generate(t.TempDir(), dir); err == nil {
		t.Error("a directory without the package is taken")
	}
}
