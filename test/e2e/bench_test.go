package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	benchrecord "nearmetal/internal/bench/record"
)

// benchRun runs `nearmetal bench run` with its results in a folder of the test's, and reads them.
func benchRun(t *testing.T, code int, args ...string) (result, *benchrecord.Run, []benchrecord.Sample) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "results")
	args = append([]string{"-q", "bench", "run"}, append(args, "--out", dir, "--wait")...)
	r := nm(t, args...).want(t, code)
	run, samples, notes, err := benchrecord.Load(dir)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes, r.err)
	}
	return r, run, samples
}

// suiteFile writes a suite whose only experiment runs sh with a script.
func suiteFile(t *testing.T, script, more string) string {
	t.Helper()
	quoted, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "own.yaml")
	text := `version: 1
suite: own
experiments:
  - name: one
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", -c, ` + string(quoted) + `]
    output: [{metric: value, unit: s, better: down, match: '^value (?P<value>\S+)$'}]
` + more
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// The same program natively, in VMs, and in VMs without their region; results are right
// everywhere, and what is emulated says so.
func TestBenchInVMs(t *testing.T) {
	needs(t, "mpirun.openmpi")
	_, run, samples := benchRun(t, 0, "osu/latency", "--quick", "--repetitions", "1", "--warmup", "0",
		"--memory", "768MiB", "--accel", "tcg", "--ablate", "region", "--set", "sizes=8:16", "--set", "iterations=20")
	if len(run.Variants) != 3 || run.Plan == nil || run.Checks == nil || run.Ended.IsZero() {
		t.Errorf("%+v", run.Variants)
	}
	values := map[string]int{}
	for _, s := range samples {
		if !s.OK || s.Value <= 0 {
			t.Errorf("%+v", s)
		}
		values[s.Variant]++
	}
	for _, v := range run.Variants {
		if values[v.Label] != 2 || v.Emulated != (v.Kind == "vm") {
			t.Errorf("%+v has %d values", v, values[v.Label])
		}
	}
	if len(run.Variants[2].Ablated) != 1 || run.Variants[2].Baseline != run.Variants[0].Label {
		t.Errorf("%+v", run.Variants[2])
	}
}

// A program that hangs in a VM is killed at its bound, with the VM.
func TestBenchHang(t *testing.T) {
	file := suiteFile(t, "echo begun; exec sleep 1000", "    timeout: 1s\n")
	before := leftovers() // the cluster that tests share
	r, _, samples := benchRun(t, 3, "own", "--suite", file, "--quick", "--repetitions", "1", "--warmup", "0",
		"--variants", "vm", "--vms", "1", "--memory", "768MiB", "--accel", "tcg")
	if len(samples) != 1 || samples[0].OK || !strings.Contains(r.err, "killed after 10s") || !strings.Contains(r.err, "| begun") {
		t.Errorf("%+v\n%s", samples, r.err)
	}
	until(t, "nothing is left of the VM", func() bool { return leftovers() == before })
}

// A run that was killed goes on; a second one at the same time is refused, and a wrong one named.
func TestBenchAgain(t *testing.T) {
	dir := t.TempDir()
	flag := filepath.Join(dir, "begun")
	file := suiteFile(t, "echo value 1; test -e "+flag+" && exit; touch "+flag+"; exec sleep 1000", "")
	out := filepath.Join(dir, "results")
	first := command(t, "-q", "bench", "run", "own", "--suite", file, "--variants", "native", "--warmup", "0", "--out", out, "--wait")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the first repetition begins", func() bool { _, err := os.Stat(flag); return err == nil })
	oneLine(t, nm(t, "bench", "run", "own", "--suite", file, "--variants", "native").want(t, 125, "another benchmark runs on this machine"))
	// What is wrong with a request is said at once, and not when the other has ended.
	oneLine(t, nm(t, "bench", "run", "wrf", "--variants", "native", "--wait").want(t, 125, "build WRF and set WRF_RUN"))
	oneLine(t, nm(t, "bench", "run", "--resume", "/no/such", "--wait").want(t, 125, "is not a directory of a run that can go on"))
	first.Process.Signal(syscall.SIGKILL)
	first.Wait()
	nm(t, "-q", "bench", "run", "--resume", out, "--wait").want(t, 0)
	_, samples, notes, err := benchrecord.Load(out)
	if err != nil || len(notes) > 0 || len(samples) != 5 {
		t.Errorf("%d samples %q %v", len(samples), notes, err)
	}
	nm(t, "bench", "compare", out, out).want(t, 0, "1 point the same")
}

func TestBenchBadInput(t *testing.T) {
	file := suiteFile(t, "echo nothing", "")
	r := nm(t, "-q", "bench", "run", "own", "--suite", file, "--variants", "native", "--wait").want(t, 3, "the output has no value", "| nothing", "logs/own-one-")
	if !strings.Contains(r.err, "nearmetal: own/one native.") {
		t.Errorf("%s", r.err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run"}, 2, "at least one SUITE"},
		{[]string{"run", "osv"}, 2, `there is no suite "osv": did you mean osu?`},
		{[]string{"run", "osu", "--variants", "nativ"}, 2, `"nativ" is neither native nor vm`},
		{[]string{"run", "osu", "--ablate", "hugepage"}, 2, "did you mean hugepages?"},
		{[]string{"run", "osu", "--ablate", "vf"}, 2, "the VMs have no device passed through"},
		{[]string{"run", "osu", "--repetitions", "2"}, 2, "take at least 5"},
		{[]string{"run", "osu", "--cores", "100000", "--variants", "native"}, 2, "this run may use"},
		{[]string{"run", "osu", "--mpi", "openmpy", "--variants", "native"}, 125, "did you mean openmpi?"},
		{[]string{"run", "wrf", "--variants", "native"}, 125, "build WRF and set WRF_RUN"},
		{[]string{"run", "--resume", "/no/such"}, 125, "is not a directory of a run that can go on"},
		{[]string{"show", "osu/x"}, 2, "there is no experiment of osu"},
		{[]string{"compare", "/etc", "/etc"}, 125, "is not a directory of a benchmark run"},
		{[]string{"import", "/etc/hostname", "--out", filepath.Join(t.TempDir(), "x"), "--variant", "a"}, 125, "neither an output of the OSU"},
	} {
		oneLine(t, nm(t, append([]string{"bench"}, c.args...)...).want(t, c.code, c.want))
	}
}

// A program that is built for one of two MPIs runs over that one, and a line says so; for
// neither, the run is refused.
func TestBenchOtherMPI(t *testing.T) {
	needs(t, "mpirun.openmpi", "mpirun.mpich")
	library := "openmpi" // that of build/c/kernels
	path := filepath.Join(t.TempDir(), "own.yaml")
	text := `version: 1
suite: own
experiments:
  - name: one
    programs: [{name: theirs, find: ["` + filepath.Join(kernels, "nm_latency") + `"]}]
    launch: mpi
    ranks: "2"
    command: ["{program}", --sizes, "8:8", --iterations, "20"]
    output: [{metric: latency, unit: us, better: down, match: '^\s*8\s+\d+\s+(?P<value>[\d.]+)'}]
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"own", "--suite", path, "--quick", "--repetitions", "1", "--warmup", "0", "--variants", "native", "--mpi"}
	r, run, samples := benchRun(t, 0, append(args, library+",mpich")...)
	if want := "own/one: left out: " + filepath.Join(kernels, "nm_latency") + " is built for Open MPI, not for MPICH"; !strings.Contains(r.err, want) {
		t.Errorf("%q is missing in %q", want, r.err)
	}
	if len(run.Variants) != 2 || len(samples) != 1 || !samples[0].OK {
		t.Errorf("%+v\n%+v", run.Variants, samples)
	}
	nm(t, append([]string{"-q", "bench", "run"}, append(args, "mpich", "--out", filepath.Join(t.TempDir(), "results"))...)...).
		want(t, 125, "none of its programs is there")
}

// MPICH over the provider, by its launcher's path: natively the ranks share memory of their
// host, in VMs the region, and the run keeps that, and what they sent to each other in a warm-up, which the report shows.
func TestBenchMPICHProvider(t *testing.T) {
	l := libraries(t)[3]
	needs(t, l.mpirun)
	path := filepath.Join(t.TempDir(), "own.yaml")
	text := `version: 1
suite: own
experiments:
  - name: one
    programs: [{name: theirs, find: ["` + kernel(t, l.mpicc, "nm_latency") + `"]}]
    launch: mpi
    ranks: "2"
    spread: true
    command: ["{program}", --sizes, "8:8", --iterations, "20"]
    output: [{metric: latency, unit: us, better: down, match: '^\s*8\s+\d+\s+(?P<value>[\d.]+)'}]
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r, run, samples := benchRun(t, 0, "own", "--suite", path, "--quick", "--repetitions", "1", "--warmup", "0", "--traffic",
		"--memory", "768MiB", "--accel", "tcg", "--mpi", l.mpirun+"+ivshmem")
	samples = slices.DeleteFunc(samples, func(s benchrecord.Sample) bool { return s.Rep < 0 })
	if len(samples) != 2 || !samples[0].OK || !samples[1].OK || len(run.Channels) != 2 || len(run.Traffic) != 2 {
		t.Fatalf("%+v\n%+v\n%+v\n%s", samples, run.Channels, run.Traffic, r.err)
	}
	for i, c := range run.Traffic {
		host := "vm1"
		if run.Variants[i].Kind == "native" {
			host, _ = os.Hostname()
		}
		if c.Check() != nil || len(c.Ranks) != 2 || c.Ranks[1].VM != host || len(c.Pairs) < 2 || c.Pairs[0].Channel != "region" || c.Pairs[0].Messages < 20 {
			t.Errorf("%s: %+v", run.Variants[i].Label, c)
		}
	}
	nm(t, "report", strings.TrimSpace(r.out)).want(t, 0, "What ranks sent: ", "channel  messages")
	for i, c := range run.Channels {
		vm := run.Variants[i].Kind == "vm"
		if c.Ranks != 2 || c.OtherVMs == 2 != vm || c.SameVM == 2 == vm || c.Network != 0 {
			t.Errorf("%s: %+v", run.Variants[i].Label, c)
		}
	}
}
