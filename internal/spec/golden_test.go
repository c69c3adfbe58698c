package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/golden"
)

// files returns the cluster files of a directory of testdata by name.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files in testdata/%s: %v", folder, err)
	}
	found := map[string][]byte{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found[strings.TrimSuffix(filepath.Base(path), ".yaml")] = data
	}
	return found
}

// TestBadFiles compares the messages for wrong files with golden ones, which a person has reviewed.
func TestBadFiles(t *testing.T) {
	for name, data := range files(t, "bad") {
		c, err := Parse("cluster.yaml", data)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		if c != nil {
			t.Errorf("%s: a cluster besides an error", name)
		}
		golden.Check(t, filepath.Join("testdata", "bad", name+".err"), err.Error()+"\n")
	}
}

// TestGoodFiles compares files with all defaults filled in, and reads those back.
func TestGoodFiles(t *testing.T) {
	for name, data := range files(t, "good") {
		c, err := Parse("cluster.yaml", data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		Defaults(c)
		if err := Validate(c); err != nil {
			t.Errorf("%s: with its defaults: %v", name, err)
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		// The placement has many keys, which its own tests check.
		before, _, _ := strings.Cut(string(text), "\nplacement:")
		golden.Check(t, filepath.Join("testdata", "good", name+".full"), before+"\n")
		sameAgain(t, c, text)
	}
}
