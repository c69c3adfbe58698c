package qemu

import (
	"fmt"

	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Advise returns the parts of a plan that QEMU cannot do well on its hosts.
func (d *driver) Advise(_ *spec.Cluster, p *plan.Plan, hosts []topology.Host) []string {
	var list []string
	for i := range p.VMs {
		vm := &p.VMs[i]
		need := lower.Of(vm).PhysBits
		for k := range hosts {
			if h := &hosts[k]; h.Name == vm.Host && need > h.PhysBits && h.PhysBits > 0 {
				list = append(list, fmt.Sprintf("%s: %s needs %d bits of physical addresses for memory and device windows, the CPU has %d", h.Name, vm.Name, need, h.PhysBits))
			}
		}
	}
	return list
}
