package commands

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/traffic"
)

// traffic shows the counts that ranks left in a directory, as text, as JSON and as a picture.
func TestTraffic(t *testing.T) {
	lab(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"vm0": "nearmetal-traffic 1\nself 0 7 vm0 slot:aa:0:1\nto slot:aa:1:1 region 4096 0 0 1 0 0 0\nend\n",
		"vm1": "nearmetal-traffic 1\nself 1 7 vm1 slot:aa:1:1\nend\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code := answer(t, "traffic", dir)
	if want := "rank   vm  0      1\n0     vm0  ·  4 KiB\n1     vm1  ·      ·\n"; code != 0 || !strings.Contains(out, want) {
		t.Errorf("%d, %q, %q, want %q", code, out, errs, want)
	}
	picture := filepath.Join(t.TempDir(), "traffic.svg")
	out, errs, code = answer(t, "traffic", dir, "--json", "--svg", picture)
	var m traffic.Matrix
	if err := json.Unmarshal([]byte(out), &m); code != 0 || err != nil || len(m.Pairs) != 1 || m.Pairs[0].Classes[2] != 1 {
		t.Errorf("%d, %v, %q, %q", code, err, out, errs)
	}
	if b, err := os.ReadFile(picture); err != nil || !strings.Contains(string(b), "0 (vm0) → 1 (vm1): 4 KiB") {
		t.Errorf("%v, %s", err, b)
	}
	if err := os.WriteFile(filepath.Join(dir, "vm2"), []byte("nearmetal-traffic 1\nself 1 7 vm2\nto a b c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errs, code := answer(t, "traffic", dir); code != 125 || !strings.Contains(errs, "vm2: counts of messages: line 3: expected: to ADDRESS") {
		t.Errorf("%d, %q", code, errs)
	}
}
