package explain

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// Plan converts the domain's XML into the VM of a plan, with which a running domain can be compared. Memory that is
// bound loosely (mode preferred) counts as not bound. h is the host that it runs on.
func Plan(e *Domain, h *topology.Host) (*plan.VM, error) {
	l, err := lay(e, h)
	if err != nil {
		return nil, err
	}
	vm := &plan.VM{
		Name: e.Name, Host: h.Name, VCPUs: l.vcpus, MemoryBytes: l.bytes, EmulatorCPUs: l.emulator,
		Sockets: l.vcpus + l.spare, Dies: 1, Cores: 1, Threads: 1,
	}
	if c := e.xml.CPU; c != nil && c.Topology != nil {
		t := c.Topology
		vm.Sockets, vm.Dies, vm.Cores, vm.Threads = t.Sockets, max(t.Dies, 1), t.Cores, t.Threads
	}
	if n := vm.Sockets * vm.Dies * vm.Cores * vm.Threads; n != l.vcpus+l.spare || min(vm.Sockets, vm.Cores, vm.Threads) < 1 {
		return nil, fmt.Errorf("its topology is for %d vCPUs, and it has %d", n, l.vcpus+l.spare)
	}
	plugged(vm)
	if slices.ContainsFunc(l.pins, func(p []int) bool { return p != nil }) {
		vm.Pins = l.pins
	}
	described := e.xml.CPU != nil && e.xml.CPU.Numa != nil && len(e.xml.CPU.Numa.Cell) > 0
	for i, c := range l.cells {
		n := plan.Node{ID: i, VCPUs: c.vcpus, MemoryBytes: c.bytes, PageBytes: pagesOf(e.xml.MemoryBacking, i)}
		if c.mode == "strict" || c.mode == "interleave" {
			n.HostNodes = c.nodes
		}
		if !described {
			// The memory of a single node that the guest does not see has no place in a plan.
			break
		}
		vm.Nodes = append(vm.Nodes, n)
	}
	for _, d := range l.devices {
		vm.Devices = append(vm.Devices, plan.Device{Kind: "vfio", Address: d.address, Node: d.shown})
	}
	return vm, nil
}

// plugged reduces a topology to the parts filled by the plugged-in vCPUs, because QEMU presents no others.
func plugged(vm *plan.VM) {
	last := vm.VCPUs - 1
	core := last / vm.Threads
	die := core / vm.Cores
	socket := die / vm.Dies
	vm.Sockets = socket + 1
	if socket == 0 {
		vm.Dies = die + 1
	}
	if die == 0 {
		vm.Cores = core + 1
	}
	if core == 0 {
		vm.Threads = last + 1
	}
}

// pagesOf returns the size of the huge pages of a cell's memory; 0: ordinary pages, or libvirt's choice.
func pagesOf(b *libvirtxml.DomainMemoryBacking, id int) uint64 {
	if b == nil || b.MemoryHugePages == nil {
		return 0
	}
	for _, p := range b.MemoryHugePages.Hugepages {
		bytes, err := size(p.Size, p.Unit)
		if err != nil {
			continue
		}
		if set, err := cpus(p.Nodeset); err == nil && (set == nil || slices.Contains(set, id)) {
			return bytes
		}
	}
	return 0
}
