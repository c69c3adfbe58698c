package job

import (
	"testing"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
)

// TestRegionRanks: twice the vCPUs of the host that has the most, at least 16.
func TestRegionRanks(t *testing.T) {
	vms := func(host string, vcpus ...int) (list []state.VMRecord) {
		for _, n := range vcpus {
			list = append(list, state.VMRecord{Host: host, VCPUs: n})
		}
		return list
	}
	for _, c := range []struct {
		name string
		r    state.Record
		want int
	}{
		{"no region", state.Record{Plan: &plan.Plan{}, VMs: vms("", 64, 64)}, 0},
		{"small VMs", state.Record{VMs: vms("", 2, 2)}, 16},
		{"one host", state.Record{VMs: vms("", 32, 24)}, 112},
		{"hosts by ssh", state.Record{VMs: append(vms("a", 32, 32), vms("b", 16, 32)...)}, 128},
		{"hosts of a job", state.Record{VMs: vms("", 8, 8), Across: state.Across{Overlay: []state.RecordHost{{Self: true}, {VMs: vms("", 16, 16)}}}}, 64},
	} {
		if c.r.Plan == nil {
			c.r.Plan = &plan.Plan{Region: &plan.Region{}}
		}
		if got := regionRanks(&c.r); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
