package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// perftest's server and client are in two VMs on two nodes, over soft RoCE; on one node it is refused, and so on a host
// without Slurm.
func TestPerftestOnNodes(t *testing.T) {
	defer clean(t)
	if _, err := exec.LookPath("ib_send_lat"); err != nil {
		t.Skip(err)
	}
	cmd := command(t, filepath.Join(bin, "nearmetal"), "-q", "bench", "run", "perftest/send_lat", "--nodes", "1,2", "--quick",
		"--repetitions", "1", "--warmup", "0", "--variants", "vm", "-f", "cluster.yaml", "--set", "sizes=-s 8", "--set", "gid=1",
		"--sbatch=--vms-per-node=1", "--sbatch=--vm-memory=384MiB", "--out", "run")
	file := "vms: [{count: 1, vcpus: 1, memory: 384MiB}]\nnetwork: {type: rxe}\nregion: {size: 0}\n"
	if err := os.WriteFile(filepath.Join(cmd.Dir, "cluster.yaml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	r := finish(t, cmd, "")
	refusal := "perftest/send_lat: it runs on 2 hosts and this run has 1: run it in Slurm jobs (--nodes 2)"
	if r.code != 1 || !strings.Contains(r.err, refusal) {
		t.Errorf("status %d, want 1 and %q\n%s", r.code, refusal, r.err)
	}
	dir := filepath.Join(cmd.Dir, "run")
	run, samples, _, err := record.Load(dir)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "nodes-2.out"))
		t.Fatalf("%v\n%s\n%s", err, log, r.err)
	}
	if len(run.Cases) != 1 || run.Cases[0].Hosts != 2 || len(samples) != 1 || !samples[0].OK || samples[0].Point["nodes"] != "2" || samples[0].Point["size"] != "8" {
		t.Errorf("%+v\n%+v", run.Cases, samples)
	}
	for _, s := range samples {
		log, _ := os.ReadFile(filepath.Join(dir, s.Log))
		if !strings.Contains(string(log), "rxe0") {
			t.Errorf("%s", log)
		}
	}
	if r := slurm(t, filepath.Join(bin, "nearmetal"), "bench", "run", "perftest/send_lat", "--variants", "native"); r.code != 1 || !strings.Contains(r.err, refusal) {
		t.Errorf("status %d: %s", r.code, r.err)
	}
}
