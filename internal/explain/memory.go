package explain

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

var memoryRules = []rule{
	{
		place: true,
		id:    "memory.cells", title: "the guest sees the nodes that it is on", wanted: "a cell for each node of the host under it",
		cost: "the guest cannot put a rank beside its memory, and takes all of it to be near", source: "VMware's vNUMA paper; " + nasa + ", section 4.1.1 step 11",
		look: func(l *laid) verdict {
			n := 0 // nodes with only memory do not count
			for _, c := range l.cells {
				if len(c.vcpus) > 0 {
					n++
				}
			}
			all := make([]int, l.vcpus)
			for v := range all {
				all[v] = v
			}
			if nodes := l.spread(all); nodes != nil {
				if n < len(nodes) {
					return found(check.Fail, "%d, with vCPUs on nodes %s of the host", n, topology.FormatList(nodes))
				}
				return found(check.OK, "%d", n)
			}
			if l.want == nil {
				return found(check.Unknown, "%d", n)
			}
			if w := max(len(l.want.Nodes), 1); n < w {
				return found(check.Fail, "%d, where %d vCPUs and %s take %d nodes of %s", n, l.vcpus, words.Bytes(l.bytes), w, l.host.Name)
			} else if n > w {
				return found(check.Warn, "%d, where %d vCPUs and %s fit on %d of %s", n, l.vcpus, words.Bytes(l.bytes), w, l.host.Name)
			}
			return found(check.OK, "%d", n)
		},
		fix: place,
	},
	{
		place: true,
		id:    "memory.bound", title: "each guest node's memory is on its host node", wanted: "numatune with a memnode mode='strict' for each cell",
		cost: "the kernel takes a cell's memory from any node with room", source: libvirt + ", numatune and memnode (default: no binding)",
		look: lookBound,
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps {
				return place(l, d)
			}
			d.NUMATune = binding(l.want, d)
			if l.resize() {
				movePages(l, d)
			}
			return true
		},
	},
	{
		x86: true, place: true,
		id: "memory.distances", title: "the guest knows the distances between its nodes", wanted: "distances in each cell, as the host's firmware has them",
		cost: "the guest's kernel takes all other nodes to be at 20: it chooses the wrong neighbour when a node is full", source: libvirt + ", numa (distances); " + qemu + ": -numa dist",
		look: func(l *laid) verdict {
			if len(l.cells) < 2 {
				return found(check.NotApplicable, "the guest sees one node")
			}
			said := 0
			for _, c := range l.d.CPU.Numa.Cell {
				if c.Distances != nil && len(c.Distances.Siblings) > 0 {
					said++
				}
			}
			if said == len(l.cells) {
				return found(check.OK, "all say them")
			}
			if l.want != nil && len(l.want.Nodes) == len(l.cells) {
				same := len(l.want.Nodes[0].Distances) > 0
				for i, n := range l.want.Nodes {
					for j, d := range n.Distances {
						same = same && (i == j || d == 20)
					}
				}
				if same {
					return found(check.OK, "not said; QEMU's default, 20, is what this host has")
				}
			}
			return found(check.Warn, "%d of %d cells say them", said, len(l.cells))
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps {
				return place(l, d)
			}
			own, w := numaOf(d), l.wantedCPU().Numa
			if len(l.want.Nodes[0].Distances) == 0 {
				return false
			}
			for i := range own.Cell {
				own.Cell[i].Distances = w.Cell[cellID(own.Cell, i)].Distances
			}
			return true
		},
	},
	{
		id: "memory.pages", title: "memory in huge pages", wanted: "hugepages, with enough of them on the nodes that the memory is bound to",
		cost: "misses of the TLB, each through two levels of page tables: up to 20% by NASA's report", source: nasa + ", section 3.2.2",
		look: lookPages,
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if l.want == nil {
				return false
			}
			b := domain.Backing(l.want)
			if b.MemoryHugePages == nil {
				return false
			}
			if numaOf(d) == nil && len(l.want.Nodes) < 2 {
				b.MemoryHugePages.Hugepages[0].Nodeset = "" // no cell to name
			}
			if old := d.MemoryBacking; old != nil {
				b.MemoryLocked, b.MemoryDiscard = old.MemoryLocked, old.MemoryDiscard
				if old.MemoryAccess != nil {
					b.MemoryAccess = old.MemoryAccess
				}
			}
			d.MemoryBacking = b
			return true
		},
	},
	{
		id: "memory.merge", title: "pages are not merged with others'", wanted: "<nosharepages/>, or huge pages",
		cost: "where the host runs KSM, it splits huge pages and makes writes fault", source: libvirt + ", memoryBacking; Linux: Documentation/admin-guide/mm/ksm",
		look: func(l *laid) verdict {
			if b := l.d.MemoryBacking; b != nil && (b.MemoryNosharepages != nil || b.MemoryHugePages != nil) {
				return found(check.OK, "they are not")
			}
			return found(check.Warn, "they may be")
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			if d.MemoryBacking == nil {
				d.MemoryBacking = &libvirtxml.DomainMemoryBacking{}
			}
			d.MemoryBacking.MemoryNosharepages = &libvirtxml.DomainMemoryNosharepages{}
			return true
		},
	},
	{
		id: "memory.current", title: "the guest has all of its memory", wanted: "currentMemory equal to memory",
		cost: "a balloon holds the rest from the start", source: libvirt + ", currentMemory",
		look: func(l *laid) verdict {
			c := l.d.CurrentMemory
			if c == nil {
				return found(check.OK, "all")
			}
			n, err := size(c.Value, c.Unit)
			all := l.bytes + l.plugged
			if err == nil && (n >= all || n == 0) { // libvirt applies either to all
				return found(check.OK, "all")
			}
			if err != nil {
				return found(check.Fail, "currentMemory: %v", err)
			}
			return found(check.Warn, "%s of %s", words.Bytes(n), words.Bytes(all))
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			d.CurrentMemory.Value, d.CurrentMemory.Unit = uint((l.bytes+l.plugged)>>10), "KiB"
			return true
		},
	},
}

func lookBound(l *laid) verdict {
	if len(l.host.Nodes) < 2 {
		return found(check.NotApplicable, "the host has one node")
	}
	var wrong []string
	alone := true // none of these cells has a vCPU
	status, farthest := check.OK, 0
	worse := func(s check.Status, far int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
		if farthest = max(farthest, far); s == check.Fail || status == check.OK {
			status = s
		}
	}
	widest := 0
	for _, a := range l.host.Nodes {
		for _, b := range a.Distances {
			widest = max(widest, b)
		}
	}
	for i, c := range l.cells {
		what := fmt.Sprintf("cell %d", i)
		if len(l.cells) == 1 {
			what = "its memory"
		}
		under := l.spread(c.vcpus)
		was := len(wrong)
		var gone []int
		for _, n := range c.nodes {
			if l.host.NodeIndex(n) < 0 {
				gone = append(gone, n)
			}
		}
		switch {
		case len(gone) > 0:
			worse(check.Fail, 0, "%s is bound to node %s, which %s has not", what, topology.FormatList(gone), l.host.Name)
		case len(c.nodes) == 0:
			worse(check.Fail, widest, "%s is bound to no node", what)
		case c.mode == "preferred":
			worse(check.Warn, widest, "%s prefers its node: when that is full it takes another", what)
		case under != nil && !slices.Equal(under, c.nodes) && len(c.vcpus) > 0:
			far := 0
			for _, a := range under {
				for _, b := range c.nodes {
					far = max(far, l.host.Distance(a, b))
				}
			}
			s := check.Fail
			if len(under) > 0 && slices.Contains(c.nodes, under[0]) {
				s = check.Warn
			}
			worse(s, far, "%s is on nodes %s, its vCPUs on %s", what, topology.FormatList(c.nodes), topology.FormatList(under))
		}
		alone = alone && (len(wrong) == was || len(c.vcpus) == 0)
	}
	if len(wrong) == 0 {
		return found(check.OK, "each is")
	}
	v := found(status, "%s", some(wrong))
	if farthest > 10 {
		v.cost = fmt.Sprintf("the kernel takes memory where there is room: up to all of it at distance %d, where the own node is at 10 (the firmware's table)", farthest)
	}
	if alone {
		v.fix = "a memnode for each of them, to a node of memory alone: which one is yours to choose"
	}
	return v
}

func lookPages(l *laid) verdict {
	b := l.d.MemoryBacking
	if b == nil || b.MemoryHugePages == nil {
		v := found(check.Warn, "ordinary pages")
		if l.want == nil || domain.Backing(l.want).MemoryHugePages == nil {
			v.fix = fmt.Sprintf("the pools of %s are too small or empty: nearmetal check --fix memory.hugepages makes one; then explain again", l.host.Name)
		}
		return v
	}
	var sizes []string
	for _, p := range b.MemoryHugePages.Hugepages {
		n, err := size(p.Size, p.Unit)
		if err != nil {
			return found(check.Fail, "hugepages: %v", err)
		}
		if s := words.Bytes(n); !slices.Contains(sizes, s) {
			sizes = append(sizes, s)
		}
	}
	wrong := l.shortOfPages(l.boundTo)
	size := "of the host's default size"
	if len(sizes) > 0 {
		size = "of " + strings.Join(sizes, " and ")
	}
	if len(wrong) > 0 {
		v := found(check.Fail, "huge pages %s, but %s", size, some(wrong))
		v.cost = "libvirt does not start the domain, or it ends when it touches a page that is not there"
		v.fix = strings.TrimSpace("nearmetal check --fix memory.hugepages on " + l.host.Name + ", or another size of page")
		return v
	}
	return found(check.OK, "huge pages %s", size)
}

// shortOfPages returns the cells whose huge pages do not fit into the pools of their nodes.
func (l *laid) shortOfPages(nodesOf func(cell int) []int) []string {
	b := l.d.MemoryBacking
	if b == nil || b.MemoryHugePages == nil {
		return nil
	}
	var wrong []string
	for i, c := range l.cells {
		nodes := nodesOf(i)
		if len(nodes) == 0 {
			for _, n := range l.host.Nodes {
				nodes = append(nodes, n.ID)
			}
		}
		page := pagesOf(b, i)
		if page == 0 {
			if len(b.MemoryHugePages.Hugepages) > 0 {
				continue // in ordinary pages
			}
			page = l.host.DefaultHugePage()
		}
		var have uint64
		for _, id := range nodes {
			have += l.pool(id, page)
		}
		if have < c.bytes {
			wrong = append(wrong, fmt.Sprintf("cell %d needs %s, node %s has a pool of %s", i, words.Bytes(c.bytes), topology.FormatList(nodes), words.Bytes(have)))
		}
	}
	return wrong
}
