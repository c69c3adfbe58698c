package qemu

import (
	"errors"
	"fmt"
	"slices"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// Machine is a VM's QEMU command line.
type Machine struct {
	Name  string
	path  string
	parts []part
	slots []slot
	bytes uint64 // of memory, for messages
}

// slot is a file that QEMU inherits. Their order is the order of their descriptors, from firstFD on.
type slot struct {
	kind  slotKind
	index int // of a link's file
}

type slotKind int

const (
	slotQMP slotKind = iota
	slotConsole
	slotChannel
	slotKernel
	slotInitrd
	slotRegion
	slotLink
)

// add gives the descriptor of a new slot.
func (m *Machine) add(kind slotKind, index int) int {
	m.slots = append(m.slots, slot{kind, index})
	return firstFD + len(m.slots) - 1
}

// Build renders a VM of a plan. It reads nothing of the host.
// Errors say which part of the plan or the settings cannot be rendered, or what this QEMU lacks.
func Build(vm plan.VM, s Settings, caps Caps) (*Machine, error) {
	m := &Machine{Name: vm.Name, path: caps.Path, bytes: vm.MemoryBytes}
	if err := checkCaps(vm, s, caps); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	if err := m.assemble(vm, s, caps); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	for _, p := range m.parts {
		if err := p.Valid(); err != nil {
			return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
		}
	}
	return m, nil
}

// checkCaps fails for what this QEMU cannot do.
func checkCaps(vm plan.VM, s Settings, caps Caps) error {
	if !caps.Q35 {
		return fmt.Errorf("%s has no machine type q35: %s", caps.Path, whatToInstall)
	}
	if !slices.Contains(caps.Accels, string(s.Accel)) {
		return fmt.Errorf("%s (%s) is built without %s", caps.Path, caps.Version, s.Accel)
	}
	var errs []error
	need := func(device, why, cure string) { errs = append(errs, caps.need(device, why, cure)) }
	need("virtio-serial-pci", "the guest agent", whatToInstall)
	need("virtserialport", "the guest agent", whatToInstall)
	if len(s.Exports) > 0 {
		need("virtio-9p-pci", "the VMs' root and shares", "take a QEMU that is built with virtfs, with --qemu")
	}
	for _, l := range s.Links {
		if !slices.Contains(caps.Netdevs, string(l.Kind)) {
			errs = append(errs, fmt.Errorf("%s (%s) has no network of the kind %s", caps.Path, caps.Version, l.Kind))
		}
		need("virtio-net-pci", "the network", whatToInstall)
	}
	if s.Region != nil && s.Region.Device == "ivshmem" {
		need("ivshmem-plain", "the region", "say region: {device: devdax}, or region: {size: 0} for none, or take another QEMU with --qemu (Red Hat's has no ivshmem)")
	}
	if s.Region != nil && s.Region.Device == "devdax" {
		need("nvdimm", "the region", "say region: {device: ivshmem}, or region: {size: 0} for none")
	}
	if len(vm.Devices) > 0 {
		need("vfio-pci", "the devices", whatToInstall)
		need("pcie-root-port", "the devices", whatToInstall)
		for _, d := range vm.Devices {
			if shownOn(vm, d) >= 0 {
				need("pxb-pcie", "devices on a node", whatToInstall)
			}
		}
	}
	if needsIOMMU(vm) {
		need("intel-iommu", fmt.Sprintf("APIC IDs above %d", iommuAbove), whatToInstall)
	}
	for _, err := range errs {
		if err != nil {
			return err // one is enough for a line
		}
	}
	return nil
}

// assemble puts the parts together, in the order in which the guest finds them.
func (m *Machine) assemble(vm plan.VM, s Settings, caps Caps) error {
	tcg := s.Accel == host.TCG
	vcpus := smp{vm.VCPUs, vm.Sockets, vm.Dies, vm.Cores, vm.Threads}.withSpare()
	machine := machineType{SplitIRQ: needsIOMMU(vm) && !tcg}
	if tcg {
		machine.Off = caps.MachineProps
	}
	bios := firmware(vm, s, caps)
	machine.DieCache = vm.Dies > 1 && caps.SMPCache
	mem := memory{Bytes: vm.MemoryBytes}
	if s.Region != nil && s.Region.Device == "devdax" {
		machine.NVDIMM, mem.Slots, mem.Extra = true, 1, s.Region.SizeBytes
	}
	m.use(base{vm.Name})
	if caps.Sandbox {
		m.use(sandbox{})
	}
	m.use(machine,
		accelerator{s.Accel, dedicated(vm.Pins), vm.PhysBits, vm.Dies > 1 && showsDies(s.Accel, bios)},
		vcpus,
		mem,
		numa{Nodes: vm.Nodes, Bytes: vm.MemoryBytes, CPUs: vm.VCPUs, Max: vcpus.max()})
	m.use(monitor{chardev{"qmp", m.add(slotQMP, 0)}},
		serialConsole{chardev{"console", m.add(slotConsole, 0)}})
	if vm.MMIOBytes > defaultWindow {
		m.use(mmioWindow{vm.MMIOBytes})
	}
	if needsIOMMU(vm) {
		m.use(iommu{}) // before the devices that are behind it
	}
	m.use(agentPort{chardev{"agent", m.add(slotChannel, 0)}, AgentPort})
	m.use(kernel{
		FD: m.add(slotKernel, 0), InitrdFD: m.add(slotInitrd, 0), Firmware: bios,
		Line: kernelArgs{s.Accel, s.TSCKHz, s.KernelArgs},
	})
	if err := m.useExports(s.Exports); err != nil {
		return err
	}
	if s.Region != nil {
		m.use(region{*s.Region, m.add(slotRegion, 0)})
	}
	m.useLinks(s.Links)
	return m.useDevices(vm)
}

func needsIOMMU(vm plan.VM) bool { return vm.IOMMU || vm.VCPUs > iommuAbove }

func (m *Machine) use(p ...part) { m.parts = append(m.parts, p...) }

// firmware is qboot's path where it does: it saves 0.8 s under TCG, but leaves memory types to chance
// (no MTRRs, so no write combining), starts no bzImage and does not number the buses of PCIe expanders.
func firmware(vm plan.VM, s Settings, caps Caps) string {
	if s.Accel == host.TCG && s.PVH && len(vm.Devices) == 0 {
		return caps.Qboot
	}
	return ""
}

// showsDies says whether the guest may be told of dies. QEMU 10.0.2 ends by a failed assertion when SeaBIOS
// reads the CPUID leaf that tells of them under TCG; with qboot, which does not, and with KVM it cannot.
func showsDies(accel host.Accel, bios string) bool { return accel == host.KVM || bios != "" }

// dedicated says whether each vCPU has one host CPU, and no other has it.
func dedicated(pins [][]int) bool {
	seen := map[int]bool{}
	for _, p := range pins {
		if len(p) != 1 || seen[p[0]] {
			return false
		}
		seen[p[0]] = true
	}
	return len(pins) > 0
}

func (m *Machine) useExports(exports []Export) error {
	tags := map[string]bool{}
	for i, e := range exports {
		if tags[e.Tag] {
			return fmt.Errorf("two exports with the mount tag %s", e.Tag)
		}
		tags[e.Tag] = true
		m.use(export{e, i})
	}
	return nil
}

func (m *Machine) useLinks(links []Link) {
	files := 0
	for i, l := range links {
		fd := 0
		if l.takesFile() {
			fd = m.add(slotLink, files)
			files++
		}
		m.use(link{l, i, fd})
	}
}

// shownOn is the node whose expander a device is behind, -1: the VM's own root, which is on the node of a VM
// that has one.
func shownOn(vm plan.VM, d plan.Device) int {
	if len(vm.Nodes) < 2 {
		return -1
	}
	return d.Node
}

// useDevices puts each device of the host into a root port, on the node that the plan shows it on.
func (m *Machine) useDevices(vm plan.VM) error {
	below := map[int][]int{} // node → devices
	for i, d := range vm.Devices {
		switch {
		case d.Kind != "vfio":
			return fmt.Errorf("device %s: unknown kind %.40q", d.Address, d.Kind)
		case d.Node < -1 || d.Node >= len(vm.Nodes) && d.Node >= 0:
			return fmt.Errorf("device %s: there is no node %d", d.Address, d.Node)
		}
		node := shownOn(vm, d)
		below[node] = append(below[node], i)
	}
	buses, err := expanderBuses(vm, below)
	if err != nil {
		return err
	}
	for node := range vm.Nodes {
		if len(below[node]) > 0 {
			id := fmt.Sprintf("pxb%d", node)
			m.use(expander{id, buses[node], node})
			m.useSlots(vm, id, below[node])
		}
	}
	m.useSlots(vm, "pcie.0", below[-1])
	return nil
}

// expanderBuses gives the bus number of each node's expander: the plan's, or where the plan has no
// expanders counted down from the top. An expander takes a bus for itself and one for each of its ports.
func expanderBuses(vm plan.VM, below map[int][]int) (map[int]int, error) {
	buses := map[int]int{}
	for _, e := range vm.Expanders {
		if _, twice := buses[e.Node]; twice {
			return nil, fmt.Errorf("two PCIe expanders on node %d", e.Node)
		}
		if e.Ports < len(below[e.Node]) {
			return nil, fmt.Errorf("the PCIe expander on node %d has %d ports for %d devices", e.Node, e.Ports, len(below[e.Node]))
		}
		buses[e.Node] = e.Bus
	}
	top := 256
	for node := len(vm.Nodes) - 1; node >= 0; node-- {
		if len(below[node]) == 0 {
			continue
		}
		if len(vm.Expanders) > 0 {
			if _, ok := buses[node]; !ok {
				return nil, fmt.Errorf("devices on node %d, and no PCIe expander there", node)
			}
			continue
		}
		top -= 1 + len(below[node])
		buses[node] = top
	}
	if top < minExpanderBus {
		return nil, errors.New("more devices than there are PCI buses for")
	}
	return buses, nil
}

func (m *Machine) useSlots(vm plan.VM, bus string, devices []int) {
	for _, i := range devices {
		port := fmt.Sprintf("port%d", i)
		m.use(rootPort{port, bus, i + 1}, hostDevice{vm.Devices[i].Address, port})
	}
}

// Args is the command line, the program first.
func (m *Machine) Args() []string {
	args := []string{m.path}
	for _, p := range m.parts {
		args = append(args, p.Args()...)
	}
	return args
}
