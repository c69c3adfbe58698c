package run

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/spec"
)

// suiteText is a suite whose program is a shell: its output depends on its parameters.
const suiteText = `version: 1
suite: t
experiments:
  - name: one
    title: One
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", -c, SCRIPT]
    sweep: {n: [1, 2]}
    timeout: 30s
    check: [{absent: WRONG, says: the answer is wrong}]
    output: [{metric: value, unit: s, better: down, kind: sweep, x: n, match: '^(?P<size>\d+) (?P<value>\S+)$'}]
`

func request(t *testing.T, script string, labels ...string) Request {
	t.Helper()
	quoted, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	s, err := suite.Parse("t.yaml", []byte(strings.Replace(suiteText, "SCRIPT", string(quoted), 1)))
	if err != nil {
		t.Fatal(err)
	}
	q := Request{Suites: []*suite.Suite{s}, Repetitions: 3, Warmup: 1}
	for _, l := range labels {
		q.Variants = append(q.Variants, Variant{Variant: record.Variant{Label: l, Kind: "native", Cores: 1}, MPI: mpi.Flavour{Name: "none"}, FirstMPI: true})
	}
	return q
}

func rec(q Request) *record.Run {
	r := &record.Run{Version: 1, ID: "t", Started: time.Now()}
	for _, v := range q.Variants {
		r.Variants = append(r.Variants, v.Variant)
	}
	return r
}

func start(t *testing.T, q Request) (Outcome, []record.Sample, error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	out, err := Start(context.Background(), dir, q, rec(q), Events{})
	if _, e := os.Stat(dir); e != nil {
		return out, nil, err
	}
	_, samples, notes, e := record.Load(dir)
	if e != nil || len(notes) > 0 {
		t.Fatal(e, notes)
	}
	return out, samples, err
}

func TestTurns(t *testing.T) {
	q := request(t, "echo 8 {n}.5; echo 16 3", "a", "b")
	out, samples, err := start(t, q)
	if err != nil || len(out.Failed) > 0 || out.Samples != 2*2*3*2 || len(samples) != 2*2*4*2 {
		t.Fatalf("%+v %v: %d samples", out, err, len(samples))
	}
	// A B A B at one point, then at the next; the first of each is a warm-up.
	var got []string
	for _, s := range samples {
		if s.Point["size"] == "8" {
			got = append(got, s.Variant+s.Point["n"]+map[bool]string{true: "w"}[s.Rep < 0])
		}
	}
	if want := "a1w b1w a1 b1 a1 b1 a1 b1 a2w b2w a2 b2 a2 b2 a2 b2"; strings.Join(got, " ") != want {
		t.Errorf("%s\nwant %s", strings.Join(got, " "), want)
	}
	if s := samples[len(samples)-2]; s.Value != 2.5 || s.Point["n"] != "2" || s.Seconds <= 0 || s.Log == "" {
		t.Errorf("%+v", s)
	}
}

// TestFailures: a failure is reported with its lines and its log, is not a result, and does not end the run.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"status":    {"echo broken >&2; exit 3", "failed: exit status 3"},
		"no values": {"echo nothing to see", "the output has no value"},
		"wrong":     {"echo 8 1; echo WRONG", "the answer is wrong"},
		"no number": {"echo 8 x", `has "x" as its value`},
	} {
		t.Run(name, func(t *testing.T) {
			out, samples, err := start(t, request(t, "if [ {n} = 2 ]; then echo 8 1; exit; fi; "+c.script, "a"))
			if err != nil || len(out.Failed) != giveUpAfter || out.Samples != 3 {
				t.Fatalf("%+v %v", out, err)
			}
			f := out.Failed[0]
			if !strings.Contains(f.Err.Error(), c.want) || f.Point != "n=1" {
				t.Errorf("%+v, want %q", f, c.want)
			}
			if text, err := os.ReadFile(f.Log); err != nil || len(text) == 0 {
				t.Errorf("no log: %v", err)
			}
			for _, s := range samples {
				if s.Point["n"] == "1" && (s.OK || s.Error == "") {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

func TestHang(t *testing.T) {
	q := request(t, "sleep 1000", "a")
	q.Suites[0].Experiments[0].Timeout = 200 * time.Millisecond
	out, _, err := start(t, q)
	if err != nil || len(out.Failed) == 0 || !strings.Contains(out.Failed[0].Err.Error(), "killed after 200ms") {
		t.Errorf("%+v %v", out, err)
	}
}

func TestMissingProgram(t *testing.T) {
	q := request(t, "echo 8 1", "a")
	q.Suites[0].Experiments[0].Programs[0].Find = []string{"no-such-program"}
	q.Suites[0].Experiments[0].Install = "apt-get install it"
	dir := filepath.Join(t.TempDir(), "run")
	_, err := Start(context.Background(), dir, q, rec(q), Events{})
	if err == nil || !strings.Contains(err.Error(), "t/one: ") || !strings.Contains(err.Error(), "apt-get install it") ||
		strings.Contains(err.Error(), "\n") {
		t.Errorf("not one line: %v", err)
	}
	// If another program can be run, a second line states how.
	other := request(t, "echo 8 1", "a").Suites[0].Experiments[0]
	other.Name = "two"
	q.Suites[0].Experiments = append(q.Suites[0].Experiments, other)
	_, err = Start(context.Background(), dir, q, rec(q), Events{})
	if err == nil || !strings.Contains(err.Error(), "t/one: ") ||
		!strings.HasSuffix(err.Error(), "\n--skip-missing leaves such experiments out") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
}

// TestResume: a run that was killed is resumed, and an incomplete step is measured again.
func TestResume(t *testing.T) {
	q := request(t, "echo 8 {n}; echo 16 {n}", "a", "b")
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(context.Background())
	out, err := Start(ctx, dir, q, rec(q), Events{Step: func(p Progress) {
		if p.Done == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || out.Dir != dir {
		t.Fatalf("%+v %v", out, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, record.SamplesFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"case":"t/one","variant":"b","rep":1,"value":7,"ok":true}` + "\n" + `{"case":"t/o`)
	f.Close()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	near, err := filepath.Rel(here, dir)
	if err != nil {
		t.Fatal(err)
	}
	// VMs mount the directory by its path, so a relative one is made absolute.
	if out, err = Resume(context.Background(), near, Events{}); err != nil || out.Dir != dir {
		t.Fatalf("%+v %v", out, err)
	}
	run, samples, notes, err := record.Load(dir)
	if err != nil || len(notes) > 0 || len(samples) != 2*2*4*2 || run.Ended.IsZero() {
		t.Fatalf("%d samples, %q, %v", len(samples), notes, err)
	}
	seen := map[string]bool{}
	for _, s := range samples {
		k := s.Variant + s.Point["n"] + s.Point["size"] + string(rune('a'+s.Rep+1))
		if seen[k] || s.Value == 7 {
			t.Errorf("%+v twice, or of the step that was cut short", s)
		}
		seen[k] = true
	}
	for _, damage := range []string{"", "{}", "[1"} {
		if err := os.WriteFile(filepath.Join(dir, requestFile), []byte(damage), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Resume(context.Background(), dir, Events{}); err == nil || !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("%q: %v", damage, err)
		}
	}
}

func TestLock(t *testing.T) {
	lockPaths = []string{filepath.Join(t.TempDir(), "lock")}
	l, err := TakeLock(context.Background(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TakeLock(context.Background(), false, nil); err == nil || !strings.Contains(err.Error(), "another benchmark runs on this machine (process ") {
		t.Errorf("%v", err)
	}
	got := make(chan error)
	told := make(chan string, 1)
	go func() {
		second, err := TakeLock(context.Background(), true, func(line string) { told <- line })
		if err == nil {
			second.Release()
		}
		got <- err
	}()
	<-told
	l.Release()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Fatal(err) // every Linux has it
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &folder{dir: "x", samples: full, progress: full, over: map[string]bool{}}
	err = f.add(step{}, []record.Sample{{Case: "a", Variant: "b"}}, progressLine{Took: 1})
	if err == nil || !strings.Contains(err.Error(), "make room and go on with nearmetal bench run --resume x") || f.over[step{}.key()] {
		t.Errorf("%v", err)
	}
}

// TestAbandon: a run that could not begin leaves nothing that looks like one.
func TestAbandon(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	f, err := create(dir, &Request{})
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if err := abandon(dir, unix.ENOSPC); err == nil || !strings.Contains(err.Error(), "begin again") {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

func TestVariants(t *testing.T) {
	c := &spec.Cluster{VMs: []spec.Group{{Count: 1, VCPUs: 44, Memory: 144 << 30, Devices: []spec.Device{{Type: "vf", Class: "ethernet", Count: 1}}}}}
	spec.Defaults(c)
	w := Wish{Native: true, Cores: []int{44}, VM: true, Ablate: []string{"hugepages", "vf"}, Spec: c, CPUs: make([]int, 48), MPI: []mpi.Flavour{{Name: "openmpi"}}}
	list, err := Variants(w)
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, v := range list {
		labels = append(labels, v.Label)
	}
	if got, want := strings.Join(labels, " "), "native.48 native.44 VM.44.144.RoCE.VF VM.44.144.RoCE.VF.no-hugepages VM.44.144.no-vf"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if list[2].KeptBack != 4 || list[2].Baseline != "native.48" || list[3].Spec.Placement.Pages != "ordinary" || list[2].Spec.Placement.Pages == "ordinary" || len(list[4].Spec.VMs[0].Devices) != 0 {
		t.Errorf("%+v", list)
	}
	w.MPI = []mpi.Flavour{{Name: "openmpi"}, {Name: "mpich"}}
	w.Cores, w.Ablate = nil, nil
	if list, err = Variants(w); err != nil || len(list) != 4 || list[2].Label != "native.48.mpich" || list[2].Baseline != "native.48.openmpi" || list[3].Baseline != "native.48.mpich" {
		t.Errorf("%+v %v", list, err)
	}
	for _, ablate := range []string{"huge", "vf", "region"} {
		none := spec.Size(0)
		d := &spec.Cluster{Region: spec.Region{Size: &none}, VMs: []spec.Group{{Count: 1}}}
		if _, err := Variants(Wish{Spec: d, Ablate: []string{ablate}, CPUs: []int{0}, MPI: w.MPI}); err == nil {
			t.Errorf("--ablate %s of VMs without it", ablate)
		}
	}
	if _, err := Variants(Wish{Cores: []int{9}, CPUs: []int{0}, MPI: w.MPI}); err == nil {
		t.Error("9 cores of 1")
	}
}

// TestVariantsOnHosts: for VMs on hosts reached by ssh, the label and the record describe one host, and programs have
// the cores of all. Programs that use no MPI do not run there.
func TestVariantsOnHosts(t *testing.T) {
	c := &spec.Cluster{VMs: []spec.Group{{Count: 4, Memory: 2 << 30}}, Placement: spec.Placement{Hosts: []string{"a", "b"}}}
	spec.Defaults(c)
	list, err := Variants(Wish{VM: true, Spec: c, Hosts: 2, VCPUs: 12, CPUs: make([]int, 8), MPI: []mpi.Flavour{{Name: "openmpi"}}})
	if err != nil {
		t.Fatal(err)
	}
	v := &list[0]
	if v.Label != "VM.6.4" || v.KeptBack != 2 || v.VMs != 2 || v.MemoryBytes != 4<<30 || v.total() != 12 || v.nodes() != 2 ||
		!strings.Contains(v.Description, "in 4 VMs with 12 vCPUs and 8192 MiB in all, shared out evenly over 2 hosts") {
		t.Errorf("%+v, %d cores, %d hosts", v, v.total(), v.nodes())
	}
	q := request(t, "echo 1 $0", "native.1")
	q.Variants = list
	r := &runner{request: q, record: rec(q)}
	if err := r.prepare(); err == nil || !strings.Contains(err.Error(), "uses no MPI") {
		t.Errorf("a program without MPI: %v", err)
	}
	e := &q.Suites[0].Experiments[0]
	e.Launch, e.Hosts = suite.LaunchPair, 2
	r = &runner{request: q, record: rec(q)}
	if err := r.prepare(); err != nil {
		t.Error(err)
	} else if inv, err := r.command(&r.exps[0], 0, 0); err != nil || filepath.Base(inv.words[0]) != "sh" {
		t.Errorf("%q, %v", inv.words, err)
	}
	e.Hosts = 3
	if err := (&runner{request: q, record: rec(q)}).prepare(); err == nil || !strings.Contains(err.Error(), "it runs on 3 hosts and this run has 2") {
		t.Errorf("%v", err)
	}
}

// TestSmaller: the smaller values of emulated VMs are reported, unless the user chose the value or none is emulated.
func TestSmaller(t *testing.T) {
	e := &suite.Experiment{Name: "one", Parameters: []suite.Parameter{
		{Name: "cells", Values: []string{"64"}, Quick: []string{"10"}, Emulated: []string{"4"}},
		{Name: "steps", Values: []string{"10"}, Emulated: []string{"10"}},
		{Name: "size", Values: []string{"8"}},
	}}
	native, vm := Variant{}, Variant{Variant: record.Variant{Emulated: true}}
	for _, c := range []struct {
		q    Request
		want string
	}{
		{Request{Variants: []Variant{native, vm}}, "cells 4 instead of 64"},
		{Request{Variants: []Variant{native, vm}, Quick: true}, "cells 4 instead of 10"},
		{Request{Variants: []Variant{native}}, ""},
		{Request{Variants: []Variant{vm}, Set: map[string][]string{"cells": {"7"}}}, ""},
		{Request{Variants: []Variant{vm}, Set: map[string][]string{"one.cells": {"7"}}}, ""},
	} {
		if got := c.q.smaller(e); got != c.want {
			t.Errorf("%+v: %q, want %q", c.q.Set, got, c.want)
		}
	}
}
