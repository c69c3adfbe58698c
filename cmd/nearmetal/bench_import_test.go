package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

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
