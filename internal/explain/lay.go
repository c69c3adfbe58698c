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

// laid is a domain on a host.
type laid struct {
	d        *libvirtxml.Domain
	host     *topology.Host
	vcpus    int // that are plugged in
	spare    int // that could be
	bytes    uint64
	machine  string  // as domain.Machine says
	pins     [][]int // for each vCPU; nil: it is not pinned
	emulator []int   // nil: not pinned
	cells    []cell  // one for all where the guest sees no nodes
	devices  []device
	want     *plan.VM // what the planner would choose; nil: there is no place
	why      string   // why there is none
	noKVM    string   // as Domain has it
}

// cell is a guest's node.
type cell struct {
	vcpus []int
	bytes uint64
	mode  string // of its memory's binding; "": none
	nodes []int  // of the host that its memory is bound to
}

// device is a PCI function of the host in the domain.
type device struct {
	address string
	on      *topology.Device // nil: the host has none
	shown   int              // the guest's node that it is behind; -1: none
}

// lay reads what the rows need. Errors name what in the domain makes no sense.
func lay(e *Domain, h *topology.Host) (*laid, error) {
	l := &laid{d: e.xml, host: h, machine: domain.Machine(e.xml), noKVM: printable(e.NoKVM)}
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
	var err error
	if l.d.Memory == nil {
		return nil, fmt.Errorf("no memory element")
	}
	if l.bytes, err = size(l.d.Memory.Value, l.d.Memory.Unit); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if err := l.readPins(); err != nil {
		return nil, err
	}
	if err := l.readCells(); err != nil {
		return nil, err
	}
	l.readDevices()
	l.plan()
	return l, nil
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
	whole := cell{bytes: l.bytes}
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
	if l.d.CPU == nil || l.d.CPU.Numa == nil || len(l.d.CPU.Numa.Cell) == 0 {
		l.cells = []cell{whole}
		return nil
	}
	list := l.d.CPU.Numa.Cell
	if len(list) > 128 {
		return fmt.Errorf("%d cells: QEMU takes 128", len(list))
	}
	l.cells = make([]cell, len(list))
	for i, c := range list {
		id := i
		if c.ID != nil {
			id = int(*c.ID)
		}
		if id < 0 || id >= len(list) || l.cells[id].bytes != 0 {
			return fmt.Errorf("cell %d: cells are numbered from 0, each once", id)
		}
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

func (l *laid) readDevices() {
	if l.d.Devices == nil {
		l.d.Devices = &libvirtxml.DomainDeviceList{}
	}
	seen := map[string]bool{}
	for i := range l.d.Devices.Hostdevs {
		h := &l.d.Devices.Hostdevs[i]
		if h.SubsysPCI == nil || h.SubsysPCI.Source == nil || h.SubsysPCI.Source.Address == nil {
			continue
		}
		d := device{address: domain.FormatAddress(h.SubsysPCI.Source.Address), shown: -1}
		if seen[d.address] {
			continue
		}
		seen[d.address] = true
		d.on = l.host.Device(d.address)
		if h.Address != nil && h.Address.PCI != nil && h.Address.PCI.Bus != nil {
			d.shown = l.nodeOfBus(*h.Address.PCI.Bus)
		}
		l.devices = append(l.devices, d)
	}
}

// nodeOfBus is the guest's node of a bus, by the expander above it; -1: none.
func (l *laid) nodeOfBus(bus uint) int {
	for range 256 { // what refers to itself has no node
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

// plan asks the planner for a VM of this size on the host, empty.
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
		if d.on != nil {
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
}

// empty is a host on which nothing runs.
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

// low is what the wanted VM needs of QEMU's machine.
func (l *laid) low() lower.Machine { return lower.Of(l.want) }

// spread returns the host's nodes under some vCPUs, ascending; nil: not all of them are pinned.
func (l *laid) spread(vcpus []int) []int {
	nodes := map[int]bool{}
	for _, v := range vcpus {
		if l.pins[v] == nil {
			return nil
		}
		for _, id := range l.pins[v] {
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

// pinned says whether every vCPU has a pin.
func (l *laid) pinned() bool {
	return !slices.ContainsFunc(l.pins, func(p []int) bool { return p == nil })
}

// cpus reads a set of CPUs or nodes as libvirt writes it: 0-3,^2,8. "" is nil.
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
			return nil, fmt.Errorf("%q is no set of numbers like 0-3,^2", printable(s))
		}
		for _, n := range list {
			if set[n] = true; without {
				delete(set, n)
			}
		}
	}
	return keys(set), nil
}

// units are libvirt's, in bytes.
var units = map[string]uint64{
	"b": 1, "bytes": 1, "": 1 << 10, "k": 1 << 10, "KB": 1000, "KiB": 1 << 10, "M": 1 << 20, "MB": 1e6, "MiB": 1 << 20,
	"G": 1 << 30, "GB": 1e9, "GiB": 1 << 30, "T": 1 << 40, "TB": 1e12, "TiB": 1 << 40,
}

// size is a number with its unit, in bytes.
func size(n uint, unit string) (uint64, error) {
	u, ok := units[unit]
	switch {
	case !ok:
		return 0, fmt.Errorf("unknown unit %.20q", unit)
	case uint64(n) > maxMemory/u || n == 0:
		return 0, fmt.Errorf("%d %s of memory: more than nothing, at most 64 TiB", n, unit)
	}
	return uint64(n) * u, nil
}
