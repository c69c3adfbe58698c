package qemu

import (
	"errors"
	"fmt"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// Machine is a VM's QEMU command line.
type Machine struct {
	Name  string
	path  string
	parts []part
	slots []slot
	bytes uint64           // size of the memory, for messages
	later []map[string]any // netdevs that are added while it runs

	jailed    *jailing  // nil: it runs in this process's namespaces
	served    []served  // exports that a virtiofsd serves
	virtiofsd virtiofsd // program that serves served
	passt     string    // program of the user network; "": QEMU's own
	uplinks   []int     // files of links to a user network in a process of its own
}

// slot is a file that QEMU inherits. Slots are in the order of their descriptors, from firstFD on.
type slot struct {
	kind  slotKind
	index int // index of a link's file, a veiled export, a virtiofsd
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
	slotExport
	slotVeil
	slotVhost // QEMU's end of a virtiofsd
)

// add returns the descriptor of a new slot.
func (m *Machine) add(kind slotKind, index int) int {
	m.slots = append(m.slots, slot{kind, index})
	return firstFD + len(m.slots) - 1
}

// Build renders a VM of a plan. It reads nothing of the host. The error names the part of the plan or the settings
// that cannot be rendered, or the feature that this QEMU lacks.
func Build(vm plan.VM, s backend.Settings, caps Caps) (*Machine, error) {
	m := &Machine{Name: vm.Name, path: caps.Path, bytes: vm.MemoryBytes}
	low := lower.Of(&vm)
	if err := checkCaps(vm, low, s, caps); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	if err := m.assemble(vm, low, s, caps); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	for _, p := range m.parts {
		if err := p.Valid(); err != nil {
			return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
		}
	}
	if s.Strict {
		m.jailed = m.jailing(vm, s, caps)
	}
	return m, nil
}

// Remedies for a QEMU without a device.
const (
	cureExports = "say files: virtiofs, or take a QEMU that is built with virtfs, with --qemu"
	cureIvshmem = "say region: {device: devdax}, or region: {size: 0} for none, or take another QEMU with --qemu (Red Hat's has no ivshmem)"
	cureDevdax  = "say region: {device: ivshmem}, or region: {size: 0} for none"
)

// checkCaps returns an error for features that this QEMU lacks.
func checkCaps(vm plan.VM, low lower.Machine, s backend.Settings, caps Caps) error {
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
	for _, e := range s.Exports {
		if e.Kind == backend.ExportVirtiofs {
			need("vhost-user-fs-pci", "files: virtiofs", whatToInstall)
			if caps.Virtiofsd.Path == "" {
				errs = append(errs, errors.New("files: virtiofs: "+caps.noVirtiofsd()))
			}
			continue
		}
		need("virtio-9p-pci", "the VMs' root and shares", cureExports)
	}
	for _, l := range s.Links {
		if !slices.Contains(caps.Netdevs, string(l.Kind)) && !(l.Kind == backend.LinkUser && l.Filtered && caps.passt() != "") {
			errs = append(errs, fmt.Errorf("%s (%s) has no network of the kind %s", caps.Path, caps.Version, l.Kind))
		}
		need("virtio-net-pci", "the network", whatToInstall)
	}
	if s.Region != nil && s.Region.Device == "ivshmem" {
		need("ivshmem-plain", "the region", cureIvshmem)
	}
	if s.Region != nil && s.Region.Device == "devdax" {
		need("nvdimm", "the region", cureDevdax)
	}
	if len(vm.Devices) > 0 {
		need("vfio-pci", "the devices", whatToInstall)
		need("pcie-root-port", "the devices", whatToInstall)
		if len(low.Expanders) > 0 {
			need("pxb-pcie", "devices on a node", whatToInstall)
		}
	}
	if s.Strict {
		errs = append(errs, checkStrict(s, caps))
	}
	if low.IOMMU {
		need("intel-iommu", fmt.Sprintf("APIC IDs above %d", lower.IOMMUAbove), whatToInstall)
	}
	for _, err := range errs {
		if err != nil {
			return err // one is enough for an error
		}
	}
	return nil
}

// checkStrict rejects settings that would make a jail weaker than promised.
func checkStrict(s backend.Settings, caps Caps) error {
	if !caps.Sandbox {
		return fmt.Errorf("isolation=strict: %s (%s) is built without seccomp", caps.Path, caps.Version)
	}
	for _, e := range s.Exports {
		if !e.Veiled {
			return fmt.Errorf("isolation=strict: cannot hide host paths below %s", e.Path)
		}
	}
	for _, l := range s.Links {
		if l.Kind == backend.LinkUser && caps.passt() != "" {
			return errors.New("isolation=strict: passt does not run in a jail: set network: {uplink: none}, or use a QEMU with the user network")
		}
		if l.Kind == backend.LinkUser && !l.Filtered {
			return errors.New("isolation=strict: the user network has no filter")
		}
	}
	return nil
}

// assemble adds the parts in the order in which the guest finds them.
func (m *Machine) assemble(vm plan.VM, low lower.Machine, s backend.Settings, caps Caps) error {
	tcg := s.Accel == host.TCG
	vcpus := smp{vm.VCPUs, vm.Sockets, vm.Dies, vm.Cores, vm.Threads}.withSpare()
	machine := machineType{SplitIRQ: low.IOMMU && !tcg}
	if tcg {
		machine.Off = caps.MachineProps
	}
	bios := firmware(vm, s, caps)
	machine.DieCache = vm.Dies > 1 && caps.SMPCache
	shared := slices.ContainsFunc(s.Exports, func(e backend.Export) bool { return e.Kind == backend.ExportVirtiofs })
	mem := memory{Bytes: vm.MemoryBytes, Shared: shared && len(vm.Nodes) == 0}
	if mem.Shared {
		machine.Memory = sharedMemory
	}
	if s.Region != nil && s.Region.Device == "devdax" {
		machine.NVDIMM, mem.Slots, mem.Extra = true, 1, s.Region.SizeBytes
	}
	m.use(base{vm.Name})
	if caps.Sandbox {
		m.use(sandbox{})
	}
	m.use(machine,
		accelerator{s.Accel, lower.Dedicated(vm.Pins), low.PhysBits, (vm.Dies > 1 || vm.Threads > 1) && showsLeaves(s.Accel, bios), s.SlowStrings},
		vcpus,
		mem,
		numa{Nodes: vm.Nodes, Bytes: vm.MemoryBytes, CPUs: vm.VCPUs, Max: vcpus.max(), Shared: shared})
	m.use(monitor{chardev{"qmp", m.add(slotQMP, 0)}},
		serialConsole{chardev{"console", m.add(slotConsole, 0)}})
	if low.MMIO > lower.DefaultWindow {
		m.use(mmioWindow{low.MMIO})
	}
	if low.IOMMU {
		m.use(iommu{Devices: len(vm.Devices) > 0}) // before the devices behind it
	}
	m.use(agentPort{chardev{"agent", m.add(slotChannel, 0)}, backend.AgentPort})
	m.use(kernel{
		FD: m.add(slotKernel, 0), InitrdFD: m.add(slotInitrd, 0), Firmware: bios,
		Line: lower.KernelArgs{Accel: s.Accel, TSCKHz: s.TSCKHz, Passthrough: len(vm.Devices) > 0, Extra: s.KernelArgs},
	})
	if err := m.useExports(s.Exports, caps.Virtiofsd); err != nil {
		return err
	}
	if s.Region != nil {
		m.use(region{*s.Region, m.add(slotRegion, 0)})
	}
	m.passt = caps.passt()
	m.useLinks(s.Links, s.Strict || m.passt != "")
	return m.useDevices(vm, low)
}

func (m *Machine) use(p ...part) { m.parts = append(m.parts, p...) }

// firmware returns qboot's path if qboot works: it saves 0.8 s under TCG, but does not set memory types (no MTRRs,
// hence no write combining), boots no bzImage and does not number the buses of PCIe expanders.
func firmware(vm plan.VM, s backend.Settings, caps Caps) string {
	if s.Accel == host.TCG && s.PVH && len(vm.Devices) == 0 {
		return caps.Qboot
	}
	return ""
}

// showsLeaves reports whether the guest may see dies and threads. QEMU 10.0.2 aborts by a failed assertion when
// SeaBIOS reads the CPUID leaf that lists them under TCG; qboot does not read it, and KVM is not affected.
func showsLeaves(accel host.Accel, bios string) bool { return accel == host.KVM || bios != "" }

func (m *Machine) useExports(exports []backend.Export, d virtiofsd) error {
	tags := map[string]bool{}
	veiled, hold := 0, false
	for i, e := range exports {
		if tags[e.Tag] {
			return fmt.Errorf("two exports with the mount tag %s", e.Tag)
		}
		tags[e.Tag] = true
		if e.Veiled {
			veiled++
		}
		if e.Kind == backend.ExportVirtiofs {
			m.virtiofsd = d
			m.use(vhostFS{chardev{fmt.Sprintf("fs%d", i), m.add(slotVhost, len(m.served))}, e})
			m.served = append(m.served, served{e, veiled - 1})
			continue
		}
		fd := 0
		if e.Veiled {
			fd = m.add(slotExport, veiled-1)
			hold = true
		}
		m.use(export{e, i, fd})
	}
	if hold {
		m.add(slotVeil, 0) // only held
	}
	return nil
}

// useLinks adds the cards; if apart is set a user network is in a process of its own, at the other end of its filter.
func (m *Machine) useLinks(links []backend.Link, apart bool) {
	files := 0
	for i, l := range links {
		k := link{Link: l, Index: i, Apart: apart && l.Kind == backend.LinkUser}
		for n := range l.Files() {
			if k.Apart && n > 0 {
				m.uplinks = append(m.uplinks, files)
				files++
				continue
			}
			k.FD[n] = m.add(slotLink, files)
			files++
		}
		m.use(k)
		m.later = append(m.later, k.netdevs()...)
	}
}

// useDevices puts each device of the host into a root port, behind the expander of its planned node, in the order of
// the nodes; devices on no node are on the VM's own root.
func (m *Machine) useDevices(vm plan.VM, low lower.Machine) error {
	for _, d := range vm.Devices {
		switch {
		case d.Kind != "vfio":
			return fmt.Errorf("device %s: unknown kind %.40q", d.Address, d.Kind)
		case d.Node < -1 || d.Node >= len(vm.Nodes) && d.Node >= 0:
			return fmt.Errorf("device %s: there is no node %d", d.Address, d.Node)
		}
	}
	behind := map[int]bool{}
	list := slices.Clone(low.Expanders)
	slices.SortFunc(list, func(a, b lower.Expander) int { return a.Node - b.Node })
	for _, x := range list {
		if 1+len(x.Devices) > (256-lower.FirstBus)/len(list) {
			return errors.New("more devices than there are PCI buses for")
		}
		id := fmt.Sprintf("pxb%d", x.Node)
		m.use(expander{id, x.Bus, x.Node})
		m.useSlots(vm, id, x.Devices)
		for _, i := range x.Devices {
			behind[i] = true
		}
	}
	var own []int
	for i := range vm.Devices {
		if !behind[i] {
			own = append(own, i)
		}
	}
	m.useSlots(vm, "pcie.0", own)
	return nil
}

func (m *Machine) useSlots(vm plan.VM, bus string, devices []int) {
	for _, i := range devices {
		port := fmt.Sprintf("port%d", i)
		m.use(rootPort{port, bus, i + 1}, hostDevice{vm.Devices[i].Address, port, vm.Devices[i].HideROM})
	}
}

// Args returns the command line, beginning with the program.
func (m *Machine) Args() []string {
	args := []string{m.path}
	for _, p := range m.parts {
		args = append(args, p.Args()...)
	}
	return args
}
