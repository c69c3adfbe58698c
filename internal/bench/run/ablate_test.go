package run

import (
	"slices"
	"testing"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// ablatable describes two VMs on a host of eight NUMA nodes with two InfiniBand cards, each larger than a node, with
// all tuning.
const ablatable = `version: 1
accel: kvm
vms: [{count: 2, vcpus: 24, memory: 48GiB, devices: [{type: vf, class: infiniband}]}]
placement: {pages: 1GiB}
`

// TestAblatedPlans: each switch that --ablate turns off has its own effect on the VMs' plan, and no other.
func TestAblatedPlans(t *testing.T) {
	host, err := topology.Open("../../../test/topology/epyc-nps4.machine")
	if err != nil {
		t.Fatal(err)
	}
	c, err := spec.Parse("ablatable.yaml", []byte(ablatable))
	if err != nil {
		t.Fatal(err)
	}
	spec.Defaults(c)
	list, err := Variants(Wish{VM: true, Ablate: append(slices.Clone(Switches), "region+pinning", Untuned), Spec: c, CPUs: make([]int, 64), MPI: []mpi.Flavour{{Name: "openmpi"}}})
	if err != nil {
		t.Fatal(err)
	}
	labels := []string{"VM.48.96.IB.VF", "VM.48.96.IB.VF.no-hugepages", "VM.48.96.IB.VF.no-pinning", "VM.48.96.IB.VF.no-vnuma",
		"VM.48.96.IB.VF.no-locality", "VM.48.96.IB.VF.no-region", "VM.48.96.no-vf",
		"VM.48.96.IB.VF.no-region-pinning", "VM.48.96.IB.VF.untuned"}
	// The effect of each switch on a plan.
	has := map[string]func(p *plan.Plan) bool{
		"hugepages": func(p *plan.Plan) bool { return p.VMs[0].Nodes[0].PageBytes == 1<<30 },
		"pinning":   func(p *plan.Plan) bool { return len(p.VMs[0].Pins) == 24 && len(p.VMs[0].Pins[0]) == 1 },
		"vnuma":     func(p *plan.Plan) bool { return len(p.VMs[0].Nodes) > 1 },
		"region":    func(p *plan.Plan) bool { return p.Region != nil },
		"vf":        func(p *plan.Plan) bool { return len(p.VMs[0].Devices) == 1 && len(p.VMs[1].Devices) == 1 },
	}
	nodes := 0 // number of nodes of a VM with everything
	for i, v := range list {
		if v.Label != labels[i] {
			t.Errorf("%s, want %s", v.Label, labels[i])
		}
		p, err := plan.Make(v.Spec, []topology.Host{*host}, plan.Ledger{})
		if err != nil {
			t.Errorf("%s: %v", v.Label, err)
			continue
		}
		for name, is := range has {
			if want := !slices.Contains(v.Ablated, name); is(p) != want {
				t.Errorf("%s: %s is %v", v.Label, name, !want)
			}
		}
		if i == 0 {
			nodes = len(p.VMs[0].Nodes)
		} else if v.Ablated[0] == "locality" && len(p.VMs[0].Nodes) <= nodes {
			t.Errorf("%s: a VM is on %d nodes, as with locality", v.Label, len(p.VMs[0].Nodes))
		}
	}
}
