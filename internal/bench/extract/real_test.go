package extract_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/bench/extract"
	"nearmetal/internal/bench/suite"
)

// TestRealOutputs: recorded outputs are parsed and accepted by the shipped suites: those of the last of an
// experiment's programs (testdata/SUITE-EXPERIMENT.log), and those of the first, which users have
// (SUITE-EXPERIMENT.user.log), if there are several.
func TestRealOutputs(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.log")
	if err != nil || len(files) == 0 {
		t.Fatal("no outputs", err)
	}
	want := map[string]struct {
		values int
		first  float64
	}{
		"lammps/eam": {2, 2.415}, "lammps/eam.user": {2, 0}, "gromacs/water": {1, 0}, "stream/triad": {4, 0}, "osu/latency": {8, 0}, "osu/bw": {7, 0},
		"osu/mbw_mr": {14, 0}, "osu/barrier": {1, 0}, "osu/allreduce": {5, 0},
		"osu/latency.user": {24, 0.39}, "osu/mbw_mr.user": {46, 5.94}, "npb/cg": {2, 0}, "npb/bt-omp": {2, 0.48},
		"gromacs/benchpep": {1, 17.457}, "perftest/send_lat": {7*23 - 3, 3994.7}, "perftest/read_bw": {3 * 23, 0},
		"graph500/bfs": {2, 0}, "openfoam/motorbike": {1, 1.83},
		"wrf/conus": {1, 1.933355}, "throughput/lammps": {1, 7349.3}, "perftest/write_bw": {3 * 23, 0},
	}
	for _, file := range files {
		name, experiment, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".log"), "-")
		experiment, first := strings.CutSuffix(experiment, ".user")
		key := name + "/" + experiment
		if first {
			key += ".user"
		}
		picked, err := suite.Select(list, []string{name + "/" + experiment})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		e := picked[0].Experiments[0]
		p := e.Programs[len(e.Programs)-1]
		if first {
			p = e.Programs[0]
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := extract.Check(text, p.Check); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		values, err := extract.Values(text, p.Output, extract.Context{Peak: 100})
		if err != nil || len(values) == 0 {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if w, ok := want[key]; ok && (len(values) != w.values || w.first != 0 && values[0].Value != w.first) {
			t.Errorf("%s: %+v, want %+v", file, values, w)
		}
		// A truncated result is rejected.
		if half := text[:len(text)/3]; extract.Check(half, p.Check) == nil {
			if v, err := extract.Values(half, p.Output, extract.Context{Peak: 100}); err == nil && len(v) >= len(values) {
				t.Errorf("%s: a third of the output has as many values", file)
			}
		}
	}
}

// TestOtherPrograms: the output of another program, or one with wrong data, is not a result of an experiment: the
// whole title is compared, and a failed validation is detected.
func TestOtherPrograms(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"osu", "perftest"} {
		picked, err := suite.Select(list, []string{s})
		if err != nil {
			t.Fatal(err)
		}
		logs := map[string][]byte{}
		for i := range picked[0].Experiments {
			name := picked[0].Experiments[i].Name
			for _, form := range []string{"testdata/%s-%s.user.log", "testdata/%s-%s.log"} {
				if text, err := os.ReadFile(fmt.Sprintf(form, s, name)); err == nil && logs[name] == nil {
					logs[name] = text
				}
			}
			if logs[name] == nil {
				t.Errorf("%s/%s has no output", s, name)
			}
		}
		for i := range picked[0].Experiments {
			e := &picked[0].Experiments[i]
			for name, text := range logs {
				if err := extract.Check(text, e.Programs[0].Check); (err == nil) != (name == e.Name) {
					t.Errorf("%s/%s of the output of %s: %v", s, e.Name, name, err)
				}
			}
			if s == "osu" {
				wrong := string(logs[e.Name]) + "64                     1.10              Fail\n"
				if extract.Check([]byte(wrong), e.Programs[0].Check) == nil {
					t.Errorf("osu/%s: a failed validation is a result", e.Name)
				}
			}
		}
	}
}
