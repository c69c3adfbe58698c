package plan

import (
	"fmt"
	"sort"

	"nearmetal/internal/words"
)

// nodes describes the guest's NUMA nodes.
func (m *maker) nodes(vm *VM, r *capacity, order []int, s *shape, g *group) {
	page := m.pages[s.class]
	if len(r.nodes) == 1 && s.guestNodes == 1 && page == 0 {
		return // no nodes to describe or bind
	}
	unit := align(page)
	units := g.memory / unit
	rest := g.memory - units*unit
	per := g.vcpus / s.guestNodes
	under := make([][]int, s.guestNodes) // dense host nodes of each guest node
	for k := range under {
		if s.hostNodes >= s.guestNodes {
			n := s.hostNodes / s.guestNodes
			under[k] = order[k*n : (k+1)*n]
		} else {
			n := s.guestNodes / s.hostNodes
			under[k] = order[k/n : k/n+1]
		}
	}
	for k := range under {
		n := Node{ID: k, PageBytes: page}
		n.MemoryBytes = units / uint64(s.guestNodes) * unit
		if uint64(k) < units%uint64(s.guestNodes) {
			n.MemoryBytes += unit
		}
		if k == s.guestNodes-1 {
			n.MemoryBytes += rest
		}
		for v := k * per; v < (k+1)*per; v++ {
			n.VCPUs = append(n.VCPUs, v)
		}
		for _, j := range under[k] {
			n.HostNodes = append(n.HostNodes, r.nodes[j].id)
		}
		sort.Ints(n.HostNodes)
		if s.guestNodes > 1 {
			for o := range under {
				n.Distances = append(n.Distances, guestDistance(r, under[k], under[o], k == o))
			}
		}
		vm.Nodes = append(vm.Nodes, n)
	}
}

// guestDistance returns the mean distance between the host nodes under two guest nodes. ACPI requires 10 for a node
// to itself and more for any other.
func guestDistance(r *capacity, a, b []int, same bool) int {
	if same {
		return 10
	}
	sum := 0
	for _, i := range a {
		for _, j := range b {
			sum += int(r.dist[i][j])
		}
	}
	return min(max((sum+len(a)*len(b)/2)/(len(a)*len(b)), 11), 254)
}

// memoryNodes assigns VMs their memory on nodes without CPUs: as many parts as the VM has nodes, each from the
// nearest of the named nodes with room.
func (m *maker) memoryNodes(r *capacity, vms []*VM) error {
	if len(m.place.MemoryNodes) == 0 {
		return nil
	}
	free := map[int]uint64{} // by node ID
	for _, id := range m.place.MemoryNodes {
		if n := &r.host.Nodes[r.host.NodeIndex(id)]; n.Usable() {
			free[id] = n.AvailableBytes
		}
	}
	for _, held := range m.held {
		for _, v := range held {
			for _, h := range v.Memory {
				if v.Host == r.host.Name && h.PageBytes == 0 {
					free[h.Node] -= min(free[h.Node], h.Bytes)
				}
			}
		}
	}
	total := uint64(m.place.MemoryNodeSize)
	for _, vm := range vms {
		if len(vm.Nodes) == 0 { // a VM of one node, not described before
			v := make([]int, vm.VCPUs)
			for i := range v {
				v[i] = i
			}
			vm.Nodes = []Node{{VCPUs: v, MemoryBytes: vm.MemoryBytes, HostNodes: []int{r.nodes[0].id}}}
		}
		withCPUs := len(vm.Nodes)
		parts := min(withCPUs, len(m.place.MemoryNodes))
		part := (total/uint64(parts) + 1<<21 - 1) >> 21 << 21
		used := map[int]bool{}
		for k := 0; k < parts; k++ {
			best, bestD := -1, 0
			for _, id := range m.place.MemoryNodes {
				if free[id] < part || used[id] {
					continue
				}
				d := 0
				for _, hn := range vm.Nodes[k].HostNodes {
					d += r.host.Distance(hn, id)
				}
				if best < 0 || d < bestD {
					best, bestD = id, d
				}
			}
			if best < 0 {
				var have uint64
				for _, id := range m.place.MemoryNodes {
					if !used[id] {
						have = max(have, free[id])
					}
				}
				return fmt.Errorf("%s: memory nodes of %s: %s needed on one of them, %s free on the best: %s short; ask for memoryNodeSize: %dMiB",
					vm.Name, r.host.Name, words.Bytes(part), words.Bytes(have), words.Bytes(part-have), have*uint64(parts)>>20)
			}
			free[best] -= part
			used[best] = true
			vm.Nodes = append(vm.Nodes, Node{ID: len(vm.Nodes), MemoryBytes: part, HostNodes: []int{best}})
			vm.MemoryBytes += part
			vm.reason("guest node %d is %s of memory-only node %d, distance %d from node %d", len(vm.Nodes)-1, words.Bytes(part), best, bestD/len(vm.Nodes[k].HostNodes), vm.Nodes[k].HostNodes[0])
		}
		under := make([][]int, len(vm.Nodes))
		for i := range vm.Nodes {
			for _, id := range vm.Nodes[i].HostNodes {
				under[i] = append(under[i], r.host.NodeIndex(id))
			}
		}
		for i := range vm.Nodes {
			vm.Nodes[i].Distances = nil
			for o := range vm.Nodes {
				vm.Nodes[i].Distances = append(vm.Nodes[i].Distances, guestDistance(r, under[i], under[o], i == o))
			}
		}
	}
	return nil
}
