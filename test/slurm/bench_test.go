package slurm

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"nearmetal/internal/bench/record"
)

// A job for each number of nodes, and one run of what they leave.
func TestBenchOnNodes(t *testing.T) {
	kernels := filepath.Join(bin, "c/kernels")
	if err := os.Symlink(filepath.Join(build, "c/kernels"), kernels); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	dir := filepath.Join(scratch(t), "run")
	r := slurm(t, filepath.Join(bin, "nearmetal"), "-q", "bench", "run", "osu/latency", "--nodes", "1,2", "--quick",
		"--repetitions", "1", "--warmup", "0", "--variants", "native,vm",
		"--set", "sizes=8:16", "--set", "iterations=20", "--out", dir)
	if r.code != 0 {
		logs, _ := filepath.Glob(filepath.Join(dir, "*.out"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", log, text)
		}
		t.Errorf("status %d\n%s", r.code, r.err)
	}
	run, samples, notes, err := record.Load(dir)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	if run.Slurm["nodes"] != "1,2" || run.Slurm["jobs"] == "" || len(run.Variants) != 2 {
		t.Errorf("%+v %+v", run.Slurm, run.Variants)
	}
	seen := map[string]int{}
	for _, s := range samples {
		if !s.OK {
			log, _ := os.ReadFile(filepath.Join(dir, s.Log))
			t.Errorf("%+v\n%s", s, log)
		}
		seen[s.Variant+" on "+s.Point["nodes"]]++
	}
	for _, v := range run.Variants {
		for _, n := range []string{"1", "2"} {
			if got := seen[v.Label+" on "+n]; got != 2 {
				t.Errorf("%s on %s nodes has %d values, want 2", v.Label, n, got)
			}
		}
	}
	clean(t)
}
