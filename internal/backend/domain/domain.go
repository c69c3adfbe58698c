// Package domain writes the VMs of plans as libvirt domains, in XML. It starts none.
package domain

import (
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// Make returns the domain of a VM of a plan: the same machine as package qemu's, as far as libvirt 9.0 can describe
// it. name is the domain's name, and region the name of its shared memory. Parts that only a running cluster has (the
// kernel, exports, links, the agent's port) are omitted. Make reads nothing of the host. The error names the part of
// the plan that libvirt cannot carry out.
func Make(name, region string, vm *plan.VM, s backend.Settings) (*libvirtxml.Domain, error) {
	if err := check(vm, s); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	low := lower.Of(vm)
	vcpus := uint(max(vm.VCPUs, 2)) // see smp in package qemu: one possible vCPU breaks atomic operations between VMs
	d := &libvirtxml.Domain{
		Type:          "kvm",
		Name:          name,
		Memory:        &libvirtxml.DomainMemory{Value: uint(vm.MemoryBytes >> 10), Unit: "KiB", DumpCore: "off"},
		CurrentMemory: &libvirtxml.DomainCurrentMemory{Value: uint(vm.MemoryBytes >> 10), Unit: "KiB"},
		MemoryBacking: Backing(vm),
		VCPU:          &libvirtxml.DomainVCPU{Placement: "static", Value: vcpus},
		CPUTune:       Pins(vm),
		NUMATune:      Binding(vm),
		OS:            &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "q35", Type: "hvm"}},
		Features:      &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		CPU:           CPU(vm, s.Accel, low, s.SlowStrings),
		Clock:         &libvirtxml.DomainClock{Offset: "utc"},
		Devices: &libvirtxml.DomainDeviceList{
			Controllers: []libvirtxml.DomainController{NoUSB()},
			MemBalloon:  &libvirtxml.DomainMemBalloon{Model: "none"},
		},
	}
	if vcpus != uint(vm.VCPUs) {
		d.VCPU.Current = uint(vm.VCPUs)
	}
	if s.Accel == host.TCG {
		d.Type = "qemu"
	} else if lower.Dedicated(vm.Pins) {
		d.Features.KVM = &libvirtxml.DomainFeatureKVM{HintDedicated: &libvirtxml.DomainFeatureState{State: "on"}}
	}
	if len(vm.EmulatorCPUs) > 0 {
		// For disks that an administrator adds: by default QEMU's main thread would serve a disk.
		d.IOThreads = 1
	}
	if low.IOMMU {
		d.Features.IOAPIC = &libvirtxml.DomainFeatureIOAPIC{Driver: "qemu"}
		caching := "" // QEMU rejects functions of the host without caching
		if len(vm.Devices) > 0 {
			caching = "on"
		}
		d.Devices.IOMMU = &libvirtxml.DomainIOMMU{Model: "intel", Driver: &libvirtxml.DomainIOMMUDriver{IntRemap: "on", CachingMode: caching, EIM: "on"}}
	}
	if err := AddDevices(d, vm, low); err != nil {
		return nil, fmt.Errorf("VM %s: %w", vm.Name, err)
	}
	if s.Region != nil {
		addRegion(d, region, s.Region)
	}
	return d, nil
}

// check returns an error for a VM that cannot be a domain, or that libvirt does not support.
func check(vm *plan.VM, s backend.Settings) error {
	switch {
	case vm.VCPUs < 1 || vm.Sockets < 1 || vm.Dies < 1 || vm.Cores < 1 || vm.Threads < 1 ||
		vm.Sockets*vm.Dies*vm.Cores*vm.Threads != vm.VCPUs:
		return fmt.Errorf("%d vCPUs are not %d sockets × %d dies × %d cores × %d threads", vm.VCPUs, vm.Sockets, vm.Dies, vm.Cores, vm.Threads)
	case vm.MemoryBytes == 0 || vm.MemoryBytes%(1<<20) != 0:
		return fmt.Errorf("memory of %d bytes: a multiple of 1 MiB", vm.MemoryBytes)
	case s.Region != nil && s.Region.Device == "ivshmem" && s.Region.Backing != "shm":
		return errors.New("the region: libvirt's ivshmem is always a file in /dev/shm: say region: {backing: shm}, or {device: devdax}")
	}
	for i, n := range vm.Nodes {
		if n.ID != i {
			return fmt.Errorf("node %d: nodes are numbered from 0 in their order", n.ID)
		}
	}
	return nil
}

// Pins returns the cputune element of a VM: a pin for each vCPU, and if CPUs are reserved for them, for QEMU's other
// threads and the disks' thread. nil: the VM is not pinned.
func Pins(vm *plan.VM) *libvirtxml.DomainCPUTune {
	if len(vm.Pins) == 0 && len(vm.EmulatorCPUs) == 0 {
		return nil
	}
	t := &libvirtxml.DomainCPUTune{}
	for v, cpus := range vm.Pins {
		if len(cpus) > 0 {
			t.VCPUPin = append(t.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(v), CPUSet: list(cpus)})
		}
	}
	if len(vm.EmulatorCPUs) > 0 {
		t.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: list(vm.EmulatorCPUs)}
		t.IOThreadPin = []libvirtxml.DomainCPUTuneIOThreadPin{{IOThread: 1, CPUSet: list(vm.EmulatorCPUs)}}
	}
	return t
}

// CPU returns the cpu element of a VM: the host's model, the topology, the caches, the nodes with their distances.
// slowStrings is the result of host.SlowStrings.
func CPU(vm *plan.VM, accel host.Accel, low lower.Machine, slowStrings bool) *libvirtxml.DomainCPU {
	c := &libvirtxml.DomainCPU{
		Mode: "host-passthrough", Check: "none", Migratable: "off",
		Topology: &libvirtxml.DomainCPUTopology{Sockets: vm.Sockets, Dies: vm.Dies, Cores: vm.Cores, Threads: vm.Threads},
		// QEMU presents a last-level cache for each die.
		Cache: &libvirtxml.DomainCPUCache{Level: 3, Mode: "emulate"},
	}
	if vm.VCPUs == 1 {
		c.Topology.Sockets = 2
	}
	feature := func(policy, name string) {
		c.Features = append(c.Features, libvirtxml.DomainCPUFeature{Policy: policy, Name: name})
	}
	if accel == host.TCG {
		c.Mode, c.Migratable = "maximum", ""
	}
	if accel == host.TCG || slowStrings {
		feature("disable", "erms")
		feature("disable", "fsrm")
	}
	if accel != host.TCG && (vm.Dies > 1 || vm.Threads > 1) {
		feature("force", "topoext") // AMD hosts provide the leaves that describe dies and threads only on request
	}
	if low.PhysBits != 0 {
		c.MaxPhysAddr = &libvirtxml.DomainCPUMaxPhysAddr{Mode: "emulate", Bits: uint(low.PhysBits)}
	}
	c.Numa = cells(vm)
	return c
}

// Machine returns the type of a domain's machine: "q35" for pc-q35-7.2 and similar, "pc" for pc-i440fx-7.2. Others
// are returned unchanged; "" is libvirt's default, pc.
func Machine(d *libvirtxml.Domain) string {
	name := ""
	if d.OS != nil && d.OS.Type != nil {
		name = d.OS.Type.Machine
	}
	switch {
	case name == "" || name == "pc" || hasPrefix(name, "pc-i440fx-", "pc-0", "pc-1", "rhel6", "ubuntu"):
		return "pc"
	case name == "q35" || hasPrefix(name, "pc-q35-"):
		return "q35"
	}
	return name
}

// list formats CPUs or nodes for libvirt.
func list(ids []int) string {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	return topology.FormatList(slices.Compact(sorted))
}
