package explain

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// laid is a domain placed on a host.
type laid struct {
	d        *libvirtxml.Domain
	host     *topology.Host
	arch     string // of the guest, as libvirt names it
	vcpus    int    // number plugged in
	spare    int    // number that can be added
	bytes    uint64 // of memory at its start
	plugged  uint64 // bytes of memory devices, in addition
	machine  string // result of domain.Machine
	pins     [][]int
	emulator []int // nil: not pinned
	threads  []iothread
	cells    []cell // a single one if the guest sees no nodes
	devices  []device
	unread   []string          // devices of the host whose address is not in the XML
	networks map[string]string // as in Domain
	// want is the wanted placement: the domain's own, if it is complete, with open values filled in (keeps); else the
	// planner's choice. nil: no placement exists.
	want  *plan.VM
	keeps bool
	why   string // why none exists
	noKVM string // as in Domain

	caches map[int]int // CPU → index of its last-level cache in the host's list; see cache
}

// iothread is a thread of QEMU for disks.
type iothread struct {
	id   uint
	cpus []int // nil: not pinned
}

// cell is a guest's node.
type cell struct {
	vcpus   []int
	bytes   uint64
	plugged uint64 // bytes of the memory devices on it
	mode    string // binding mode of its memory; "": none
	nodes   []int  // host nodes that its memory is bound to
}

// device is a PCI function of the host in the domain.
type device struct {
	address string
	on      *topology.Device // nil: the host does not have it
	pool    string           // network from whose VFs libvirtd chooses when the domain starts
	shown   int              // guest node that it is behind; -1: none
}

// lay reads the properties that the rows need. The error names the inconsistent part of the domain.
func lay(e *Domain, h *topology.Host) (*laid, error) {
	l := &laid{d: e.xml, host: h, arch: archOf(e.xml, h), machine: domain.Machine(e.xml), networks: e.Networks, noKVM: printable(e.NoKVM)}
	l.vcpus = 1
	if v := l.d.VCPU; v != nil {
		if v.Value < 1 || v.Value > maxVCPUs || v.Current > v.Value {
			return nil, fmt.Errorf("vcpu: %d of %d: 1 to %d", v.Current, v.Value, maxVCPUs)
		}
		l.vcpus = int(v.Value)
		if v.Current > 0 {
			l.vcpus, l.spare = int(v.Current), int(v.Value-v.Current)
		}
	}
	if l.d.Devices == nil {
		l.d.Devices = &libvirtxml.DomainDeviceList{}
	}
	if err := l.readMemory(); err != nil {
		return nil, err
	}
	if err := l.readPins(); err != nil {
		return nil, err
	}
	if err := l.readThreads(); err != nil {
		return nil, err
	}
	if err := l.readCells(); err != nil {
		return nil, err
	}
	l.readDevices()
	if l.want = l.kept(); l.want != nil {
		l.keeps = true
		return l, nil
	}
	l.plan()
	return l, nil
}

// archOf returns the architecture of a domain's guest, which is by default the host's, as in libvirt.
func archOf(d *libvirtxml.Domain, h *topology.Host) string {
	switch {
	case d.OS != nil && d.OS.Type != nil && d.OS.Type.Arch != "":
		return printable(d.OS.Type.Arch)
	case h.Arch != "":
		return printable(h.Arch)
	}
	return "x86_64"
}

// x86 reports whether the guest has the architecture that package domain writes.
func (l *laid) x86() bool { return l.arch == "x86_64" || l.arch == "i686" }

// foreign reports whether the host's KVM cannot run the guest.
func (l *laid) foreign() bool {
	family := func(arch string) string {
		switch arch {
		case "i386", "i486", "i586", "i686":
			return "x86_64"
		case "armv7l", "armv6l", "arm":
			return "aarch64"
		case "ppc64le":
			return "ppc64"
		}
		return arch
	}
	return l.host.Arch != "" && family(l.arch) != family(l.host.Arch)
}

// readMemory reads the memory size. With cells it is their sum, as in libvirt.
func (l *laid) readMemory() error {
	for i, m := range l.d.Devices.Memorydevs {
		if m.Target == nil || m.Target.Size == nil {
			return fmt.Errorf("memory device %d has no size", i)
		}
		n, err := size(m.Target.Size.Value, m.Target.Size.Unit)
		if err != nil {
			return fmt.Errorf("memory device %d: %w", i, err)
		}
		l.plugged += n
	}
	if numa := numaOf(l.d); numa != nil {
		for i, c := range numa.Cell {
			n, err := size(c.Memory, c.Unit)
			if err != nil {
				return fmt.Errorf("cell %d: %w", i, err)
			}
			l.bytes += n
		}
	}
	if m := l.d.Memory; m != nil && l.bytes == 0 {
		all, err := size(m.Value, m.Unit)
		if err != nil {
			return fmt.Errorf("memory: %w", err)
		}
		if all < l.plugged {
			return fmt.Errorf("memory: its devices have more than all of it")
		}
		l.bytes = all - l.plugged
	}
	switch total := l.bytes + l.plugged; {
	case l.bytes == 0:
		return fmt.Errorf("it has no memory: neither a memory element nor a cell states its size")
	case total > maxMemory:
		return fmt.Errorf("%d bytes of memory: at most 64 TiB", total)
	}
	return nil
}

// numaOf returns the guest's nodes; nil: it sees none.
func numaOf(d *libvirtxml.Domain) *libvirtxml.DomainNuma {
	if d.CPU == nil || d.CPU.Numa == nil || len(d.CPU.Numa.Cell) == 0 {
		return nil
	}
	return d.CPU.Numa
}

// readThreads reads the disks' threads. Those without an ID get the lowest free one, as in libvirt.
func (l *laid) readThreads() error {
	const most = 1024
	taken := map[uint]bool{}
	if ids := l.d.IOThreadIDs; ids != nil {
		for _, t := range ids.IOThreads {
			if taken[t.ID] || t.ID == 0 || len(l.threads) == most {
				return fmt.Errorf("iothread %d: threads are numbered from 1, each once, and are at most %d", t.ID, most)
			}
			taken[t.ID] = true
			l.threads = append(l.threads, iothread{id: t.ID})
		}
	}
	if l.d.IOThreads > most {
		return fmt.Errorf("iothreads: %d: at most %d", l.d.IOThreads, most)
	}
	for id := uint(1); uint(len(l.threads)) < l.d.IOThreads; id++ {
		if !taken[id] {
			l.threads = append(l.threads, iothread{id: id})
		}
	}
	if l.d.CPUTune == nil {
		return nil
	}
	for _, p := range l.d.CPUTune.IOThreadPin {
		list, err := cpus(p.CPUSet)
		if err != nil {
			return fmt.Errorf("iothreadpin of thread %d: %w", p.IOThread, err)
		}
		for i := range l.threads {
			if l.threads[i].id == p.IOThread {
				l.threads[i].cpus = list
			}
		}
	}
	return nil
}

func (l *laid) readPins() error {
	l.pins = make([][]int, l.vcpus)
	if v := l.d.VCPU; v != nil && v.CPUSet != "" {
		all, err := cpus(v.CPUSet)
		if err != nil {
			return fmt.Errorf("vcpu: %w", err)
		}
		for i := range l.pins {
			l.pins[i] = all
		}
		l.emulator = all
	}
	t := l.d.CPUTune
	if t == nil {
		return nil
	}
	for _, p := range t.VCPUPin {
		list, err := cpus(p.CPUSet)
		if err != nil {
			return fmt.Errorf("vcpupin of vCPU %d: %w", p.VCPU, err)
		}
		if p.VCPU < uint(l.vcpus) { // libvirt ignores the others
			l.pins[p.VCPU] = list
		}
	}
	if p := t.EmulatorPin; p != nil {
		list, err := cpus(p.CPUSet)
		if err != nil {
			return fmt.Errorf("emulatorpin: %w", err)
		}
		l.emulator = list
	}
	return nil
}

func (l *laid) readCells() error {
	whole := cell{bytes: l.bytes, plugged: l.plugged}
	for v := 0; v < l.vcpus; v++ {
		whole.vcpus = append(whole.vcpus, v)
	}
	nt := l.d.NUMATune
	if nt != nil && nt.Memory != nil {
		var err error
		if whole.nodes, err = cpus(nt.Memory.Nodeset); err != nil {
			return fmt.Errorf("numatune: %w", err)
		}
		if whole.mode = nt.Memory.Mode; whole.mode == "" && len(whole.nodes) > 0 {
			whole.mode = "strict"
		}
		if len(whole.nodes) == 0 {
			whole.mode = "" // placement auto: numad chooses
		}
	}
	numa := numaOf(l.d)
	if numa == nil {
		l.cells = []cell{whole}
		return nil
	}
	list := numa.Cell
	if len(list) > 128 {
		return fmt.Errorf("%d cells: QEMU accepts 128", len(list))
	}
	l.cells = make([]cell, len(list))
	seen := make([]bool, len(list))
	for i, c := range list {
		id := cellID(list, i)
		if id < 0 || id >= len(list) || seen[id] {
			return fmt.Errorf("cell %d: cells are numbered from 0, each once", id)
		}
		seen[id] = true
		k := &l.cells[id]
		var err error
		if k.bytes, err = size(c.Memory, c.Unit); err != nil {
			return fmt.Errorf("cell %d: %w", id, err)
		}
		if k.vcpus, err = cpus(c.CPUs); err != nil {
			return fmt.Errorf("cell %d: %w", id, err)
		}
		k.vcpus = slices.DeleteFunc(k.vcpus, func(v int) bool { return v >= l.vcpus })
		k.mode, k.nodes = whole.mode, whole.nodes
	}
	named := make([]bool, l.vcpus)
	for _, c := range l.cells {
		for _, v := range c.vcpus {
			named[v] = true
		}
	}
	for v, ok := range named {
		if !ok { // libvirt puts it into the first cell
			l.cells[0].vcpus = append(l.cells[0].vcpus, v)
		}
	}
	slices.Sort(l.cells[0].vcpus)
	for i, m := range l.d.Devices.Memorydevs {
		on := uint(0)
		if m.Target.Node != nil {
			on = m.Target.Node.Value
		}
		if on >= uint(len(l.cells)) {
			return fmt.Errorf("memory device %d is on cell %d: there are %d", i, on, len(l.cells))
		}
		bytes, err := size(m.Target.Size.Value, m.Target.Size.Unit)
		if err != nil {
			return err
		}
		l.cells[on].plugged += bytes
	}
	if nt == nil {
		return nil
	}
	for _, m := range nt.MemNodes {
		if m.CellID >= uint(len(l.cells)) {
			return fmt.Errorf("memnode of cell %d: there are %d", m.CellID, len(l.cells))
		}
		nodes, err := cpus(m.Nodeset)
		if err != nil {
			return fmt.Errorf("memnode of cell %d: %w", m.CellID, err)
		}
		l.cells[m.CellID].mode, l.cells[m.CellID].nodes = m.Mode, nodes
	}
	return nil
}

// cellID returns the number of a cell in a list: its index, if it has none.
func cellID(list []libvirtxml.DomainCell, i int) int {
	if id := list[i].ID; id != nil {
		return int(min(*id, 1<<20))
	}
	return i
}

// readDevices reads the functions of the host that the guest has: host devices, and network cards that are VFs.
func (l *laid) readDevices() {
	seen := map[string]bool{}
	add := func(source *libvirtxml.DomainHostdevSubsysPCISource, guest *libvirtxml.DomainAddress) {
		if source == nil || source.Address == nil {
			return
		}
		d := device{address: domain.FormatAddress(source.Address), shown: l.nodeOf(guest)}
		if seen[d.address] {
			return
		}
		seen[d.address] = true
		d.on = l.host.Device(d.address)
		l.devices = append(l.devices, d)
	}
	for i := range l.d.Devices.Hostdevs {
		h := &l.d.Devices.Hostdevs[i]
		if h.SubsysPCI != nil {
			add(h.SubsysPCI.Source, h.Address)
		}
		if m := h.SubsysMDev; m != nil && m.Source != nil && m.Source.Address != nil {
			l.unread = append(l.unread, "mediated device "+m.Source.Address.UUID)
		}
	}
	for i := range l.d.Devices.Interfaces {
		n := &l.d.Devices.Interfaces[i]
		switch s := n.Source; {
		case s == nil:
		case s.Hostdev != nil:
			add(s.Hostdev.PCI, n.Address)
		case s.VDPA != nil:
			l.unread = append(l.unread, "vDPA device "+s.VDPA.Device)
		case s.Network != nil:
			l.readNetwork(s.Network.Network, n.Address)
		}
	}
}

// readNetwork reads the libvirt network of a network card, which may be a pool of VFs.
func (l *laid) readNetwork(name string, guest *libvirtxml.DomainAddress) {
	text, ok := l.networks[name]
	n := &libvirtxml.Network{}
	if !ok || n.Unmarshal(text) != nil {
		l.unread = append(l.unread, fmt.Sprintf("network %s, which may be a pool of VFs: libvirtd is asked for a domain that is named", name))
		return
	}
	if n.Forward == nil || n.Forward.Mode != "hostdev" {
		return
	}
	d := device{pool: name, shown: l.nodeOf(guest)}
	for _, p := range n.Forward.PFs {
		for i := range l.host.Devices {
			if slices.Contains(l.host.Devices[i].Net, p.Dev) {
				d.on = &l.host.Devices[i]
			}
		}
	}
	for _, a := range n.Forward.Addresses {
		if a.PCI != nil && d.on == nil {
			d.on = l.host.Device(domain.FormatAddress(&libvirtxml.DomainAddressPCI{Domain: a.PCI.Domain, Bus: a.PCI.Bus, Slot: a.PCI.Slot, Function: a.PCI.Function}))
		}
	}
	d.address = "a VF of network " + name
	l.devices = append(l.devices, d)
}

// nodeOf returns the guest's node of an address; -1: none.
func (l *laid) nodeOf(a *libvirtxml.DomainAddress) int {
	if a == nil || a.PCI == nil || a.PCI.Bus == nil {
		return -1
	}
	return l.nodeOfBus(*a.PCI.Bus)
}

// nodeOfBus returns the guest's node of a bus, by the expander above it; -1: none.
func (l *laid) nodeOfBus(bus uint) int {
	for range 256 { // a loop has no node
		found := false
		for i := range l.d.Devices.Controllers {
			c := &l.d.Devices.Controllers[i]
			if c.Type != "pci" || c.Index == nil || *c.Index != bus {
				continue
			}
			if c.PCI != nil && c.PCI.Target != nil && c.PCI.Target.NUMANode != nil {
				return int(min(*c.PCI.Target.NUMANode, 1024))
			}
			if c.Address == nil || c.Address.PCI == nil || c.Address.PCI.Bus == nil {
				return -1
			}
			bus, found = *c.Address.PCI.Bus, true
			break
		}
		if !found || bus == 0 {
			return -1
		}
	}
	return -1
}

// plan asks the planner for a VM of this size on the empty host.
func (l *laid) plan() {
	if l.spare > 0 && !(l.vcpus == 1 && l.spare == 1) {
		l.why = "some of its vCPUs are not plugged in"
		return
	}
	if slices.ContainsFunc(l.cells, func(c cell) bool { return len(c.vcpus) == 0 }) {
		l.why = "it has cells of memory alone, which the planner does not choose by itself"
		return
	}
	h := empty(l.host)
	zero := spec.Size(0)
	c := &spec.Cluster{
		Accel:  "kvm",
		VMs:    []spec.Group{{Name: "vm", Count: 1, VCPUs: l.vcpus, Memory: spec.Size(l.bytes)}},
		Region: spec.Region{Size: &zero},
	}
	for _, d := range l.devices {
		if d.on != nil && d.pool == "" {
			c.VMs[0].Devices = append(c.VMs[0].Devices, spec.Device{Type: "pci", Address: d.address})
		}
	}
	spec.Defaults(c)
	c.Accel = "kvm"
	p, err := plan.Make(c, []topology.Host{h}, plan.Ledger{})
	if err != nil && len(c.VMs[0].Devices) > 0 {
		l.why = "with its devices: " + printable(err.Error())
		c.VMs[0].Devices = nil
		p, err = plan.Make(c, []topology.Host{h}, plan.Ledger{})
	}
	if err != nil {
		l.why = printable(err.Error())
		return
	}
	if len(p.VMs[0].Pins) == 0 {
		l.why = "the host has too few cores for it: its vCPUs cannot be pinned"
		return
	}
	l.want = &p.VMs[0]
	if len(l.want.Nodes) == 0 {
		n := plan.Node{MemoryBytes: l.bytes, HostNodes: l.under(l.want.Pins)}
		for v := range l.vcpus {
			n.VCPUs = append(n.VCPUs, v)
		}
		l.want.Nodes = []plan.Node{n}
	}
	if l.why = l.cannotReplace(); l.why != "" {
		l.want = nil
	}
}

// empty returns a host on which nothing runs.
func empty(from *topology.Host) topology.Host {
	h := *from
	h.Nodes = slices.Clone(h.Nodes)
	for i := range h.Nodes {
		n := &h.Nodes[i]
		n.Pools = slices.Clone(n.Pools)
		var pools uint64
		for k := range n.Pools {
			n.Pools[k].Free = n.Pools[k].Total
			pools += uint64(n.Pools[k].Total) * n.Pools[k].PageBytes
		}
		if pools < n.MemoryBytes {
			n.AvailableBytes = max(n.AvailableBytes, (n.MemoryBytes-pools)/20*19)
		}
	}
	return h
}

// low returns the properties of QEMU's machine that the wanted VM needs.
func (l *laid) low() lower.Machine { return lower.Of(l.want) }

// spread returns the host's nodes under some vCPUs, ascending; nil: not all of them are pinned.
func (l *laid) spread(vcpus []int) []int {
	var pins [][]int
	for _, v := range vcpus {
		if l.pins[v] == nil {
			return nil
		}
		pins = append(pins, l.pins[v])
	}
	return l.under(pins)
}

// under returns the host's nodes of some pins, ascending.
func (l *laid) under(pins [][]int) []int {
	nodes := map[int]bool{}
	for _, p := range pins {
		for _, id := range p {
			if c := l.host.CPU(id); c != nil {
				nodes[c.Node] = true
			}
		}
	}
	return keys(nodes)
}

func keys(set map[int]bool) []int {
	list := []int{}
	for k := range set {
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// pinned reports whether every vCPU has a pin.
func (l *laid) pinned() bool {
	return !slices.ContainsFunc(l.pins, func(p []int) bool { return p == nil })
}

// cpus parses a set of CPUs or nodes in libvirt's form: 0-3,^2,8. "" is nil.
func cpus(s string) ([]int, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	if len(s) > 1<<16 {
		return nil, fmt.Errorf("a set of %d characters", len(s))
	}
	set := map[int]bool{}
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		without := strings.HasPrefix(part, "^")
		list, err := topology.ParseList(strings.TrimPrefix(part, "^"), topology.MaxCPUs)
		if err != nil {
			return nil, oneLine(err)
		}
		if len(list) == 0 || strings.Contains(part, ":") {
			return nil, fmt.Errorf("%q is not a set of numbers like 0-3,^2", printable(s))
		}
		for _, n := range list {
			if set[n] = true; without {
				delete(set, n)
			}
		}
	}
	return keys(set), nil
}

// units are the powers of libvirt's units, in any case: k, KB (1000) and KiB (1024).
const units = "kmgtpe"

// size converts a number with its unit into bytes, as libvirt does. Without a unit the number is in KiB.
func size(n uint, unit string) (uint64, error) {
	u, ok := uint64(1), false
	switch s := strings.ToLower(unit); {
	case s == "":
		u, ok = 1<<10, true
	case s == "b" || s == "byte" || s == "bytes":
		ok = true
	default:
		power := strings.IndexByte(units, s[0]) + 1
		base, known := map[string]uint64{"": 1 << 10, "ib": 1 << 10, "b": 1000}[s[1:]]
		ok = known && power > 0
		for range power {
			u *= base
		}
	}
	switch {
	case !ok:
		return 0, fmt.Errorf("unknown unit %.20q", unit)
	case uint64(n) > maxMemory/u:
		return 0, fmt.Errorf("%d %s of memory: at most 64 TiB", n, unit)
	}
	return (uint64(n)*u + 1<<10 - 1) >> 10 << 10, nil // libvirt counts in KiB
}
