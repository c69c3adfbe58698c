package qemu

import (
	"strings"
	"testing"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// TestAdvise: a host whose CPU has narrower addresses than a VM needs is named.
func TestAdvise(t *testing.T) {
	p := &plan.Plan{VMs: []plan.VM{{Name: "vm0", Host: "h", MemoryBytes: 1 << 40}, {Name: "vm1", Host: "h", MemoryBytes: 1 << 30}}}
	d := &driver{}
	got := d.Advise(nil, p, []topology.Host{{Name: "other", PhysBits: 39}, {Name: "h", PhysBits: 40}})
	if len(got) != 1 || !strings.HasPrefix(got[0], "h: vm0 needs 41 bits of physical addresses") {
		t.Errorf("%q", got)
	}
	if got := d.Advise(nil, p, []topology.Host{{Name: "h", PhysBits: 46}}); got != nil {
		t.Errorf("%q", got)
	}
}

func TestAddressWidth(t *testing.T) {
	if err := (accelerator{Accel: host.KVM, PhysBits: 64}).Valid(); err == nil || !strings.Contains(err.Error(), "physical addresses of 64 bits") {
		t.Errorf("%v", err)
	}
}
