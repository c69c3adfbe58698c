package explain

import (
	"slices"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// A domain's placement is its pins, the binding of its memory, and the topology and the nodes that its guest sees.
// They belong together: the placement is kept, with open values filled in, or replaced as a whole by the planner's.

// kept returns the domain's own placement as a plan, if each vCPU has a host CPU of its own, each cell is on one
// node, and memory is bound nowhere else; otherwise nil.
func (l *laid) kept() *plan.VM {
	if l.partly() || !lower.Dedicated(l.pins) {
		return nil
	}
	for _, p := range l.pins {
		if c := l.host.CPU(p[0]); c == nil || !c.Online {
			return nil
		}
	}
	vm := &plan.VM{Name: "vm0", Host: l.host.Name, VCPUs: l.vcpus, MemoryBytes: l.bytes, Pins: l.pins}
	need := map[int]uint64{} // by host node
	for i, c := range l.cells {
		n := plan.Node{ID: i, VCPUs: c.vcpus, MemoryBytes: c.bytes, HostNodes: c.nodes}
		if len(c.vcpus) > 0 {
			n.HostNodes = l.spread(c.vcpus)
			if len(n.HostNodes) != 1 || len(c.nodes) > 0 && !slices.Contains(c.nodes, n.HostNodes[0]) {
				return nil
			}
		}
		for _, id := range n.HostNodes {
			need[id] += (c.bytes + c.plugged) / uint64(len(n.HostNodes))
		}
		vm.Nodes = append(vm.Nodes, n)
	}
	for id, bytes := range need {
		if k := l.host.NodeIndex(id); k < 0 || l.host.Nodes[k].MemoryBytes < bytes {
			return nil
		}
	}
	if l.x86() && !l.shape(vm) {
		return nil
	}
	l.distances(vm)
	l.pages(vm, need)
	if vm.Nodes[0].PageBytes == 0 && len(l.shortBound(vm)) > 0 && len(l.shortOfPages(l.boundTo)) == 0 {
		return nil // the pools suffice, but not on the nodes to which the memory would be bound
	}
	if vm.EmulatorCPUs = l.emulator; len(l.emulator) == 0 || len(l.onCores(l.emulator))+len(l.absent(l.emulator)) > 0 {
		vm.EmulatorCPUs = l.idle(vm)
	}
	for _, d := range l.devices {
		if d.on != nil && d.pool == "" {
			vm.Devices = append(vm.Devices, passed(l.host, d, vm.Nodes))
		}
	}
	return vm
}

// boundTo returns the host's nodes that a cell's memory is bound to.
func (l *laid) boundTo(cell int) []int { return l.cells[cell].nodes }

// shortBound returns the cells whose huge pages do not fit into the pools of a VM's nodes.
func (l *laid) shortBound(vm *plan.VM) []string {
	return l.shortOfPages(func(i int) []int { return vm.Nodes[i].HostNodes })
}

// resize reports whether the domain's huge pages need another size once its memory is bound.
func (l *laid) resize() bool { return l.want.Nodes[0].PageBytes > 0 && len(l.shortBound(l.want)) > 0 }

// partly reports whether vCPUs may be plugged in later. A single vCPU has a second one that never is (package
// domain).
func (l *laid) partly() bool { return l.spare > 0 && !(l.vcpus == 1 && l.spare == 1) }

// onCores returns the CPUs of a list that are on a core of a vCPU: vCPUs that float are on all.
func (l *laid) onCores(list []int) []int {
	if !l.pinned() {
		return list
	}
	cores := l.cores()
	var both []int
	for _, id := range list {
		if c := l.host.CPU(id); c != nil && cores[c.Core] {
			both = append(both, id)
		}
	}
	return both
}

// cores returns the host's cores on which vCPUs may run.
func (l *laid) cores() map[int]bool {
	cores := map[int]bool{}
	for _, p := range l.pins {
		for _, id := range p {
			if c := l.host.CPU(id); c != nil && c.Online {
				cores[c.Core] = true
			}
		}
	}
	return cores
}

// absent returns the CPUs of a list that the host does not have.
func (l *laid) absent(list []int) []int {
	var gone []int
	for _, id := range list {
		if c := l.host.CPU(id); c == nil || !c.Online {
			gone = append(gone, id)
		}
	}
	return gone
}

// idle returns CPUs for QEMU's other threads: cores without a vCPU, on the VM's nodes first.
func (l *laid) idle(vm *plan.VM) []int {
	nodes, cores := l.under(vm.Pins), l.cores()
	isolated := false
	for _, p := range vm.Pins {
		if c := l.host.CPU(p[0]); c != nil && c.Isolated {
			isolated = true
		}
	}
	var near, far []int
	for i := range l.host.CPUs {
		c := &l.host.CPUs[i]
		if !c.Usable() || c.Isolated && isolated || cores[c.Core] {
			continue
		}
		if far = append(far, c.ID); slices.Contains(nodes, c.Node) {
			near = append(near, c.ID)
		}
	}
	if len(near) > 0 {
		return near
	}
	return far
}

// shape finds a topology that represents the placement of the vCPUs on cores and caches; false: none exists.
func (l *laid) shape(vm *plan.VM) bool {
	packages, caches := map[int]bool{}, map[int]bool{}
	threads := 0
	first := l.host.CPU(l.pins[0][0])
	for _, p := range l.pins {
		c := l.host.CPU(p[0])
		packages[c.Package], caches[l.cache(c)] = true, true
		if c.Core == first.Core {
			threads++
		}
	}
	cells := 0
	for _, c := range l.cells {
		if len(c.vcpus) > 0 {
			cells++
		}
	}
	var own libvirtxml.DomainCPUTopology
	if l.d.CPU != nil && l.d.CPU.Topology != nil {
		own = *l.d.CPU.Topology
		own.Dies = max(own.Dies, 1)
	}
	take := func(t libvirtxml.DomainCPUTopology) bool {
		vm.Sockets, vm.Dies, vm.Cores, vm.Threads = t.Sockets, t.Dies, t.Cores, t.Threads
		return true
	}
	if l.matches(own, true) {
		return take(own)
	}
	for _, strict := range []bool{true, false} { // caches that hold unequal numbers of vCPUs cannot be represented
		for _, sockets := range []int{cells, len(packages), 1} {
			for _, dies := range []int{1, len(caches) / sockets} {
				t := libvirtxml.DomainCPUTopology{Sockets: sockets, Dies: max(dies, 1), Threads: threads}
				t.Cores = l.vcpus / (t.Sockets * t.Dies * threads)
				if l.matches(t, strict) {
					return take(t)
				}
			}
		}
	}
	return false
}

// matches reports whether vCPUs share a core in the guest exactly if their host CPUs do and, if strict, no last-level
// cache of the guest spans several of the host's.
func (l *laid) matches(t libvirtxml.DomainCPUTopology, strict bool) bool {
	t.Dies = max(t.Dies, 1)
	if t.Sockets < 1 || t.Cores < 1 || t.Threads < 1 || t.Sockets > maxVCPUs || t.Dies > maxVCPUs || t.Cores > maxVCPUs || t.Threads > maxVCPUs ||
		t.Sockets*t.Dies*t.Cores*t.Threads != l.vcpus+l.spare || t.Sockets == l.vcpus && l.vcpus > len(l.cells) {
		return false
	}
	core, guest, cache := map[int]int{}, map[int]int{}, map[int]int{} // host core → guest core, and back; guest die → host cache
	for v, p := range l.pins {
		if len(p) != 1 {
			return false
		}
		c := l.host.CPU(p[0])
		if c == nil {
			return false
		}
		g, die := v/t.Threads, v/t.Threads/t.Cores
		if k, ok := core[c.Core]; ok && k != g {
			return false
		}
		if k, ok := guest[g]; ok && k != c.Core {
			return false
		}
		if k, ok := cache[die]; ok && k != l.cache(c) && strict {
			return false
		}
		core[c.Core], guest[g], cache[die] = g, c.Core, l.cache(c)
	}
	return true
}

// cache returns the last-level cache of a CPU, by index in the host's list; -1: none. It may span several nodes.
func (l *laid) cache(c *topology.CPU) int {
	if l.caches == nil {
		l.caches = map[int]int{}
		level := map[int]int{}
		for i := range l.host.Caches {
			for _, id := range l.host.Caches[i].CPUs {
				if k := l.host.Caches[i].Level; k > max(level[id], 2) {
					l.caches[id], level[id] = i, k
				}
			}
		}
	}
	if i, ok := l.caches[c.ID]; ok {
		return i
	}
	return -1
}

// distances fills in the distances between the guest's nodes, if all of them are bound.
func (l *laid) distances(vm *plan.VM) {
	if len(vm.Nodes) < 2 || slices.ContainsFunc(vm.Nodes, func(n plan.Node) bool { return len(n.HostNodes) == 0 }) {
		return
	}
	for i := range vm.Nodes {
		for j := range vm.Nodes {
			sum, n := 0, 0
			for _, a := range vm.Nodes[i].HostNodes {
				for _, b := range vm.Nodes[j].HostNodes {
					sum, n = sum+l.host.Distance(a, b), n+1
				}
			}
			d := min(max((sum+n/2)/n, 11), 254) // ACPI has 10 for a node to itself, and more for any other
			if i == j {
				d = 10
			}
			vm.Nodes[i].Distances = append(vm.Nodes[i].Distances, d)
		}
	}
}

// pages chooses the largest huge pages of which the pools have enough for each host node's memory.
func (l *laid) pages(vm *plan.VM, need map[int]uint64) {
	var sizes []uint64
	for _, n := range l.host.Nodes {
		for _, p := range n.Pools {
			if !slices.Contains(sizes, p.PageBytes) {
				sizes = append(sizes, p.PageBytes)
			}
		}
	}
	slices.Sort(sizes)
	slices.Reverse(sizes)
	for _, page := range sizes {
		ok := true
		for _, c := range l.cells {
			ok = ok && c.bytes%page == 0 && c.plugged%page == 0
		}
		for _, n := range vm.Nodes {
			ok = ok && len(n.HostNodes) > 0
		}
		for id, bytes := range need {
			ok = ok && l.pool(id, page) >= bytes
		}
		if !ok {
			continue
		}
		for i := range vm.Nodes {
			vm.Nodes[i].PageBytes = page
		}
		return
	}
}

// pool returns the size in bytes of a node's pool of a page size.
func (l *laid) pool(node int, page uint64) uint64 {
	var bytes uint64
	if k := l.host.NodeIndex(node); k >= 0 {
		for _, p := range l.host.Nodes[k].Pools {
			if p.PageBytes == page {
				bytes += uint64(p.Total) * page
			}
		}
	}
	return bytes
}

// passed returns a device in a plan's form, on the guest's node that is nearest to it.
func passed(h *topology.Host, d device, nodes []plan.Node) plan.Device {
	p := plan.Device{Kind: "vfio", Address: d.address, Node: -1, HostNode: d.on.Node, PF: d.on.PF}
	for _, b := range d.on.BARs {
		p.BARBytes += b
	}
	best := 0
	for i, n := range nodes {
		for _, id := range n.HostNodes {
			if far := h.Distance(d.on.Node, id); d.on.Node >= 0 && (p.Node < 0 || far < best) {
				p.Node, best = i, far
			}
		}
	}
	return p
}

// cannotReplace returns the reason why the planner's placement cannot replace the domain's own; "": it can.
func (l *laid) cannotReplace() string {
	numa := numaOf(l.d)
	if !l.x86() {
		same := len(l.want.Nodes) == len(l.cells) && l.want.Threads == 1
		for i := range l.want.Nodes {
			same = same && slices.Equal(l.want.Nodes[i].VCPUs, l.cells[i].vcpus) && l.want.Nodes[i].MemoryBytes == l.cells[i].bytes
		}
		if !same {
			return "nodes and topology of " + l.arch + " guests are not written by nearmetal: pin such a domain by hand"
		}
	}
	if t := l.d.CPUTune; t != nil && len(t.CacheTune)+len(t.MemoryTune) > 0 {
		return "cachetune and memorytune name caches of the host: remove them, or pin the vCPUs by hand"
	}
	if b := l.d.MemoryBacking; b != nil && b.MemoryHugePages != nil && domain.Backing(l.want).MemoryHugePages == nil && len(l.shortOfPages(l.boundTo)) == 0 {
		return "the pools of the nodes that its memory would be bound to have too few of its huge pages: nearmetal check --fix memory.hugepages"
	}
	if numa == nil {
		return ""
	}
	if numa.Interconnects != nil || slices.ContainsFunc(numa.Cell, func(c libvirtxml.DomainCell) bool { return len(c.Caches) > 0 }) {
		return "its cells have caches and interconnects of their own (HMAT): change the cells by hand"
	}
	to := l.movesTo()
	for i, a := range numa.Cell {
		for k, b := range numa.Cell {
			if to[cellID(numa.Cell, i)] == to[cellID(numa.Cell, k)] && (a.MemAccess != b.MemAccess || a.Discard != b.Discard) {
				return "cells that become one differ in memAccess or discard: change the cells by hand"
			}
		}
	}
	return ""
}

// movesTo returns, for each cell, the wanted node of its first vCPU.
func (l *laid) movesTo() []int {
	to := make([]int, len(l.cells))
	for i, c := range l.cells {
		for k, n := range l.want.Nodes {
			if len(c.vcpus) > 0 && slices.Contains(n.VCPUs, c.vcpus[0]) {
				to[i] = k
			}
		}
	}
	return to
}

// place replaces the domain's placement by the planner's as a whole.
func place(l *laid, d *libvirtxml.Domain) bool {
	w := l.want
	if w == nil || l.keeps {
		return false
	}
	t := tune(d)
	pins := domain.Pins(w)
	t.VCPUPin, t.EmulatorPin = pins.VCPUPin, pins.EmulatorPin
	t.IOThreadPin = nil
	pinThreads(l, t, func(iothread) bool { return true })
	if d.VCPU != nil {
		d.VCPU.CPUSet, d.VCPU.Placement = "", "static"
	}
	if l.x86() {
		showCPUs(l, d)
		moveCells(l, d)
	}
	movePages(l, d)
	d.NUMATune = binding(w, d)
	return true
}

// tune returns the domain's cputune, which is made if it does not exist.
func tune(d *libvirtxml.Domain) *libvirtxml.DomainCPUTune {
	if d.CPUTune == nil {
		d.CPUTune = &libvirtxml.DomainCPUTune{}
	}
	return d.CPUTune
}

// pinThreads pins those of the disks' threads that which selects, to the CPUs of QEMU's other threads.
func pinThreads(l *laid, t *libvirtxml.DomainCPUTune, which func(iothread) bool) {
	if len(l.want.EmulatorCPUs) == 0 {
		return
	}
	pin := domain.Pins(l.want).IOThreadPin[0]
	for _, thread := range l.threads {
		if !which(thread) {
			continue
		}
		t.IOThreadPin = slices.DeleteFunc(t.IOThreadPin, func(p libvirtxml.DomainCPUTuneIOThreadPin) bool { return p.IOThread == thread.id })
		pin.IOThread = thread.id
		t.IOThreadPin = append(t.IOThreadPin, pin)
	}
}

// binding returns the numatune for w: cells are named if the guest sees some.
func binding(w *plan.VM, d *libvirtxml.Domain) *libvirtxml.DomainNUMATune {
	b := domain.Binding(w)
	if b != nil && numaOf(d) == nil {
		b.MemNodes = nil
	}
	return b
}

// showCPUs writes the wanted topology.
func showCPUs(l *laid, d *libvirtxml.Domain) {
	if d.CPU == nil {
		d.CPU = &libvirtxml.DomainCPU{}
	}
	w := l.wantedCPU()
	d.CPU.Topology = w.Topology
	if d.CPU.Mode != "" || d.CPU.Model != nil {
		d.CPU.Cache = w.Cache
	}
	if d.CPU.Mode != "host-passthrough" {
		return
	}
	for _, f := range w.Features {
		if !slices.ContainsFunc(d.CPU.Features, func(own libvirtxml.DomainCPUFeature) bool { return own.Name == f.Name }) {
			d.CPU.Features = append(d.CPU.Features, f)
		}
	}
}

// moveCells writes the wanted nodes, and updates references to the old cells: memory devices, expanders.
func moveCells(l *laid, d *libvirtxml.Domain) {
	old := numaOf(d)
	if old == nil && len(l.want.Nodes) < 2 {
		return
	}
	numa := l.wantedCPU().Numa
	if old != nil {
		to := l.movesTo()
		for i, c := range old.Cell {
			k := &numa.Cell[to[cellID(old.Cell, i)]]
			k.MemAccess, k.Discard = c.MemAccess, c.Discard
		}
		for i := range d.Devices.Memorydevs {
			if n := d.Devices.Memorydevs[i].Target.Node; n != nil && n.Value < uint(len(to)) {
				n.Value = uint(to[n.Value])
			}
		}
		for i := range d.Devices.Controllers {
			if p := d.Devices.Controllers[i].PCI; p != nil && p.Target != nil && p.Target.NUMANode != nil && *p.Target.NUMANode < uint(len(to)) {
				*p.Target.NUMANode = uint(to[*p.Target.NUMANode])
			}
		}
		fillNew(numa, old)
	}
	d.CPU.Numa = numa
}

// movePages changes huge pages to the size of which the wanted nodes have enough, in the new cells.
func movePages(l *laid, d *libvirtxml.Domain) {
	if d.MemoryBacking == nil || d.MemoryBacking.MemoryHugePages == nil {
		return
	}
	own := d.MemoryBacking.MemoryHugePages
	if w := domain.Backing(l.want).MemoryHugePages; w != nil {
		own.Hugepages = w.Hugepages
	} else if len(own.Hugepages) > 1 { // for several cells; the row of pages reports that the pools are too small
		own.Hugepages = own.Hugepages[:1]
	}
	if len(own.Hugepages) > 0 && (numaOf(d) == nil || len(own.Hugepages) == 1) {
		own.Hugepages[0].Nodeset = ""
	}
}

// fillNew sets memAccess and discard of new cells to the values of the old ones.
func fillNew(numa, old *libvirtxml.DomainNuma) {
	for i := range numa.Cell {
		if k := &numa.Cell[i]; k.MemAccess == "" && k.Discard == "" {
			k.MemAccess, k.Discard = old.Cell[0].MemAccess, old.Cell[0].Discard
		}
	}
}

// wantedCPU returns the cpu element of the wanted VM.
func (l *laid) wantedCPU() *libvirtxml.DomainCPU {
	c := domain.CPU(l.want, host.KVM, l.low(), false)
	if l.vcpus == 1 && l.spare == 0 {
		c.Topology.Sockets = 1
		if c.Numa != nil {
			c.Numa.Cell[0].CPUs = "0"
		}
	}
	return c
}
