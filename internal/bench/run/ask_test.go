package run

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// TestNew: options become a request and its record; only this machine is described.
func TestNew(t *testing.T) {
	q, r, notice, err := New(context.Background(), Options{
		Variants: []string{"native"}, Quick: true, Warmup: 1, Set: []string{"size=8,16", "latency.class=S"}, PeakPerCore: 2,
		Version: "1.2 abc", Command: []string{"nearmetal", "bench", "run", "osu"},
	})
	if err != nil || notice != "" {
		t.Fatalf("%q, %v", notice, err)
	}
	if q.Repetitions != 3 || q.Warmup != 1 || !q.Quick || q.PeakPerCore != 2 || !slices.Equal(q.Set["size"], []string{"8", "16"}) || !slices.Equal(q.Set["latency.class"], []string{"S"}) {
		t.Errorf("%+v", q)
	}
	if len(q.Variants) != 1 || q.Variants[0].Kind != "native" || len(r.Variants) != 1 || r.Variants[0].Label != q.Variants[0].Label {
		t.Errorf("variants %+v, recorded %+v", q.Variants, r.Variants)
	}
	if r.Version != record.Version || r.Nearmetal != "1.2 abc" || r.Host.Versions["nearmetal"] != "1.2 abc" || r.Host.Cores < 1 || r.Checks == nil || r.Command[2] != "run" || r.Started.IsZero() {
		t.Errorf("%+v", r)
	}
}

// TestNewForeign: a VM that nearmetal did not make is the only variant, with this machine's description and checks.
func TestNewForeign(t *testing.T) {
	q, r, _, err := New(context.Background(), Options{Variants: []string{"native", "vm"}, Label: "EC2.large", Kind: "vm"})
	if err != nil || len(q.Variants) != 1 {
		t.Fatalf("%+v, %v", q.Variants, err)
	}
	v := q.Variants[0]
	if v.Label != "EC2.large" || v.Kind != "vm" || !v.Foreign || v.Host != &r.Host || v.Checks == nil || !strings.HasPrefix(v.Description, "in a VM that nearmetal did not make, on ") {
		t.Errorf("%+v", v)
	}
	if q.Repetitions != MinRepetitions {
		t.Errorf("%d repetitions", q.Repetitions)
	}
}

// TestNewWrong: invalid options are a usage error, each with the faulty flag.
func TestNewWrong(t *testing.T) {
	native := []string{"native"}
	hosts := func() (*spec.Cluster, error) {
		return &spec.Cluster{Placement: spec.Placement{Hosts: []string{"a", "b"}}}, nil
	}
	for want, o := range map[string]Options{
		`--variants: "both" is neither`:             {Variants: []string{"both"}},
		"no variant is asked for":                   {},
		"--cores 1000000: this run":                 {Variants: native, Cores: []int{1000000}},
		"--variant LABEL goes with --kind vm":       {Variants: native, Label: "EC2"},
		"--kind vm needs --variant":                 {Variants: native, Kind: "vm"},
		"leave out --cores and --ablate":            {Variants: native, Kind: "vm", Label: "EC2", Cores: []int{1}},
		"this VM: leave out --variants":             {Variants: native, Kind: "vm", Label: "EC2", VariantsChosen: true},
		`--set: "size" is not`:                      {Variants: native, Set: []string{"size"}},
		`--set: "size=" is not`:                     {Variants: native, Set: []string{"size="}},
		"--time: a time such as 4h":                 {Variants: native, Time: time.Hour, Repetitions: 5, RepetitionsChosen: true},
		"--repetitions: 2 are too few":              {Variants: native, Repetitions: 2},
		"--repetitions and --warmup: between":       {Variants: native, Quick: true, Warmup: -1},
		"a job's hosts are Slurm's choice":          {Variants: []string{"vm"}, VMs: hosts, InJobs: true},
		"native programs would run on this machine": {Variants: []string{"native", "vm"}, VariantsChosen: true, VMs: hosts},
	} {
		_, r, _, err := New(context.Background(), o)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), want) || r != nil {
			t.Errorf("%v, %+v, want %q", err, r, want)
		}
	}
	gone := errors.New("no such file")
	_, _, _, err := New(context.Background(), Options{Variants: []string{"vm"}, VMs: func() (*spec.Cluster, error) { return nil, gone }})
	if err != gone {
		t.Errorf("%v", err)
	}
}

// TestOverHosts: with VMs on hosts reached by ssh the record has the first host with VMs, and all of them have the
// same share.
func TestOverHosts(t *testing.T) {
	hosts := []topology.Host{{Name: "idle"}, {Name: "a", Model: "x", CPUs: threads(8)}, {Name: "b", CPUs: threads(6)}}
	vm := func(host string) plan.VM { return plan.VM{Host: host, VCPUs: 3, MemoryBytes: 1 << 30} }
	w := Wish{Native: true, Spec: &spec.Cluster{Accel: "tcg"}, Host: record.Host{Name: "here", Versions: map[string]string{"k": "1"}}}
	notice, names, err := w.overHosts(&plan.Plan{VMs: []plan.VM{vm("a"), vm("b")}}, hosts)
	if err != nil || !slices.Equal(names, []string{"a", "b"}) || !strings.Contains(notice, "emulate") {
		t.Errorf("%q, %q, %v", notice, names, err)
	}
	if w.Host.Name != "a" || w.Host.Versions["k"] != "1" || w.Hosts != 2 || w.VCPUs != 6 || len(w.CPUs) != 6 || !w.Emulated {
		t.Errorf("%+v", w)
	}
	_, _, err = (&Wish{Spec: &spec.Cluster{}}).overHosts(&plan.Plan{VMs: []plan.VM{vm("a"), vm("a"), vm("b")}}, hosts)
	var usage *UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "a and b do not get the same VMs") {
		t.Errorf("%v", err)
	}
}

// threads returns n usable CPUs with a core each.
func threads(n int) []topology.CPU {
	list := make([]topology.CPU, n)
	for i := range list {
		list[i] = topology.CPU{ID: i, Core: i, Online: true, Allowed: true}
	}
	return list
}

func TestOnly(t *testing.T) {
	vm := func(label string, without ...string) Variant {
		return Variant{Spec: &spec.Cluster{}, Variant: record.Variant{Label: label, Ablated: without}}
	}
	list := []Variant{{Variant: record.Variant{Label: "native.2"}}, vm("VM"), vm("VM.no-region.openmpi", "region"), vm("VM.no-region.mpich", "region")}
	var labels []string
	for _, v := range Only(list, "VM.no-region.mpich") {
		labels = append(labels, v.Label)
	}
	if got := strings.Join(labels, " "); got != "native.2 VM.no-region.openmpi VM.no-region.mpich" {
		t.Error(got)
	}
}
