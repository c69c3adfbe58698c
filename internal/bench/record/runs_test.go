package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A run is found by its path, or by its name in the directory of runs; a new one does not take another's place.
func TestRuns(t *testing.T) {
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.EvalSymlinks(t.TempDir())
	if err == nil {
		err = os.Chdir(here)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chdir(before) })
	started := time.Date(2026, 11, 22, 0, 45, 0, 0, time.Local)
	dir, err := NewDir("", started, []string{"osu/latency", strings.Repeat("x", 80)})
	if want := filepath.Join(here, RunsDir, "20261122-004500-osu-latency-"+strings.Repeat("x", 48)); err != nil || dir != want {
		t.Errorf("%s, %v, want %s", dir, err, want)
	}
	in := filepath.Join(RunsDir, "one")
	if err := os.MkdirAll(in, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := SaveRun(in, &Run{Version: Version, ID: "one"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"one": in, in: in, "two": "two", "./one": "./one"} {
		if got := Find(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if !IsRun(in) || IsRun(here) {
		t.Error("a run's directory is not known from another")
	}
	if _, err := NewDir(in, started, nil); err == nil || !strings.Contains(err.Error(), "holds a run already") {
		t.Error(err)
	}
}
