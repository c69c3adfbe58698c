package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

// A run of a VM that nearmetal did not make is added to one of ours, once; a run without such a VM is refused.
func TestImportRuns(t *testing.T) {
	write := func(name string, v record.Variant) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		run := &record.Run{Version: record.Version, ID: name, Variants: []record.Variant{v}, Cases: []record.Case{{Name: "osu/bw", Unit: "MB/s", X: "size"}}}
		if err := appendSamples(dir, []record.Sample{{Case: "osu/bw", Variant: v.Label, Value: 3, OK: true}}); err != nil {
			t.Fatal(err)
		}
		if err := record.SaveRun(dir, run); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ours := write("ours", record.Variant{Label: "native.2", Kind: "native"})
	cloud := write("cloud", record.Variant{Label: "EC2", Kind: "vm", Foreign: true, Host: &record.Host{Name: "there"}})
	cmd := newBenchImportCommand()
	out := &strings.Builder{}
	cmd.SetOut(out)
	if err := importRuns(cmd, ours, []string{cloud}); err != nil || !strings.Contains(out.String(), "1 value of EC2") {
		t.Fatalf("%v, %q", err, out)
	}
	run, samples, _, err := record.Load(ours)
	if err != nil || len(run.Variants) != 2 || run.Variants[1].Host.Name != "there" || len(samples) != 2 {
		t.Fatalf("%+v %v %v", run, samples, err)
	}
	if err := importRuns(cmd, ours, []string{cloud}); err == nil || !strings.Contains(err.Error(), "a variant EC2 already") {
		t.Errorf("twice: %v", err)
	}
	if err := importRuns(cmd, cloud, []string{ours}); err == nil || !strings.Contains(err.Error(), "--kind vm") && !strings.Contains(err.Error(), "already") {
		t.Errorf("a native run: %v", err)
	}
}

// Tables of several OSU tests in one file keep their names, a failed validation is counted as failed, and a title that
// several programs print is said.
func TestImportOSU(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "osu.txt")
	text := "[1,0]<stdout>:# OSU MPI Latency Test v7.4\n[1,0]<stdout>:# Size       Avg Latency(us)        Validation\n" +
		"[1,0]<stdout>:8                       1.10              Pass\n[1,0]<stdout>:16                      1.20              Fail\n" +
		"# OSU MPI All-to-Allv Personalized Exchange Latency Test v7.4\n# Size       Avg Latency(us)\n8                      40.00\n" +
		"# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n8  40.00\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := newBenchImportCommand()
	out, notes := &strings.Builder{}, &strings.Builder{}
	cmd.SetOut(out)
	cmd.SetErr(notes)
	cmd.SetArgs([]string{file, "--out", filepath.Join(dir, "run"), "--variant", "native"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(out.String(), "4 values of native, 1 of them failed\n") || !strings.Contains(notes.String(), "osu_bw, osu_bw_fan_in or osu_bw_fan_out") {
		t.Errorf("%q %q", out, notes)
	}
	_, samples, _, err := record.Load(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range samples {
		got = append(got, fmt.Sprintf("%s %s %g %t", s.Case, s.Point["size"], s.Value, s.OK))
	}
	if want := "osu/latency 8 1.1 true|osu/latency 16 0 false|osu/alltoallv 8 40 true|osu/bw 8 40 true"; strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}
