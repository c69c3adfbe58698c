package domain

import (
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/plan"
)

// Backing is what the memory of a VM comes from: huge pages of the cells that the plan says, not merged with
// others', and taken before the guest runs. A pool that is too small must be found out then, not by a SIGBUS
// in the middle of a job.
func Backing(vm *plan.VM) *libvirtxml.DomainMemoryBacking {
	b := &libvirtxml.DomainMemoryBacking{MemoryNosharepages: &libvirtxml.DomainMemoryNosharepages{}}
	var pages []libvirtxml.DomainMemoryHugepage
	threads := uint(1)
	at := map[uint64]int{} // page size → place in pages
	nodes := map[uint64][]int{}
	for _, n := range vm.Nodes {
		if n.PageBytes <= 4096 {
			continue
		}
		if _, ok := at[n.PageBytes]; !ok {
			at[n.PageBytes] = len(pages)
			pages = append(pages, libvirtxml.DomainMemoryHugepage{Size: uint(n.PageBytes >> 10), Unit: "KiB"})
		}
		nodes[n.PageBytes] = append(nodes[n.PageBytes], n.ID)
		threads = max(threads, uint(min(len(n.VCPUs), 16)))
	}
	if len(pages) == 0 {
		return b
	}
	for size, k := range at {
		pages[k].Nodeset = list(nodes[size])
	}
	b.MemoryHugePages = &libvirtxml.DomainMemoryHugepages{Hugepages: pages}
	// No hugetlbfs needs to be mounted for a memfd.
	b.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
	b.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	b.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate", Threads: threads}
	return b
}

// Binding is the numatune of a VM: each cell's memory on its host nodes, and no other. nil: nothing is bound.
func Binding(vm *plan.VM) *libvirtxml.DomainNUMATune {
	t := &libvirtxml.DomainNUMATune{}
	var all []int
	for _, n := range vm.Nodes {
		if len(n.HostNodes) == 0 || n.MemoryBytes == 0 {
			continue
		}
		mode := "strict"
		if len(n.HostNodes) > 1 {
			mode = "interleave" // over these, and no other
		}
		t.MemNodes = append(t.MemNodes, libvirtxml.DomainNUMATuneMemNode{CellID: uint(n.ID), Mode: mode, Nodeset: list(n.HostNodes)})
		all = append(all, n.HostNodes...)
	}
	if len(all) == 0 {
		return nil
	}
	// What QEMU itself needs: page tables, buffers.
	t.Memory = &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: list(all)}
	return t
}

// cells are the guest's nodes; nil: one, not described.
func cells(vm *plan.VM) *libvirtxml.DomainNuma {
	if len(vm.Nodes) == 0 {
		return nil
	}
	numa := &libvirtxml.DomainNuma{}
	for i := range vm.Nodes {
		n := &vm.Nodes[i]
		cpus := n.VCPUs
		if i == 0 && vm.VCPUs == 1 {
			cpus = []int{0, 1} // the possible vCPU that is not there needs a cell too
		}
		id := uint(n.ID)
		c := libvirtxml.DomainCell{ID: &id, CPUs: list(cpus), Memory: uint(n.MemoryBytes >> 10), Unit: "KiB"}
		if len(n.Distances) == len(vm.Nodes) {
			c.Distances = &libvirtxml.DomainCellDistances{}
			for j, d := range n.Distances {
				c.Distances.Siblings = append(c.Distances.Siblings, libvirtxml.DomainCellSibling{ID: uint(vm.Nodes[j].ID), Value: uint(d)})
			}
		}
		numa.Cell = append(numa.Cell, c)
	}
	return numa
}

func hasPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
