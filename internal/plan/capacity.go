package plan

import (
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// capacity describes the free resources of a host, by node; nodes have dense indices.
type capacity struct {
	host     *topology.Host
	nodes    []roomNode
	dist     [][]int32 // the larger of both directions
	pools    []devicePool
	reserved []int  // CPUs kept for the host, a whole core after another
	limit    uint64 // bytes of ordinary memory that the job may use, over all nodes; 0: no limit
	cpus     int    // usable CPUs, free or held
	cores    int    // usable cores, free or held
	heldCPUs int
	nodeOf   []int32  // node of each CPU by its ID; -1: none
	others   []int    // free usable CPUs of the kinds that are not used for vCPUs
	remote   []remote // nodes whose cores use another node's memory
	caches   []int32  // last-level cache of each CPU by its ID, -1: none; computed on first use
}

// node returns the dense node of a CPU by its ID, or -1.
func (r *capacity) node(cpu int) int {
	if cpu < 0 || cpu >= len(r.nodeOf) {
		return -1
	}
	return int(r.nodeOf[cpu])
}

// roomNode is a host node with its free resources.
type roomNode struct {
	id        int
	pkg       int         // package of its first CPU; -1: no CPUs
	groups    []coreGroup // by last-level cache
	free      []uint64    // bytes by page class (classes)
	residents int         // VMs that already run on it
	total     int         // usable cores, free or held
	open      bool        // the cluster file and the cgroup allow VMs on it (placement.hostNodes)
}

// coreGroup is the set of free cores under one last-level cache.
type coreGroup struct {
	l3    int
	cores []core
}

// remote records that the cores of node from, which has no memory, are planned with the memory of node to, the
// nearest one; nodes by ID.
type remote struct{ from, to, distance int }

// core is a core whose usable threads are all free.
type core struct {
	id   int
	cpus []int
}

// count returns how many free cores of the group have at least t threads.
func (g *coreGroup) count(t int) int {
	n := 0
	for i := range g.cores {
		if len(g.cores[i].cpus) >= t {
			n++
		}
	}
	return n
}

func (n *roomNode) count(t int) int {
	c := 0
	for i := range n.groups {
		c += n.groups[i].count(t)
	}
	return c
}

// memory returns the node's free memory in bytes, in pages of any size.
func (n *roomNode) memory() uint64 {
	var sum uint64
	for _, b := range n.free {
		sum += b
	}
	return sum
}

// devicePool is a set of interchangeable functions: a card's VFs, or a single function.
type devicePool struct {
	pf    string // address of the card, or of the function
	node  int    // dense index; -1: not known
	free  []string
	class int
	names []string // RDMA and network names of the card
	one   bool     // a single function, chosen by its address
	// dynamic marks a pool that represents any function with its vendor and device IDs.
	dynamic bool
}

// label returns a name of the pool for messages.
func (p *devicePool) label() string {
	if len(p.names) > 0 {
		return p.names[0]
	}
	return p.pf
}

// classes returns the page sizes to try, largest first; 0 is ordinary pages.
func classes(hosts []topology.Host) []uint64 {
	seen := map[uint64]bool{}
	for i := range hosts {
		for j := range hosts[i].Nodes {
			for _, p := range hosts[i].Nodes[j].Pools {
				seen[p.PageBytes] = true
			}
		}
	}
	var out []uint64
	for p := range seen {
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] > out[j] })
	return append(out, 0)
}

// newCapacity returns the capacity of a host without the resources that are not allowed, held or reserved. pages is a
// result of classes; the attempt a selects the CPUs.
func newCapacity(h *topology.Host, p *spec.Placement, pages []uint64, held []Held, a *attempt) *capacity {
	r := &capacity{host: h, limit: h.Limits.MemoryBytes}
	r.nodes = make([]roomNode, len(h.Nodes))
	open := func(id int) bool {
		for _, n := range p.HostNodes {
			if n == id {
				return true
			}
		}
		return len(p.HostNodes) == 0
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		r.nodes[i] = roomNode{id: n.ID, pkg: -1, free: make([]uint64, len(pages)), open: open(n.ID)}
		if !n.Usable() {
			continue
		}
		for k, size := range pages {
			if size == 0 {
				r.nodes[i].free[k] = n.AvailableBytes
			}
			for _, pool := range n.Pools {
				if pool.PageBytes == size {
					r.nodes[i].free[k] = uint64(pool.Free) * size
				}
			}
		}
	}
	n := len(h.Nodes)
	flat := make([]int32, n*n)
	r.dist = make([][]int32, n)
	for i := range r.dist {
		r.dist[i] = flat[i*n : (i+1)*n]
	}
	for i := range h.Nodes {
		for j := range h.Nodes {
			d := 20
			if i == j {
				d = 10
			}
			if k := h.Nodes[i].Distances; j < len(k) {
				d = k[j]
			}
			if k := h.Nodes[j].Distances; i < len(k) && k[i] > d {
				d = k[i]
			}
			r.dist[i][j] = int32(d)
		}
	}
	r.takeHeld(held, pages)
	kind := -1
	if a.kind > 0 && len(h.Kinds) > 1 {
		kind = min(a.kind, len(h.Kinds)) - 1
	}
	r.takeCores(p, held, a.isolated && hasIsolated(h), kind)
	if a.remote {
		r.takeRemote()
	}
	r.takeDevices(held)
	return r
}

// takeRemote moves the cores of nodes without memory to the nearest node with memory that VMs may use.
func (r *capacity) takeRemote() {
	for i := range r.nodes {
		from := &r.nodes[i]
		if !from.open || from.memory() > 0 || from.count(1) == 0 {
			continue
		}
		best := -1
		for j := range r.nodes {
			if r.nodes[j].open && r.nodes[j].memory() > 0 && r.host.Nodes[j].Usable() && (best < 0 || r.dist[i][j] < r.dist[i][best]) {
				best = j
			}
		}
		if best < 0 {
			continue
		}
		to := &r.nodes[best]
		to.groups = append(to.groups, from.groups...)
		to.total += from.total
		if to.pkg < 0 {
			to.pkg = from.pkg
		}
		from.groups, from.total = nil, 0
		r.remote = append(r.remote, remote{from.id, to.id, int(r.dist[i][best])})
	}
}

// takeHeld limits the free memory of each node by the memory of running VMs. Free memory is then the smaller of two
// amounts: the measured free memory, from which memory that VMs have touched is already missing, and all memory less
// what was promised to them.
func (r *capacity) takeHeld(held []Held, pages []uint64) {
	if len(held) == 0 {
		return
	}
	for i := range r.nodes {
		n := &r.host.Nodes[i]
		for k, size := range pages {
			var promised uint64
			for _, h := range held {
				for _, m := range h.Memory {
					if m.Node == n.ID && m.PageBytes == size {
						promised += m.Bytes
					}
				}
			}
			total := n.MemoryBytes
			for _, p := range n.Pools {
				if size == 0 {
					total -= min(total, p.PageBytes*uint64(p.Total))
				} else if p.PageBytes == size {
					total = size * uint64(p.Total)
				}
			}
			if promised > 0 {
				r.nodes[i].free[k] = min(r.nodes[i].free[k], total-min(total, promised))
			}
		}
	}
}

// takeCores collects the free cores of each node, of one kind unless kind is -1.
func (r *capacity) takeCores(p *spec.Placement, held []Held, isolated bool, kind int) {
	h := r.host
	max := 0
	r.nodeOf = make([]int32, h.CPUs[len(h.CPUs)-1].ID+1)
	for i := range r.nodeOf {
		r.nodeOf[i] = -1
	}
	id, dense := -1, -1
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if c.Core >= max {
			max = c.Core + 1
		}
		if i == 0 || c.Node != id { // most neighbours are of one node
			id, dense = c.Node, h.NodeIndex(c.Node)
		}
		r.nodeOf[c.ID] = int32(dense)
	}
	taken := make([]bool, max) // a core with any thread held is held as a whole
	holds := make([]map[int]bool, len(held))
	for i, v := range held {
		for _, id := range v.CPUs {
			if c := h.CPU(id); c != nil && c.Core >= 0 {
				taken[c.Core] = true
				r.heldCPUs++
				if holds[i] == nil {
					holds[i] = map[int]bool{}
				}
				if n := r.node(id); n >= 0 && !holds[i][n] {
					holds[i][n] = true
					r.nodes[n].residents++
				}
			}
		}
	}
	type place struct{ node, group, core int }
	at := make([]place, max)
	for i := range at {
		at[i].node = -1
	}
	coreSeen := make([]bool, max)
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if !c.Usable() || c.Core < 0 {
			continue
		}
		r.cpus++
		if !coreSeen[c.Core] {
			coreSeen[c.Core] = true
			r.cores++
			if n := r.node(c.ID); n >= 0 {
				r.nodes[n].total++
			}
		}
		n := r.node(c.ID)
		if n < 0 {
			continue
		}
		node := &r.nodes[n]
		if node.pkg < 0 {
			node.pkg = c.Package
		}
		if taken[c.Core] || isolated && !c.Isolated {
			continue
		}
		if kind >= 0 && c.Kind != kind {
			r.others = append(r.others, c.ID)
			continue
		}
		if pl := at[c.Core]; pl.node >= 0 {
			k := &r.nodes[pl.node].groups[pl.group].cores[pl.core]
			k.cpus = append(k.cpus, c.ID)
			continue
		}
		g := -1
		for k := range node.groups {
			if node.groups[k].l3 == c.L3 {
				g = k
			}
		}
		if g < 0 {
			g = len(node.groups)
			node.groups = append(node.groups, coreGroup{l3: c.L3})
		}
		at[c.Core] = place{n, g, len(node.groups[g].cores)}
		node.groups[g].cores = append(node.groups[g].cores, core{c.Core, []int{c.ID}})
	}
	if isolated {
		return // the CPUs that are not isolated belong to the host: no others need be reserved
	}
	r.reserve(p.Reserve)
}

// reserve reserves n free cores, from one node after the other, the lowest first, because the first cores of a node
// run the host's work anyway.
func (r *capacity) reserve(n int) {
	for n > 0 {
		before := n
		for i := range r.nodes {
			node := &r.nodes[i]
			if n == 0 || !node.open {
				continue
			}
			best := -1
			for g := range node.groups {
				if c := node.groups[g].cores; len(c) > 0 && (best < 0 || c[0].id < node.groups[best].cores[0].id) {
					best = g
				}
			}
			if best < 0 {
				continue
			}
			g := &node.groups[best]
			r.reserved = append(r.reserved, g.cores[0].cpus...)
			g.cores = g.cores[1:]
			n--
		}
		if n == before {
			return // no core left; VMs that need CPUs will fail with the error
		}
	}
}

// takeDevices collects the free functions.
func (r *capacity) takeDevices(held []Held) {
	h := r.host
	used := map[string]bool{}
	for _, v := range held {
		for _, a := range v.Devices {
			used[a] = true
		}
	}
	for i := range h.Devices {
		d := &h.Devices[i]
		if len(d.VFs) == 0 {
			continue
		}
		p := devicePool{pf: d.Address, node: h.NodeIndex(d.Node), class: d.Class, names: append(append([]string(nil), d.RDMA...), d.Net...)}
		for _, vf := range d.VFs {
			if !used[vf] && !used[d.Address] {
				p.free = append(p.free, vf)
			}
		}
		r.pools = append(r.pools, p)
	}
}

// single adds a pool of the one function at address, removes it from its card's pool, and returns the new pool's
// index, or -1 if the function does not exist or is held.
func (r *capacity) single(address string) int {
	for i := range r.pools {
		if r.pools[i].one && r.pools[i].pf == address {
			return i
		}
	}
	d := r.host.Device(address)
	if d == nil {
		return -1
	}
	free := d.PF == ""
	for i := range r.pools {
		p := &r.pools[i]
		if p.pf == address {
			p.free = nil // the card is assigned as a whole
		}
		for k, a := range p.free {
			if a == address {
				p.free = append(p.free[:k:k], p.free[k+1:]...)
				free = true
				break
			}
		}
	}
	if !free {
		return -1
	}
	r.pools = append(r.pools, devicePool{pf: address, node: r.host.NodeIndex(d.Node), class: d.Class, free: []string{address}, one: true,
		names: append(append([]string(nil), d.RDMA...), d.Net...)})
	return len(r.pools) - 1
}

// eligible returns the pools that can serve a device of the cluster file.
func (r *capacity) eligible(d *spec.Device) []int {
	if d.Type == "pci" || d.Address != "" {
		if i := r.single(d.Address); i >= 0 {
			r.pools[i].dynamic = d.Dynamic
			return []int{i}
		}
		return nil
	}
	var out []int
	for i := range r.pools {
		p := &r.pools[i]
		switch {
		case p.one:
		case d.PF != "" && d.PF != p.pf && !slices.Contains(p.names, d.PF):
		case d.PF == "" && d.Class == "infiniband" && !infiniband(p):
		case d.PF == "" && d.Class == "ethernet" && !ethernet(p):
		default:
			out = append(out, i)
		}
	}
	return out
}

// infiniband reports whether a pool's card is InfiniBand: PCI class 0207 (InfiniBand controller), 0c06 (its older
// code), 0280 with an RDMA name (older ConnectX), or a network name of IP over InfiniBand.
func infiniband(p *devicePool) bool {
	switch p.class >> 8 {
	case 0x0207, 0x0c06:
		return true
	case 0x0200:
		return false
	}
	for _, n := range p.names {
		if strings.HasPrefix(n, "ib") || strings.HasPrefix(n, "mlx") {
			return true
		}
	}
	return false
}

func ethernet(p *devicePool) bool { return p.class>>8 == 0x0200 }
