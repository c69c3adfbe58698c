package slurm

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

// withKernels puts nearmetal's kernels beside the program, which looks for them there.
func withKernels(t *testing.T) {
	t.Helper()
	kernels := filepath.Join(bin, "c/kernels")
	if err := os.Symlink(filepath.Join(build, "c/kernels"), kernels); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
}

// A job for each number of nodes, and one run of what they leave.
func TestBenchOnNodes(t *testing.T) {
	withKernels(t)
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

// Numbers of ranks that were asked for are those that run, also ones that the nodes do not divide, and too many are
// refused before anything runs.
func TestBenchRanks(t *testing.T) {
	withKernels(t)
	dir := filepath.Join(scratch(t), "run")
	bench := func(out, ranks string) result {
		return slurm(t, filepath.Join(bin, "nearmetal"), "-q", "bench", "run", "osu/allreduce", "--nodes", "2", "--quick",
			"--repetitions", "1", "--warmup", "0", "--variants", "native", "--set", "ranks="+ranks,
			"--set", "sizes=8", "--set", "iterations=20", "--out", out)
	}
	if r := bench(dir, "2,3"); r.code != 0 {
		log, _ := os.ReadFile(filepath.Join(dir, "nodes-2.out"))
		t.Fatalf("status %d\n%s\n%s", r.code, r.err, log)
	}
	_, samples, _, err := record.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, s := range samples {
		log, _ := os.ReadFile(filepath.Join(dir, s.Log))
		if !s.OK || strconv.Itoa(strings.Count(string(log), `"rank":`)) != s.Point["ranks"] {
			t.Errorf("%+v\n%s", s, log)
		}
		seen[s.Point["ranks"]]++
	}
	if len(seen) != 2 {
		t.Errorf("ranks %v", seen)
	}
	if r := bench(dir+"2", "4000"); r.code == 0 || !strings.Contains(r.err, "it takes 4000 cores and the job has at most") {
		t.Errorf("4000 ranks: status %d\n%s", r.code, r.err)
	}
	clean(t)
}

// VMs without a switch are in a job of their own, beside native programs there; all jobs make one run.
func TestBenchAblateOnNodes(t *testing.T) {
	if os.Getenv("NEARMETAL_SLURM_LONG") == "" {
		t.Skip("make test-slurm-long runs it: over a minute")
	}
	withKernels(t)
	dir := filepath.Join(scratch(t), "run")
	r := slurm(t, filepath.Join(bin, "nearmetal"), "-q", "bench", "run", "osu/latency", "--nodes", "1", "--quick",
		"--repetitions", "1", "--warmup", "0", "--variants", "native,vm", "--ablate", "pinning",
		"--set", "sizes=8", "--set", "iterations=20", "--out", dir)
	if r.code != 0 {
		logs, _ := filepath.Glob(filepath.Join(dir, "*.out"))
		for _, log := range logs {
			text, _ := os.ReadFile(log)
			t.Logf("%s:\n%s", log, text)
		}
		t.Errorf("status %d\n%s", r.code, r.err)
	}
	run, samples, _, err := record.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, s := range samples {
		if s.OK {
			seen[s.Variant]++
		}
	}
	for i, v := range run.Variants {
		if want := []int{2, 1, 1}[i]; seen[v.Label] != want {
			t.Errorf("%s has %d values, want %d", v.Label, seen[v.Label], want)
		}
	}
	if len(run.Variants) != 3 || run.Variants[2].Ablated[0] != "pinning" {
		t.Errorf("%+v", run.Variants)
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
	if r.code != 125 || !strings.Contains(r.err, refusal) {
		t.Errorf("status %d, want 125 and %q\n%s", r.code, refusal, r.err)
	}
	dir := filepath.Join(cmd.Dir, "run")
	run, samples, _, err := record.Load(dir)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "nodes-2.out"))
		t.Fatalf("%v\n%s\n%s", err, log, r.err)
	}
	// A case for each column of the program's listing; the deviation may lack.
	if len(run.Cases) < 2 || run.Cases[0].Hosts != 2 || len(samples) < len(run.Cases)-1 || len(samples) > len(run.Cases) {
		t.Errorf("%+v\n%+v", run.Cases, samples)
	}
	for _, s := range samples {
		if !s.OK || s.Point["nodes"] != "2" || s.Point["size"] != "8" {
			t.Errorf("%+v", s)
		}
		log, _ := os.ReadFile(filepath.Join(dir, s.Log))
		if !strings.Contains(string(log), "rxe0") {
			t.Errorf("%s", log)
		}
	}
	if r := slurm(t, filepath.Join(bin, "nearmetal"), "bench", "run", "perftest/send_lat", "--variants", "native"); r.code != 125 || !strings.Contains(r.err, refusal) {
		t.Errorf("status %d: %s", r.code, r.err)
	}
}
