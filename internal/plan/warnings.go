package plan

import (
	"fmt"
	"strings"

	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// hostWarnings warns of properties of the host that will disturb the VMs.
func (m *maker) hostWarnings(r *capacity, vms []*VM) {
	h := r.host
	m.kindWarnings(h, vms)
	for _, l := range r.remote {
		m.warnings = append(m.warnings, fmt.Sprintf("%s: node %d has cores and no memory: VMs there have the memory of node %d, distance %d", h.Name, l.from, l.to, l.distance))
	}
	var bare []int
	for j := range r.nodes {
		if n := &r.nodes[j]; n.open && n.count(1) > 0 && h.Nodes[j].MemoryBytes == 0 {
			bare = append(bare, n.id)
		}
	}
	if len(bare) > 0 {
		m.notes = append(m.notes, fmt.Sprintf("%s %s of %s %s cores and no memory: no VM is put there, as all its memory would be remote", words.Plural(len(bare), "node", "nodes"), topology.FormatList(bare), h.Name, words.Plural(len(bare), "has", "have")))
	}
	need := 0
	for _, vm := range vms {
		need += vm.VCPUs
		for i := range vm.Devices {
			d := h.Device(vm.Devices[i].Address)
			if d == nil {
				continue
			}
			if d.Group < 0 {
				m.warnings = append(m.warnings, fmt.Sprintf("%s: %s has no IOMMU group: it cannot be passed through until the IOMMU is on (intel_iommu=on or the firmware's setting)", h.Name, d.Address))
			}
			for k := range h.Devices {
				if o := &h.Devices[k]; d.Group >= 0 && o.Group == d.Group && o.Address != d.Address {
					m.warnings = append(m.warnings, fmt.Sprintf("%s: %s shares IOMMU group %d with %s: both go to the VM or neither", h.Name, d.Address, d.Group, o.Address))
				}
			}
		}
	}
	if q := h.Limits.CPUQuota; q > 0 && float64(need) > q {
		m.warnings = append(m.warnings, fmt.Sprintf("%s: the job's cgroup allows %.3g CPUs of time for %d vCPUs: they will be stopped in every period", h.Name, q, need))
	}
}

// kindWarnings reports which kind of core the VMs use on a hybrid host.
func (m *maker) kindWarnings(h *topology.Host, vms []*VM) {
	if len(h.Kinds) < 2 || !m.pin {
		return
	}
	used := map[int]bool{}
	for _, vm := range vms {
		kinds := make([]int, len(h.Kinds))
		for _, pin := range vm.Pins {
			if c := h.CPU(pin[0]); c != nil {
				kinds[c.Kind]++
				used[c.Kind] = true
			}
		}
		var parts []string
		for k, n := range kinds {
			if n > 0 {
				parts = append(parts, fmt.Sprintf("%d on %s", n, h.Kinds[k]))
			}
		}
		if len(parts) > 1 {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: vCPUs of %s: %s: ranks on the slower ones hold up the others (placement.cores: any)", h.Name, vm.Name, strings.Join(parts, ", ")))
		}
	}
	for k := range used {
		if len(used) == 1 {
			m.notes = append(m.notes, fmt.Sprintf("%s has %s: all VMs run on %s; placement.cores: any would mix them", h.Name, strings.Join(h.Kinds, " and "), h.Kinds[k]))
		}
	}
}
