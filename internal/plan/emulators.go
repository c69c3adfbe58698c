package plan

import (
	"sort"

	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// emulators assigns CPUs to QEMU's other threads: reserved cores on the VM's nodes, else any reserved cores, else
// cores without a VM, those on the VM's nodes first. A sibling of a pinned vCPU's CPU is never used.
func (m *maker) emulators(r *capacity, vms []*VM, pinned [][]core, a *attempt) {
	taken := map[int]bool{}
	for _, list := range pinned {
		for _, c := range list {
			taken[c.id] = true
		}
	}
	var spare []int
	usable := 0
	for j := range r.nodes {
		if r.nodes[j].open && r.nodes[j].total > 0 {
			usable++
		}
		for g := range r.nodes[j].groups {
			for _, c := range r.nodes[j].groups[g].cores {
				if !taken[c.id] {
					spare = append(spare, c.cpus...)
				}
			}
		}
	}
	spare = append(spare, r.others...)
	if a.isolated {
		spare = nil
		for i := range r.host.CPUs {
			if c := &r.host.CPUs[i]; c.Usable() && !c.Isolated {
				spare = append(spare, c.ID)
			}
		}
	}
	set, from := spare, "which no VM has"
	switch {
	case len(r.reserved) > 0:
		set, from = r.reserved, "reserved for the host"
	case a.isolated:
		from = "which are not isolated"
	}
	set = append([]int(nil), set...)
	sort.Ints(set)
	on := make([]bool, len(r.nodes))
	for _, vm := range vms {
		for j := range on {
			on[j] = false
		}
		for _, pin := range vm.Pins {
			on[r.node(pin[0])] = true
		}
		for _, id := range set {
			if n := r.node(id); n >= 0 && on[n] {
				vm.EmulatorCPUs = append(vm.EmulatorCPUs, id)
			}
		}
		switch {
		case len(set) == 0:
			vm.reason("QEMU's own threads run where the host's scheduler puts them, also on the vCPUs' CPUs: no core is left; reserve: %d would keep one%s", usable, map[bool]string{true: " on each node"}[usable > 1])
			continue
		case len(vm.EmulatorCPUs) == 0:
			vm.EmulatorCPUs = append([]int(nil), set...)
		}
		vm.reason("QEMU's own threads on %s %s, %s", words.Plural(len(vm.EmulatorCPUs), "CPU", "CPUs"), topology.FormatList(vm.EmulatorCPUs), from)
	}
}
