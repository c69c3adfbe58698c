package domain

import (
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/plan"
)

// Backing returns the memoryBacking element of a VM: huge pages of the cells as planned, not merged with other VMs',
// and allocated before the guest runs. A pool that is too small must be detected then, not by a SIGBUS during a job.
func Backing(vm *plan.VM) *libvirtxml.DomainMemoryBacking {
	b := &libvirtxml.DomainMemoryBacking{MemoryNosharepages: &libvirtxml.DomainMemoryNosharepages{}}
	var pages []libvirtxml.DomainMemoryHugepage
	threads := uint(1)
	at := map[uint64]int{} // page size → index in pages
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
	// A memfd needs no mounted hugetlbfs.
	b.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
	b.MemoryAccess = &libvirtxml.DomainMemoryAccess{Mode: "shared"}
	b.MemoryAllocation = &libvirtxml.DomainMemoryAllocation{Mode: "immediate", Threads: threads}
	return b
}

// Binding returns the numatune element of a VM: each cell's memory on its host nodes only. nil: nothing is bound.
func Binding(vm *plan.VM) *libvirtxml.DomainNUMATune {
	t := &libvirtxml.DomainNUMATune{}
	var all []int
	for _, n := range vm.Nodes {
		if len(n.HostNodes) == 0 || n.MemoryBytes == 0 {
			continue
		}
		mode := "strict"
		if len(n.HostNodes) > 1 {
			mode = "interleave" // over these nodes only
		}
		t.MemNodes = append(t.MemNodes, libvirtxml.DomainNUMATuneMemNode{CellID: uint(n.ID), Mode: mode, Nodeset: list(n.HostNodes)})
		all = append(all, n.HostNodes...)
	}
	if len(all) == 0 {
		return nil
	}
	// The memory that QEMU itself needs: page tables, buffers.
	t.Memory = &libvirtxml.DomainNUMATuneMemory{Mode: "strict", Nodeset: list(all)}
	return t
}

// cells returns the guest's nodes; nil: a single node, not described.
func cells(vm *plan.VM) *libvirtxml.DomainNuma {
	if len(vm.Nodes) == 0 {
		return nil
	}
	numa := &libvirtxml.DomainNuma{}
	for i := range vm.Nodes {
		n := &vm.Nodes[i]
		cpus := n.VCPUs
		if i == 0 && vm.VCPUs == 1 {
			cpus = []int{0, 1} // the possible vCPU that is not present also needs a cell
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
