package batch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

// TestMerge: jobs with different VMs make one run: each variant once, and native programs with the repetitions of all
// jobs.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	var jobs []job
	for i, label := range []string{"VM.4", "VM.4.no-region"} {
		j := job{nodes: 2, vm: VM{Label: label}, id: "7", dir: filepath.Join(dir, "nodes-2-"+label)}
		run := &record.Run{Version: record.Version, ID: "x", Cases: []record.Case{{Name: "osu/latency"}},
			Variants: []record.Variant{{Label: "native.4", Kind: "native"}, {Label: label, Kind: "vm"}}}
		var samples []record.Sample
		for rep := -1; rep < 2; rep++ {
			for _, v := range run.Variants {
				samples = append(samples, record.Sample{Case: "osu/latency", Variant: v.Label, Rep: rep, Value: float64(i), OK: true, Point: map[string]string{"nodes": "2"}})
			}
		}
		lines, err := record.Lines(samples)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(j.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(j.dir, record.SamplesFile), lines, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := record.SaveRun(j.dir, run); err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, j)
	}
	if err := merge(dir, jobs); err != nil {
		t.Fatal(err)
	}
	run, samples, notes, err := record.Load(dir)
	if err != nil || len(notes) > 0 || len(run.Variants) != 3 {
		t.Fatal(run, notes, err)
	}
	reps := map[string]map[int]bool{}
	for _, s := range samples {
		if s.Rep < 0 {
			continue
		}
		if reps[s.Variant] == nil {
			reps[s.Variant] = map[int]bool{}
		}
		reps[s.Variant][s.Rep] = true
	}
	for label, want := range map[string]int{"native.4": 4, "VM.4": 2, "VM.4.no-region": 2} {
		if len(reps[label]) != want {
			t.Errorf("%s has repetitions %v, want %d", label, reps[label], want)
		}
	}
}

// A job runs the command line of the one that submits it, without the flags that are only for that.
func TestJobWords(t *testing.T) {
	words := strings.Fields("bench run osu --nodes 2,4 --wait --out=dir --sbatch --partition=long --vms 2 --out dir --sbatch=-pX --wait=true --quick")
	if got := strings.Join(JobWords(words), " "); got != "bench run osu --vms 2 --quick" {
		t.Error(got)
	}
}

// Failed repetitions are findings, and any other failure of a job is an error. sbatch is a script that runs the job here.
func TestFindings(t *testing.T) {
	earlier, err := filepath.Abs("../record/testdata/latency")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for name, text := range map[string]string{
		"sbatch": "#!/bin/sh\necho 7\nfor script; do :; done\nexec sh \"$script\"\n",
		"job":    "#!/bin/sh\n# job STATUS EARLIER --in-job N --out DIR --wait\ncp -r \"$2\" \"$6\"\n[ $4 = 2 ] || exit 3\nexit $1\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for status, want := range map[int]bool{0: true, 3: true, 125: false} {
		q := Request{Dir: filepath.Join(t.TempDir(), "run"), Nodes: []int{2, 4}, Words: []string{"job", strconv.Itoa(status), earlier}, Findings: 3}
		err := Run(context.Background(), q, func(string) {})
		if errors.As(err, new(*Findings)) != want || !errors.As(err, new(*exec.ExitError)) {
			t.Errorf("jobs with the statuses %d and 3: %v", status, err)
		}
		if _, _, _, err := record.Load(q.Dir); err != nil {
			t.Errorf("the samples are not kept: %v", err)
		}
	}
}
