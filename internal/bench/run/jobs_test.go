package run

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/batch"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/spec"
)

// A job has one kind of VMs: a value of --vm, the cluster file, or for VMs that lack something a file of their own.
func TestJobVMs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	vm := func(label string, ablated ...string) Variant {
		return Variant{Variant: record.Variant{Label: label, VMs: 2, MemoryBytes: 4 << 30, Ablated: ablated}, Spec: &spec.Cluster{Accel: "kvm"}, FirstMPI: true}
	}
	other := vm("vm.mpich")
	other.FirstMPI = false
	list := []Variant{{Variant: record.Variant{Label: "native"}, FirstMPI: true}, vm("vm"), other}
	got, err := JobVMs(dir, "", list)
	if want := []batch.VM{{Label: "vm", Value: "vms=2,memory=2048MiB"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = JobVMs(dir, "/site/cluster.yaml", list)
	if want := []batch.VM{{Label: "vm", Value: "/site/cluster.yaml"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the run's directory was made for nothing")
	}
	got, err = JobVMs(dir, "", []Variant{vm("vm"), vm("vm.no-vnuma", "vnuma")})
	own := filepath.Join(dir, "vm.no-vnuma.yaml")
	if err != nil || len(got) != 2 || got[1].Value != own {
		t.Fatalf("%v, %v", got, err)
	}
	if text, err := os.ReadFile(own); err != nil || !strings.Contains(string(text), "accel: kvm") {
		t.Errorf("%s, %v", text, err)
	}
}
