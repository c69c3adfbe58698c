package verify

import (
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// CompareGuest compares what a guest's kernel reports with the plan of its VM. region is the plan's, nil: none.
func CompareGuest(p *plan.VM, region *plan.Region, g *Guest) []Row {
	r := &rows{vm: p.Name}
	if g.Host == nil {
		r.note("guest", "its own view", "cannot be read: "+g.Error)
		return r.list
	}
	r.guestTopology(p, g.Host)
	r.guestNodes(p, region, g.Host)
	r.guestCaches(p, g.Host)
	r.guestDevices(p, g.Host)
	if region != nil {
		r.guestRegion(region, g)
	}
	return r.list
}

// comparePromise compares the region that a VM's backend has promised with the guest's device.
func comparePromise(v *VM, g *Guest) []Row {
	if v.Region == 0 || g.Host == nil {
		return nil
	}
	r := &rows{vm: v.Plan.Name}
	r.guestRegion(&plan.Region{Device: "ivshmem", SizeBytes: v.Region}, g)
	if last := &r.list[len(r.list)-1]; last.Status == Differs {
		last.Found += ": " + v.RegionLook
	}
	return r.list
}

// online returns the CPUs that run in the guest.
func online(h *topology.Host) []topology.CPU {
	var cpus []topology.CPU
	for _, c := range h.CPUs {
		if c.Online {
			cpus = append(cpus, c)
		}
	}
	return cpus
}

// guestTopology compares the guest's sockets, dies, cores and threads with the plan: their number, and which vCPUs are
// in each.
func (r *rows) guestTopology(p *plan.VM, h *topology.Host) {
	cpus := online(h)
	ids := func(of func(c *topology.CPU) int) (map[int][]int, int) {
		m := map[int][]int{}
		for i := range cpus {
			m[of(&cpus[i])] = append(m[of(&cpus[i])], cpus[i].ID)
		}
		return m, len(m)
	}
	sockets, s := ids(func(c *topology.CPU) int { return c.Package })
	dies, d := ids(func(c *topology.CPU) int { return c.Die })
	cores, c := ids(func(c *topology.CPU) int { return c.Core })
	planned := shape(p.Sockets, p.Dies, p.Cores, p.Threads)
	found := fmt.Sprintf("%s, %s, %s, %s in all", words.Count(s, "socket", "sockets"), words.Count(d, "die", "dies"), words.Count(c, "core", "cores"), words.Count(len(cpus), "thread", "threads"))
	ok := false
	if s > 0 && d%s == 0 && c%d == 0 && len(cpus)%c == 0 {
		found = shape(s, d/s, c/d, len(cpus)/c)
		ok = found == planned
	}
	// The vCPUs of a core, die or socket have consecutive numbers.
	per := p.Threads
	for _, level := range []struct {
		name   string
		groups map[int][]int
		of     int
	}{{"core", cores, 1}, {"die", dies, p.Cores}, {"socket", sockets, p.Dies}} {
		per *= level.of
		for _, ids := range level.groups {
			if ok && (ids[0]%per != 0 || len(ids) != per || ids[per-1] != ids[0]+per-1) {
				ok = false
				found += fmt.Sprintf(", and vCPUs %s on one %s", list(ids), level.name)
			}
		}
	}
	const what = "topology in the guest"
	if !ok && p.Dies > 1 && found == shape(p.Sockets, 1, p.Dies*p.Cores, p.Threads) {
		r.note(what, planned, found+": the hypervisor or the guest's kernel does not show dies")
		return
	}
	r.add(ok, what, planned, found)
}

// kernelShare returns by how many bytes a node in the guest may be smaller than its memory. The kernel excludes the
// pages that hold its descriptions of pages (1/64 of the memory), other tables proportional to the memory (as much
// again) and, on the first node, itself, the initramfs and the firmware's tables. bounce means that the kernel's bounce
// buffers are also on the node (bounceNode).
func kernelShare(first, bounce bool, bytes uint64) uint64 {
	share := bytes/32 + 8<<20
	if first {
		share += 64 << 20
	}
	if bounce {
		share += 64 << 20
	}
	return share
}

// bounceNode returns the position of the node that has the 64 MiB of the kernel's bounce buffers, -1: there are none.
// The kernel makes them if there can be memory above 4 GiB: in a VM of more than 3 GiB, or one that has an NVDIMM. They
// are at the top of the memory below 4 GiB, since memblock allocates from there downwards. QEMU's q35 keeps 2 GiB
// there, and all memory of a VM with less than 2.75 GiB.
func bounceNode(p *plan.VM, nodes []plan.Node, region *plan.Region) int {
	if p.MemoryBytes <= 3<<30 && (region == nil || region.Device != "devdax") {
		return -1
	}
	low := p.MemoryBytes
	if low >= 11<<28 {
		low = 2 << 30
	}
	var end uint64
	last := 0
	for i, n := range nodes {
		if end < low && n.MemoryBytes > 0 {
			last = i
		}
		end += n.MemoryBytes
	}
	return last
}

// guestNodes compares the guest's nodes with the plan.
func (r *rows) guestNodes(p *plan.VM, region *plan.Region, h *topology.Host) {
	nodes := p.Nodes
	if len(nodes) == 0 {
		nodes = []plan.Node{{VCPUs: seq(p.VCPUs), MemoryBytes: p.MemoryBytes}}
	}
	bounce := bounceNode(p, nodes, region)
	var planned, found []int
	for _, n := range nodes {
		planned = append(planned, n.ID)
	}
	for i := range h.Nodes {
		found = append(found, h.Nodes[i].ID)
	}
	r.add(slices.Equal(planned, found), "nodes in the guest", list(planned), list(found))
	for i, n := range nodes {
		k := h.NodeIndex(n.ID)
		if k < 0 {
			continue // reported already
		}
		has := &h.Nodes[k]
		of := fmt.Sprintf("of node %d in the guest", n.ID)
		r.add(equal(n.VCPUs, has.CPUs), "vCPUs "+of, list(n.VCPUs), list(has.CPUs))
		least := uint64(0)
		if share := kernelShare(i == 0, i == bounce, n.MemoryBytes); n.MemoryBytes > share {
			least = n.MemoryBytes - share
		}
		r.add(has.MemoryBytes <= n.MemoryBytes && has.MemoryBytes >= least && (has.MemoryBytes > 0 || n.MemoryBytes == 0),
			"memory "+of, words.Bytes(n.MemoryBytes)+" less the kernel's share", words.Bytes(has.MemoryBytes))
		if len(nodes) == 1 || len(nodes) != len(h.Nodes) {
			continue
		}
		want := n.Distances
		if len(want) == 0 {
			want = make([]int, len(nodes))
			for j := range want {
				if want[j] = 20; j == i { // ACPI's default if no distance is defined
					want[j] = 10
				}
			}
		}
		r.add(slices.Equal(want, has.Distances), "distances "+of, numbers(want), numbers(has.Distances))
	}
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func numbers(n []int) string { return strings.Trim(fmt.Sprint(n), "[]") }

// guestCaches compares the last-level caches that the guest sees with those below its vCPUs. A hypervisor shows one for
// each die. A cache that appears smaller to the guest than it is does no harm. If the guest believes that vCPUs share a
// cache which they do not share, the row is only a note.
func (r *rows) guestCaches(p *plan.VM, h *topology.Host) {
	if len(p.L3) == 0 {
		return
	}
	groups := map[int][]int{}
	for _, c := range online(h) {
		if c.L3 >= 0 {
			groups[c.L3] = append(groups[c.L3], c.ID)
		}
	}
	var found [][]int
	for i := 0; i < len(h.CPUs); i++ {
		if groups[i] != nil {
			found = append(found, groups[i])
		}
	}
	const what = "last-level caches in the guest"
	why := "the hypervisor or the guest's kernel does not show dies"
	if p.Dies == 1 {
		why = "the hypervisor shows one a die, and equal dies only"
	}
	planned, text := groupText(p.L3), groupText(found)
	if len(found) == 0 {
		r.note(what, planned, "the guest knows of none")
		return
	}
	cache := map[int]int{}
	for i, g := range p.L3 {
		for _, v := range g {
			cache[v] = i
		}
	}
	for _, g := range found {
		for _, v := range g {
			if cache[v] != cache[g[0]] {
				r.note(what, planned, text+": "+why)
				return
			}
		}
	}
	r.add(true, what, planned, text)
}

func groupText(groups [][]int) string {
	var parts []string
	for _, g := range groups {
		parts = append(parts, list(g))
	}
	return strings.Join(parts, " | ")
}

// guestDevices compares the number of functions that the guest sees on each of its nodes, below a root of that node's
// own, with the plan. A VM of one node has no such roots.
func (r *rows) guestDevices(p *plan.VM, h *topology.Host) {
	if len(p.Nodes) < 2 {
		return
	}
	for _, n := range p.Nodes {
		want, have := 0, 0
		for i := range p.Devices {
			if p.Devices[i].Node == n.ID {
				want++
			}
		}
		for i := range h.Devices {
			if d := &h.Devices[i]; d.Root != ownRoot && len(d.Bridges) > 0 && d.Node == n.ID {
				have++
			}
		}
		if want > 0 || have > 0 {
			r.add(have == want, fmt.Sprintf("devices on node %d in the guest", n.ID), fmt.Sprint(want), fmt.Sprint(have))
		}
	}
}

// ownRoot is the root above the VM's own devices.
const ownRoot = "pci0000:00"

// The region's PCI device (docs/specs/ivshmem-spec.rst of QEMU).
const (
	ivshmemVendor = 0x1af4
	ivshmemDevice = 0x1110
)

// daxStart is the number of bytes at the start of its region's file that a dax device does not show.
const daxStart = 2 << 20

// guestRegion compares the device that shows the region with the plan.
func (r *rows) guestRegion(reg *plan.Region, g *Guest) {
	planned := fmt.Sprintf("%s, %s", reg.Device, words.Bytes(reg.SizeBytes))
	if reg.Device == "devdax" {
		found := "no dax device"
		ok := g.Dax > 0 && g.Dax <= reg.SizeBytes && g.Dax+daxStart >= reg.SizeBytes
		if g.Dax > 0 {
			found = "devdax, " + words.Bytes(g.Dax)
			if ok {
				found += " behind its label"
			}
		}
		r.add(ok, "region in the guest", planned, found)
		return
	}
	found, ok := "no ivshmem device", false
	for i := range g.Host.Devices {
		d := &g.Host.Devices[i]
		if d.VendorID != ivshmemVendor || d.DeviceID != ivshmemDevice {
			continue
		}
		found = "ivshmem, no memory"
		for _, b := range d.BARs {
			if b >= 1<<20 { // smaller ones are registers
				found, ok = "ivshmem, "+words.Bytes(b), b == reg.SizeBytes
			}
		}
	}
	r.add(ok, "region in the guest", planned, found)
}
