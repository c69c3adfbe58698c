package plan

import (
	"fmt"
	"sort"

	"nearmetal/internal/topology"
)

// chosen is a VM with the cores it got, before it becomes a VM of the plan.
type chosen struct {
	spot  *spot
	cores [][]core // by place in spot.nodes
	cuts  []int    // caches its cores lie over, by place
}

// realise makes the plan of a solution: cores, vCPUs, memory, devices.
func (m *maker) realise(a *attempt, s *solution, region *Region) (*Plan, error) {
	p := &Plan{Version: 1, Cluster: m.c.Name, Region: region}
	vms := make([]VM, m.total())
	next := make([]int, len(m.groups))
	for h := range m.hosts {
		if s.placed[h] == nil {
			continue
		}
		r := a.rooms[h]
		if len(r.reserved) > 0 {
			cpus := append([]int(nil), r.reserved...)
			sort.Ints(cpus)
			p.Reserved = append(p.Reserved, Reserved{r.host.Name, cpus})
		}
		list := chooseCores(r, s.placed[h].spots, s.shapes, m.policy, m.wide, a.threads)
		var here []*VM
		var lists [][]core
		pools := make([][]string, len(r.pools))
		for i := range r.pools {
			pools[i] = r.pools[i].free
		}
		for i := range list {
			g := list[i].spot.group
			index := m.groups[g].first + next[g]
			vm := &vms[index]
			*vm = VM{Name: fmt.Sprintf("%s%d", m.groups[g].name, next[g]), Index: index, Host: r.host.Name}
			next[g]++
			m.build(vm, r, &list[i], &s.shapes[g], &m.groups[g], pools)
			m.explain(vm, r, a, &list[i], s, &m.groups[g], s.placed[h])
			here = append(here, vm)
			for _, c := range list[i].cores {
				lists = append(lists, c)
			}
		}
		if m.pin {
			m.emulators(r, here, lists, a)
		}
		if err := m.memoryNodes(r, here); err != nil {
			return nil, err
		}
		for _, vm := range here {
			vm.expand()
			vm.PhysBits = physBits(vm.MemoryBytes, vm.MMIOBytes)
		}
		if err := m.placeRegion(r, a, here, p); err != nil {
			return nil, err
		}
		if !s.placed[h].proof {
			m.notes = append(m.notes, fmt.Sprintf("%s: the search for the best nodes was stopped after %d steps; what is shown is the best found", r.host.Name, m.steps))
		}
		m.hostWarnings(r, here)
		if !m.pin {
			for _, vm := range here {
				vm.Pins, vm.EmulatorCPUs, vm.L3 = nil, nil, nil
			}
		}
	}
	m.equalDies(vms)
	p.VMs = vms
	if m.place.SMT == "auto" && a.threads > 1 {
		m.notes = append(m.notes, fmt.Sprintf("vCPUs share cores, %d threads on each: there are not enough cores for one each", a.threads))
	}
	p.Reasons, p.Warnings = m.notes, m.warnings
	return p, nil
}

// chooseCores gives each VM its cores: caches as packed, the lowest cores first.
func chooseCores(r *room, spots []spot, shapes []shape, pol policy, wide bool, threads int) []chosen {
	out := make([]chosen, len(spots))
	type item struct{ vm, place int }
	byNode := make([][]item, len(r.nodes))
	for i := range spots {
		sp := &spots[i]
		out[i] = chosen{spot: sp, cores: make([][]core, len(sp.nodes)), cuts: make([]int, len(sp.nodes))}
		for k, j := range sp.nodes {
			byNode[j] = append(byNode[j], item{i, k})
		}
	}
	for j, items := range byNode {
		if len(items) == 0 {
			continue
		}
		node := &r.nodes[j]
		var need, bins []int
		for _, it := range items {
			need = append(need, shapes[spots[it.vm].group].cores)
		}
		able := make([][]core, len(node.groups))
		for g := range node.groups {
			for _, c := range node.groups[g].cores {
				if len(c.cpus) >= threads {
					able[g] = append(able[g], c)
				}
			}
			bins = append(bins, len(able[g]))
		}
		pk := packFor(need, bins, pol, wide)
		for x, it := range items {
			for g, n := range pk.alloc[x] {
				if n > 0 {
					out[it.vm].cores[it.place] = append(out[it.vm].cores[it.place], able[g][:n]...)
					out[it.vm].cuts[it.place]++
					able[g] = able[g][n:]
				}
			}
		}
	}
	return out
}

// build fills in a VM: its CPUs, nodes, memory and devices.
func (m *maker) build(vm *VM, r *room, ch *chosen, s *shape, g *group, pools [][]string) {
	vm.VCPUs, vm.MemoryBytes = g.vcpus, g.memory
	perHost, perGuest := g.vcpus/s.hostNodes, g.vcpus/s.guestNodes
	order := hostOrder(r, ch.spot.nodes, s)
	place := map[int]int{}
	for k, j := range ch.spot.nodes {
		place[j] = k
	}
	threads := s.threads
	if perHost%threads != 0 || perGuest%threads != 0 {
		threads = 1 // the guest sees no SMT, or a core would lie on two nodes
	}
	l3 := map[int][]int{}
	var l3Order []int
	pins := make([]int, g.vcpus)
	vm.Pins = make([][]int, 0, g.vcpus)
	for _, j := range order {
		n := 0
		for _, c := range ch.cores[place[j]] {
			for t := 0; t < s.threads && n < perHost; t++ {
				v := len(vm.Pins)
				pins[v] = c.cpus[t]
				vm.Pins = append(vm.Pins, pins[v:v+1:v+1])
				if k := r.cache(c.cpus[t]); k >= 0 {
					if l3[k] == nil {
						l3Order = append(l3Order, k)
					}
					l3[k] = append(l3[k], v)
				}
				n++
			}
		}
	}
	for _, k := range l3Order {
		vm.L3 = append(vm.L3, l3[k])
	}
	vm.Threads = threads
	vm.Sockets = m.sockets(r, ch, s)
	vm.Dies = m.dies(vm)
	vm.Cores = g.vcpus / vm.Sockets / vm.Dies / threads
	m.nodes(vm, r, order, s, g)
	m.devices(vm, r, ch.spot, pools)
	vm.IOMMU = maxAPIC(vm) > 254
}

// hostOrder gives the host nodes in the order in which vCPUs fill them: as they
// are, or where several lie under one guest node, each with those nearest to it.
func hostOrder(r *room, nodes []int, s *shape) []int {
	k := s.hostNodes / s.guestNodes
	if k < 2 {
		return nodes
	}
	left := append([]int(nil), nodes...)
	var out []int
	for len(left) > 0 {
		first := left[0]
		sort.SliceStable(left[1:], func(a, b int) bool { return r.dist[first][left[1+a]] < r.dist[first][left[1+b]] })
		out = append(out, left[:k]...)
		left = append([]int(nil), left[k:]...)
		sort.Ints(left)
	}
	return out
}

// cache is the last-level cache of a CPU: its place in the host's caches, -1: not known.
func (r *room) cache(cpu int) int {
	if r.caches == nil {
		r.caches = make([]int32, len(r.nodeOf))
		level := make([]int, len(r.nodeOf))
		for i := range r.caches {
			r.caches[i] = -1
		}
		for i := range r.host.Caches {
			c := &r.host.Caches[i]
			for _, id := range c.CPUs {
				if c.Level >= 3 && id < len(level) && c.Level > level[id] {
					r.caches[id], level[id] = int32(i), c.Level
				}
			}
		}
	}
	return int(r.caches[cpu])
}

// sockets gives how many the guest sees: as many as the packages under the VM
// where one last-level cache covers each of them (sub-NUMA clustering),
// otherwise one for each guest node, so that no node lies on two sockets and no
// cache seems to span nodes.
func (m *maker) sockets(r *room, ch *chosen, s *shape) int {
	if s.guestNodes == 1 || s.guestNodes != s.hostNodes {
		return s.guestNodes
	}
	per := map[int]int{}
	for _, j := range ch.spot.nodes {
		per[r.nodes[j].pkg]++
	}
	if len(per) == s.guestNodes || s.guestNodes%len(per) != 0 {
		return s.guestNodes
	}
	for _, n := range per {
		if n != s.guestNodes/len(per) {
			return s.guestNodes
		}
	}
	var widest uint64
	for _, c := range r.host.Caches {
		if c.Level < 3 || len(c.CPUs) == 0 {
			continue
		}
		nodes := map[int]bool{}
		for _, id := range c.CPUs {
			if cpu := r.host.CPU(id); cpu != nil {
				nodes[cpu.Node] = true
			}
		}
		widest = max(widest, uint64(len(nodes)))
	}
	if widest < 2 {
		return s.guestNodes
	}
	return len(per)
}

// dies gives how many a socket of the guest has: one for each last-level cache under
// it, for QEMU shows each die with one such cache. Dies are equal in size, so where
// the caches hold unequal numbers of vCPUs, or not whole cores, there is one.
func (m *maker) dies(vm *VM) int {
	if !m.pin || len(vm.L3) <= vm.Sockets {
		return 1
	}
	per := vm.VCPUs / len(vm.L3)
	ok := len(vm.L3)%vm.Sockets == 0 && per%vm.Threads == 0
	for i, g := range vm.L3 {
		ok = ok && len(g) == per && g[0] == i*per && g[per-1] == g[0]+per-1
	}
	if !ok {
		vm.reason("the guest sees one last-level cache a socket: the %d under its vCPUs do not hold equal numbers of them, or lie over two sockets", len(vm.L3))
		return 1
	}
	return len(vm.L3) / vm.Sockets
}

// equalDies keeps the VMs of a group alike: where they got different numbers of
// dies, all have one a socket.
func (m *maker) equalDies(vms []VM) {
	for _, g := range m.groups {
		list := vms[g.first : g.first+g.count]
		same := true
		for i := range list {
			same = same && list[i].Dies == list[0].Dies
		}
		for i := range list {
			vm := &list[i]
			if same || vm.Dies == 1 {
				continue
			}
			vm.reason("the guest sees one last-level cache a socket, not %d: other VMs of its group lie otherwise over caches, and equal VMs get equal shapes", vm.Dies)
			vm.Cores, vm.Dies = vm.Cores*vm.Dies, 1
			vm.IOMMU = maxAPIC(vm) > 254
		}
	}
}

// nodes describes the guest's NUMA nodes.
func (m *maker) nodes(vm *VM, r *room, order []int, s *shape, g *group) {
	page := m.pages[s.class]
	if len(r.nodes) == 1 && s.guestNodes == 1 && page == 0 {
		return // nothing to say to the guest or to bind
	}
	unit := align(page)
	units := g.memory / unit
	rest := g.memory - units*unit
	per := g.vcpus / s.guestNodes
	under := make([][]int, s.guestNodes) // dense host nodes
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

// guestDistance is the mean distance between the host nodes under two guest
// nodes. ACPI wants 10 for a node itself and more for any other.
func guestDistance(r *room, a, b []int, same bool) int {
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

// maxAPIC is the largest x2APIC ID that QEMU gives: each level below the socket
// gets as many bits as its number needs.
func maxAPIC(vm *VM) int {
	width := func(n int) int {
		w := 0
		for 1<<w < n {
			w++
		}
		return w
	}
	id := vm.Sockets - 1
	for _, n := range []int{vm.Dies, vm.Cores, vm.Threads} {
		id = id<<width(n) + n - 1
	}
	return id
}

// devices gives a VM its functions, and shows each on the guest node whose host
// node is nearest to it.
func (m *maker) devices(vm *VM, r *room, sp *spot, pools [][]string) {
	var bars uint64
	for _, k := range sp.units {
		pool := &r.pools[k]
		d := Device{Kind: "vfio", Address: pools[k][0], Node: -1, Expander: -1, HostNode: -1}
		pools[k] = pools[k][1:]
		if len(pool.names) > 0 {
			d.Name = pool.names[0]
		}
		if !pool.one {
			d.PF = pool.pf
		}
		if dev := r.host.Device(d.Address); dev != nil {
			for _, b := range dev.BARs {
				bars += b
			}
			if dev.PF != "" {
				d.PF = dev.PF
			}
		}
		if pool.node >= 0 {
			d.HostNode = r.nodes[pool.node].id
			best := 0
			for i := range vm.Nodes {
				for _, id := range vm.Nodes[i].HostNodes {
					j := r.host.NodeIndex(id)
					if dist := int(r.dist[pool.node][j]); d.Node < 0 || dist < best {
						d.Node, best = i, dist
					}
				}
			}
		}
		vm.Devices = append(vm.Devices, d)
	}
	vm.MMIOBytes = mmioWindow(bars)
}

// expand puts the devices behind expander bridges on their nodes, once the VM's
// nodes are known, those of memory only too.
func (vm *VM) expand() {
	if len(vm.Nodes) < 2 {
		return // one node: the root complex itself is on it
	}
	at := map[int]int{} // node → place in Expanders
	for i := range vm.Devices {
		d := &vm.Devices[i]
		if d.Node < 0 {
			continue
		}
		k, ok := at[d.Node]
		if !ok {
			k = len(vm.Expanders)
			at[d.Node] = k
			vm.Expanders = append(vm.Expanders, Expander{Node: d.Node})
		}
		d.Expander = k
		vm.Expanders[k].Ports++
	}
	// Bus numbers of the expanders, in equal shares of those above the machine's
	// own: room for each one's root ports and what is behind them.
	const first = 64
	for k := range vm.Expanders {
		vm.Expanders[k].Bus = first + (256-first)/len(vm.Expanders)*k
	}
}

// mmioWindow is the window that VMware's rule gives: the sum of the BARs rounded
// up to a power of two, then the next one.
func mmioWindow(bars uint64) uint64 {
	if bars == 0 {
		return 0
	}
	w := uint64(1 << 20)
	for w < bars && w < 1<<50 {
		w <<= 1
	}
	return w << 1
}

// physBits is the width of addresses that memory, the hole below 4 GiB and the
// window need; 0: at most 40 bits, which every CPU model has.
func physBits(memory, mmio uint64) int {
	top := memory + 4<<30
	if mmio > 0 {
		top = (top + mmio - 1) / mmio * mmio // the window is aligned to its size
	}
	top += mmio
	bits := 0
	for bits < 63 && uint64(1)<<bits < top {
		bits++
	}
	if bits <= 40 {
		return 0
	}
	return bits
}

// emulators gives QEMU's other threads their CPUs: reserved cores on the VM's
// nodes, else any reserved, else cores that no VM has, on the VM's nodes first.
// A sibling of a pinned vCPU is never among them.
func (m *maker) emulators(r *room, vms []*VM, pinned [][]core, a *attempt) {
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
			if on[r.node(id)] {
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
		vm.reason("QEMU's own threads on %s %s, %s", plural(len(vm.EmulatorCPUs), "CPU", "CPUs"), topology.FormatList(vm.EmulatorCPUs), from)
	}
}

// reason adds a sentence.
func (vm *VM) reason(format string, a ...any) {
	vm.Reasons = append(vm.Reasons, fmt.Sprintf(format, a...))
}

// memoryNodes gives VMs their memory of nodes without CPUs: as many parts as
// the VM has nodes, each from the nearest of the named nodes with room.
func (m *maker) memoryNodes(r *room, vms []*VM) error {
	if len(m.place.MemoryNodes) == 0 {
		return nil
	}
	free := map[int]uint64{} // by node ID
	for _, id := range m.place.MemoryNodes {
		if n := &r.host.Nodes[r.host.NodeIndex(id)]; n.Allowed {
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
		if len(vm.Nodes) == 0 { // a single-node VM that was not described till now
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
					vm.Name, r.host.Name, size(part), size(have), size(part-have), have*uint64(parts)>>20)
			}
			free[best] -= part
			used[best] = true
			vm.Nodes = append(vm.Nodes, Node{ID: len(vm.Nodes), MemoryBytes: part, HostNodes: []int{best}})
			vm.MemoryBytes += part
			vm.reason("guest node %d is %s of memory-only node %d, distance %d from node %d", len(vm.Nodes)-1, size(part), best, bestD/len(vm.Nodes[k].HostNodes), vm.Nodes[k].HostNodes[0])
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

// placeRegion puts the region's memory on the node that is nearest to all VMs
// of the host and has room for it.
func (m *maker) placeRegion(r *room, a *attempt, vms []*VM, p *Plan) error {
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
		return fmt.Errorf("region: no node of %s has %s of free huge pages beside the VMs, the best has %s: %s short; ask for a smaller region, or backing: shm",
			r.host.Name, size(g.SizeBytes), size(most), size(g.SizeBytes-min(most, g.SizeBytes)))
	}
	if best < 0 {
		// It may lie on several nodes, if they have room together.
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
			return fmt.Errorf("region: %s has %s of memory left beside the VMs for %s: %s short; ask for a smaller region or less memory for the VMs",
				r.host.Name, size(left), size(g.SizeBytes), size(g.SizeBytes-left))
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
		m.notes = append(m.notes, fmt.Sprintf("the region's %s on node %d: nearest to the VMs' vCPUs together, and it has room", size(g.SizeBytes), node))
	}
	return nil
}

// hostWarnings says what of the host will disturb the VMs.
func (m *maker) hostWarnings(r *room, vms []*VM) {
	h := r.host
	var bare []int
	for j := range r.nodes {
		if n := &r.nodes[j]; n.open && n.count(1) > 0 && h.Nodes[j].MemoryBytes == 0 {
			bare = append(bare, n.id)
		}
	}
	if len(bare) > 0 {
		m.notes = append(m.notes, fmt.Sprintf("%s %s of %s %s cores and no memory: no VM is put there, as all its memory would be remote", plural(len(bare), "node", "nodes"), topology.FormatList(bare), h.Name, plural(len(bare), "has", "have")))
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
		if vm.PhysBits > h.PhysBits && h.PhysBits > 0 {
			m.warnings = append(m.warnings, fmt.Sprintf("%s: %s needs %d bits of physical addresses for memory and device windows, the CPU has %d", h.Name, vm.Name, vm.PhysBits, h.PhysBits))
		}
	}
	if q := h.Limits.CPUQuota; q > 0 && float64(need) > q {
		m.warnings = append(m.warnings, fmt.Sprintf("%s: the job's cgroup gives %.3g CPUs of time to %d vCPUs: they will be stopped in every period", h.Name, q, need))
	}
}
