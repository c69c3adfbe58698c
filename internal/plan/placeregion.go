package plan

import (
	"fmt"

	"nearmetal/internal/words"
)

// placeRegion places the region's memory on the node that is nearest to all VMs of the host and has room for it.
func (m *maker) placeRegion(r *capacity, a *attempt, vms []*VM, p *Plan) error {
	g := p.Region
	if g == nil || len(r.nodes) == 0 {
		return nil
	}
	var sizes []int // classes that can back it
	for k, page := range m.pages {
		if (g.Backing == "hugetlb") == (page > 0) && page <= g.SizeBytes {
			sizes = append(sizes, k)
		}
	}
	best, bestK := -1, -1
	var bestD int64
	var most uint64
	for _, k := range sizes {
		for j := range r.nodes {
			free := r.nodes[j].free[k]
			for _, vm := range vms {
				for i := range vm.Nodes {
					n := &vm.Nodes[i]
					for _, id := range n.HostNodes {
						if id == r.nodes[j].id && n.PageBytes == m.pages[k] {
							free -= min(free, n.MemoryBytes/uint64(len(n.HostNodes)))
						}
					}
				}
			}
			most = max(most, free)
			if free < g.SizeBytes || r.nodes[j].pkg < 0 {
				continue
			}
			var d int64
			for _, vm := range vms {
				for _, pin := range vm.Pins {
					d += int64(r.dist[j][r.node(pin[0])])
				}
			}
			if best < 0 || d < bestD {
				best, bestK, bestD = j, k, d
			}
		}
		if best >= 0 {
			break
		}
	}
	if best < 0 && g.Backing == "hugetlb" {
		return fmt.Errorf("region: no node of %s has %s of free huge pages next to the VMs, the best has %s: %s short; ask for a smaller region, or backing: shm",
			r.host.Name, words.Bytes(g.SizeBytes), words.Bytes(most), words.Bytes(g.SizeBytes-min(most, g.SizeBytes)))
	}
	if best < 0 {
		// It may span several nodes if they have room together.
		var left uint64
		for j := range r.nodes {
			left += r.nodes[j].free[len(m.pages)-1]
		}
		for _, vm := range vms {
			if len(vm.Nodes) == 0 || vm.Nodes[0].PageBytes == 0 {
				left -= min(left, vm.MemoryBytes)
			}
		}
		if left < g.SizeBytes {
			return fmt.Errorf("region: %s has %s of memory left next to the VMs for %s: %s short; ask for a smaller region or less memory for the VMs",
				r.host.Name, words.Bytes(left), words.Bytes(g.SizeBytes), words.Bytes(g.SizeBytes-left))
		}
	}
	node := -1
	if best >= 0 && len(r.nodes) > 1 {
		node = r.nodes[best].id
	}
	if best >= 0 {
		g.PageBytes = m.pages[bestK]
	}
	if len(m.hosts) > 1 {
		g.Hosts = append(g.Hosts, RegionHost{r.host.Name, node})
	}
	if len(g.Hosts) <= 1 {
		g.HostNode = node
	}
	if node >= 0 && len(m.hosts) == 1 {
		m.notes = append(m.notes, fmt.Sprintf("the region's %s on node %d: nearest to the VMs' vCPUs together, and it has room", words.Bytes(g.SizeBytes), node))
	}
	return nil
}
