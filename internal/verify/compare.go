package verify

import (
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// Compare compares the facts of a VM with its plan. region is the plan's (nil: none) and shared the file that the
// cluster's VMs have mapped for it (see regionFile). If the VM's backend cannot read it (nil facts), the only row
// reports that.
func Compare(p *plan.VM, region *plan.Region, f *backend.Facts, shared string) []Row {
	r := &rows{vm: p.Name}
	if f == nil {
		r.note("the host's view", "as planned", "cannot be read: the backend has no way to")
		return r.list
	}
	if f.Ended {
		r.add(false, by(f), "runs", "has ended")
		return r.list
	}
	if len(f.Settings) > 0 {
		for _, s := range f.Settings {
			if s.Unread {
				r.note(s.What, s.Planned, s.Found)
			} else {
				r.add(s.OK, s.What, s.Planned, s.Found)
			}
		}
		return r.list
	}
	r.cpus(p, f)
	r.threads(p, f)
	r.topology(p, f)
	r.memory(p, f)
	r.devices(p, f)
	if region != nil {
		r.region(p, region, f, shared)
	}
	return r.list
}

// by returns the name of the program that runs a VM.
func by(f *backend.Facts) string {
	if f.By == "" {
		return "the hypervisor"
	}
	return f.By
}

// unread adds a row if a part could not be read, and reports whether it did.
func (r *rows) unread(f *backend.Facts, p backend.Part, planned string) bool {
	why, ok := f.Unread[p]
	if ok {
		r.note(string(p), planned, "cannot be read: "+why)
	}
	return ok
}

// list formats numbers for people.
func list(ids []int) string {
	if len(ids) == 0 {
		return "none"
	}
	return topology.FormatList(ids)
}

// equal compares sets.
func equal(a, b []int) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// within reports whether all of a are in b.
func within(a, b []int) bool {
	return !slices.ContainsFunc(a, func(n int) bool { return !slices.Contains(b, n) })
}

// cpus compares the vCPUs' threads with the pins. Without pins a thread may run on any CPU that nearmetal itself may
// use; a single row reports all such threads.
func (r *rows) cpus(p *plan.VM, f *backend.Facts) {
	if r.unread(f, backend.PartCPUs, words.Count(p.VCPUs, "vCPU", "vCPUs")) {
		return
	}
	r.add(len(f.VCPUs) == p.VCPUs, "vCPUs", fmt.Sprint(p.VCPUs), fmt.Sprint(len(f.VCPUs)))
	anywhere := "any of " + list(f.Own)
	var free []int
	for _, c := range f.VCPUs {
		planned := f.Own
		text := anywhere
		if c.Index >= 0 && c.Index < len(p.Pins) && len(p.Pins[c.Index]) > 0 {
			planned = p.Pins[c.Index]
			text = list(planned)
		} else if equal(c.CPUs, f.Own) {
			free = append(free, c.Index)
			continue
		}
		r.add(equal(planned, c.CPUs), fmt.Sprintf("CPUs of vCPU %d", c.Index), text, list(c.CPUs))
	}
	if len(free) > 0 {
		what := "CPUs of vCPUs "
		if len(free) == 1 {
			what = "CPUs of vCPU "
		}
		r.add(true, what+list(free), anywhere, anywhere)
	}
}

// threads compares the threads that are not a vCPU (emulator, I/O, workers) with the plan.
func (r *rows) threads(p *plan.VM, f *backend.Facts) {
	planned, text := p.EmulatorCPUs, list(p.EmulatorCPUs)
	if len(planned) == 0 {
		planned, text = f.Own, "any of "+list(f.Own)
	}
	what := fmt.Sprintf("CPUs of %s's other threads", by(f))
	if r.unread(f, backend.PartThreads, text) {
		return
	}
	ok, as := true, 0
	var others []string
	for _, t := range f.Threads {
		// QEMU binds the threads of its thread-context objects to the node whose memory they allocate at the start.
		// They are idle after that.
		taker := len(p.EmulatorCPUs) == 0 && strings.HasPrefix(t.Name, "TC ") && within(t.CPUs, f.Own)
		if taker || equal(t.CPUs, planned) {
			as++
			continue
		}
		ok = false
		if len(others) < 4 {
			others = append(others, fmt.Sprintf("%s of %q", list(t.CPUs), t.Name))
		} else {
			others[3] = "others"
		}
	}
	found := fmt.Sprintf("%s (%s)", text, words.Count(as, "thread", "threads"))
	if as == 0 {
		found = ""
	}
	if !ok {
		found = strings.TrimPrefix(found+", "+strings.Join(others, ", "), ", ")
	}
	r.add(ok && as > 0, what, text, found)
}

// shape formats a topology.
func shape(sockets, dies, cores, threads int) string {
	return fmt.Sprintf("%s x %s x %s x %s", words.Count(sockets, "socket", "sockets"), words.Count(dies, "die", "dies"), words.Count(cores, "core", "cores"), words.Count(threads, "thread", "threads"))
}

// topology compares the backend's sockets and nodes with the plan.
func (r *rows) topology(p *plan.VM, f *backend.Facts) {
	if _, bad := f.Unread[backend.PartCPUs]; bad {
		return
	}
	var wrong []string
	nodes := map[int][]int{}
	sockets, dies, cores, threads := 0, 0, 0, 0
	for _, c := range f.VCPUs {
		sockets, dies, cores, threads = max(sockets, c.Socket+1), max(dies, c.Die+1), max(cores, c.Core+1), max(threads, c.Thread+1)
		nodes[c.Node] = append(nodes[c.Node], c.Index)
		i := c.Index
		want := backend.VCPU{Thread: i % p.Threads, Core: i / p.Threads % p.Cores, Die: i / p.Threads / p.Cores % p.Dies, Socket: i / p.Threads / p.Cores / p.Dies}
		if c.Socket != want.Socket || c.Die != want.Die || c.Core != want.Core || c.Thread != want.Thread {
			wrong = append(wrong, fmt.Sprintf("vCPU %d is socket %d, die %d, core %d, thread %d", i, c.Socket, c.Die, c.Core, c.Thread))
		}
	}
	planned, found := shape(p.Sockets, p.Dies, p.Cores, p.Threads), shape(sockets, dies, cores, threads)
	if len(wrong) > 0 && planned == found {
		found += ", and " + wrong[0]
	}
	r.add(len(wrong) == 0 && planned == found, "topology in "+by(f), planned, found)
	for _, n := range p.Nodes {
		r.add(equal(n.VCPUs, nodes[n.ID]), fmt.Sprintf("vCPUs of node %d in %s", n.ID, by(f)), list(n.VCPUs), list(nodes[n.ID]))
	}
}

// memory compares the memory of each node with the plan.
func (r *rows) memory(p *plan.VM, f *backend.Facts) {
	if r.unread(f, backend.PartMemory, words.Bytes(p.MemoryBytes)) {
		return
	}
	nodes := p.Nodes
	if len(nodes) == 0 {
		nodes = []plan.Node{{ID: -1, MemoryBytes: p.MemoryBytes}}
	}
	for i := range nodes {
		n := &nodes[i]
		if n.MemoryBytes == 0 {
			continue
		}
		k := slices.IndexFunc(f.Blocks, func(b backend.Block) bool { return b.Node == n.ID })
		of := ""
		if n.ID >= 0 {
			of = fmt.Sprintf(" of node %d", n.ID)
		}
		if k < 0 || f.Blocks[k].Mapping == nil {
			r.add(false, "memory"+of, words.Bytes(n.MemoryBytes), "none")
			continue
		}
		b := &f.Blocks[k]
		r.add(b.Bytes == n.MemoryBytes, "memory"+of, words.Bytes(n.MemoryBytes), words.Bytes(b.Bytes))
		r.placed(b.Mapping, of, n.HostNodes, memoryPolicy(n.HostNodes))
		r.pages(b.Mapping, of, n.PageBytes, b.Bytes)
	}
}

// memoryPolicy returns the policy, in the format of numa_maps, of memory bound to host nodes.
func memoryPolicy(nodes []int) string {
	switch len(nodes) {
	case 0:
		return "default"
	case 1:
		return fmt.Sprintf("bind:%d", nodes[0])
	}
	return "interleave:" + topology.FormatList(nodes)
}

// placed compares the policy and the pages of a mapping with the host nodes where the plan places them. Unbound memory
// may be anywhere.
func (r *rows) placed(m *backend.Mapping, of string, nodes []int, policy string) {
	if m.Policy == "" {
		r.note("host nodes of the memory"+of, policy, "this kernel reports no nodes")
		return
	}
	// Flags follow the mode: bind=static:0.
	mode, at, _ := strings.Cut(m.Policy, ":")
	mode, _, _ = strings.Cut(mode, "=")
	found := mode
	if at != "" {
		found += ":" + at
	}
	r.add(found == policy, "policy of the memory"+of, policy, m.Policy)
	planned, ok := "any host node", true
	if len(nodes) > 0 {
		planned = "host " + nodeList(nodes)
	}
	var on []int
	for node := range m.OnNode {
		on = append(on, node)
	}
	slices.Sort(on)
	var parts []string
	for _, node := range on {
		parts = append(parts, fmt.Sprintf("%s on host node %d", words.Bytes(m.OnNode[node]), node))
		ok = ok && (len(nodes) == 0 || slices.Contains(nodes, node))
	}
	if parts == nil {
		parts = []string{"no page in use"}
	}
	r.add(ok, "pages"+of, planned, strings.Join(parts, ", "))
}

func nodeList(nodes []int) string {
	if len(nodes) == 1 {
		return fmt.Sprintf("node %d", nodes[0])
	}
	return "nodes " + list(nodes)
}

// ordinaryMax is the largest page that is not a huge page, in bytes: 64 KiB on some Arm kernels.
const ordinaryMax = 64 << 10

// pages compares the size of pages with the plan: 0 means ordinary pages. Huge pages must all be allocated at the start
// (want bytes of them), because otherwise a job would fail during its run for lack of one.
func (r *rows) pages(m *backend.Mapping, of string, page, want uint64) {
	found := words.Bytes(m.PageBytes)
	if page == 0 || page <= ordinaryMax {
		if m.HugeBytes > 0 {
			found += fmt.Sprintf(", %s of %s in transparent huge pages", words.Bytes(m.HugeBytes), words.Bytes(m.Present()))
		}
		r.add(m.PageBytes <= ordinaryMax, "page size"+of, "ordinary", found)
		return
	}
	planned := words.Bytes(page) + ", all taken"
	ok := m.PageBytes == page
	if have := m.Present(); m.Policy == "" || have >= want {
		found += ", all taken"
	} else {
		found += fmt.Sprintf(", %s of %s taken", words.Bytes(have), words.Bytes(want))
		ok = false
	}
	r.add(ok, "page size"+of, planned, found)
}

// devices compares the functions of the host, and their places in the guest, with the plan.
func (r *rows) devices(p *plan.VM, f *backend.Facts) {
	if len(p.Devices) == 0 || r.unread(f, backend.PartDevices, words.Count(len(p.Devices), "device", "devices")) {
		return
	}
	for i := range p.Devices {
		d := &p.Devices[i]
		node := d.Node
		if len(p.Nodes) < 2 {
			node = -1 // with one node, everything is on it
		}
		what, planned := "device "+d.Address, place(node)
		k := slices.IndexFunc(f.Devices, func(x backend.Device) bool { return x.Host == d.Address })
		if k < 0 {
			r.add(false, what, planned, "not in the VM")
			continue
		}
		x := f.Devices[k]
		found := place(-1)
		if len(p.Nodes) > 1 {
			found = place(x.Node)
		}
		text := found + ", port " + x.Port
		if x.Bus >= 0 {
			text += fmt.Sprintf(", expander on bus %d", x.Bus)
		}
		r.add(found == planned, what, planned, text)
	}
}

// place describes where a device is: on a guest node, or on the VM's own root.
func place(node int) string {
	if node < 0 {
		return "the VM's own PCI root"
	}
	return fmt.Sprintf("node %d", node)
}

// regionFile returns the file that most VMs have mapped as their region.
func regionFile(facts []*backend.Facts) string {
	count := map[string]int{}
	best := ""
	for _, f := range facts {
		if f == nil || f.Region == nil {
			continue
		}
		s := f.Region.File
		if count[s]++; best == "" || count[s] > count[best] {
			best = s
		}
	}
	return best
}

// region compares the mapping of the region with the plan, and with the other VMs' mappings.
func (r *rows) region(p *plan.VM, reg *plan.Region, f *backend.Facts, shared string) {
	planned := words.Bytes(reg.SizeBytes) + ", shared, one file for all VMs"
	if r.unread(f, backend.PartRegion, planned) {
		return
	}
	m := f.Region
	if m == nil {
		r.add(false, "region", planned, "not mapped")
		return
	}
	found := words.Bytes(m.FileBytes)
	if m.Shared {
		found += ", shared"
	}
	if m.File == shared {
		found += ", one file for all VMs"
	} else {
		found += ", a file of its own"
	}
	r.add(found == planned, "region", planned, found)
	// The region is made and bound before the VM gets it, so its pages show where it is, and the VM's policy does not.
	node := reg.HostNode
	for _, h := range reg.Hosts {
		if h.Host == p.Host {
			node = h.HostNode
		}
	}
	var nodes []int
	policy := m.Policy
	if node >= 0 {
		nodes, policy = []int{node}, memoryPolicy([]int{node})
	}
	r.placed(m, " of the region", nodes, policy)
	if reg.Backing == "hugetlb" {
		page := reg.PageBytes
		if page == 0 { // any huge page size
			page = max(m.PageBytes, 2<<20)
		}
		r.pages(m, " of the region", page, 0)
	} else {
		r.pages(m, " of the region", 0, 0)
	}
}
