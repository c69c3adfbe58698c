package vcsim

import (
	"fmt"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
)

// An invented machine: two packages of 24 cores with two threads each, in four NUMA nodes, as with sub-NUMA
// clustering. It has an Ethernet card for vCenter, and two dual-port ConnectX-5 in nodes 0 and 2: the first port of
// each with virtual functions, the second passed through as a whole. The fields are those that VMware's API
// describes.
const (
	packages = 2
	cores    = 24 // per package
	threads  = 2  // per core
	nodes    = 4
	// NodeBytes is the memory of a node.
	NodeBytes = 96 << 30
	// VFs is the number of virtual functions of each first port.
	VFs = 4
	mhz = 2600
)

type card struct {
	id, bridge, name string
	vendor, device   uint16
	node             int
	vfs              bool // SR-IOV is enabled
	whole            bool // passed through
}

var cards = []card{
	{"0000:1a:00.0", "0000:19:00.0", "vmnic0", 0x8086, 0x1572, 0, false, false},
	{"0000:3b:00.0", "0000:3a:00.0", "vmnic4", 0x15b3, 0x1017, 0, true, false},
	{"0000:3b:00.1", "0000:3a:00.0", "", 0x15b3, 0x1017, 0, false, true},
	{"0000:af:00.0", "0000:ae:00.0", "vmnic6", 0x15b3, 0x1017, 2, true, false},
	{"0000:af:00.1", "0000:ae:00.0", "", 0x15b3, 0x1017, 2, false, true},
}

func (c *card) driver() string {
	if c.vendor == 0x15b3 {
		return "nmlx5_core"
	}
	return "i40en"
}

// describe makes a host of the simulator the machine above.
func describe(h *simulator.HostSystem) {
	hw := *h.Hardware
	hw.CpuInfo = types.HostCpuInfo{NumCpuPackages: packages, NumCpuCores: packages * cores, NumCpuThreads: packages * cores * threads, Hz: mhz * 1e6}
	hw.CpuPkg = nil
	for p := 0; p < packages; p++ {
		pkg := types.HostCpuPackage{Index: int16(p), Vendor: "intel", Hz: mhz * 1e6, Description: "Intel(R) Xeon(R) Gold 6248R CPU @ 2.60GHz"}
		for t := 0; t < cores*threads; t++ {
			pkg.ThreadId = append(pkg.ThreadId, int16(p*cores*threads+t))
		}
		hw.CpuPkg = append(hw.CpuPkg, pkg)
	}
	hw.MemorySize = nodes * NodeBytes
	each := packages * cores * threads / nodes
	info := &types.HostNumaInfo{Type: "NUMA", NumNodes: nodes}
	for n := 0; n < nodes; n++ {
		node := types.HostNumaNode{TypeId: byte(n), MemoryRangeBegin: int64(n) * NodeBytes, MemoryRangeLength: NodeBytes}
		for t := each - 1; t >= 0; t-- { // ESXi lists them in descending order
			node.CpuID = append(node.CpuID, int16(n*each+t))
		}
		info.NumaNode = append(info.NumaNode, node)
	}
	hw.NumaInfo, hw.PciDevice = info, nil
	h.Config.PciPassthruInfo, h.Config.Network.Pnic = nil, nil
	seen := map[string]bool{}
	for _, c := range cards {
		add := func(id, parent string, class, vendor, device uint16, name string) {
			var bus, slot, fn uint
			fmt.Sscanf(id, "0000:%02x:%02x.%d", &bus, &slot, &fn)
			hw.PciDevice = append(hw.PciDevice, types.HostPciDevice{Id: id, ClassId: int16(class), Bus: byte(bus), Slot: byte(slot), Function: byte(fn),
				VendorId: int16(vendor), DeviceId: int16(device), ParentBridge: parent, DeviceName: name})
			info.NumaNode[c.node].PciId = append(info.NumaNode[c.node].PciId, id)
		}
		if !seen[c.bridge] {
			seen[c.bridge] = true
			add(c.bridge, "", 0x0604, 0x8086, 0x2030, "Sky Lake-E PCI Express Root Port A")
		}
		add(c.id, c.bridge, 0x0200, c.vendor, c.device, "MT27800 Family [ConnectX-5]")
		if c.name != "" {
			h.Config.Network.Pnic = append(h.Config.Network.Pnic, types.PhysicalNic{Key: "key-vim.host.PhysicalNic-" + c.name, Device: c.name, Pci: c.id, Driver: c.driver(), Mac: "b8:59:9f:00:00:01"})
		}
		p := types.HostPciPassthruInfo{Id: c.id, DependentDevice: c.id, PassthruCapable: c.vendor == 0x15b3, PassthruEnabled: c.whole, PassthruActive: c.whole}
		if c.vendor != 0x15b3 {
			h.Config.PciPassthruInfo = append(h.Config.PciPassthruInfo, &p)
			continue
		}
		s := &types.HostSriovInfo{HostPciPassthruInfo: p, SriovCapable: true, MaxVirtualFunctionSupported: 16}
		if c.vfs {
			s.SriovEnabled, s.SriovActive, s.NumVirtualFunction, s.NumVirtualFunctionRequested = true, true, VFs, VFs
		}
		h.Config.PciPassthruInfo = append(h.Config.PciPassthruInfo, s)
	}
	h.Hardware = &hw
	h.Config.PowerSystemInfo = &types.PowerSystemInfo{CurrentPolicy: types.HostPowerPolicy{Key: 1, Name: "PowerPolicy.static.name", ShortName: "static"}}
	h.Summary.Hardware.NumCpuCores, h.Summary.Hardware.NumCpuThreads, h.Summary.Hardware.NumCpuPkgs = packages*cores, packages*cores*threads, packages
	h.Summary.Hardware.CpuMhz, h.Summary.Hardware.MemorySize = mhz, nodes*NodeBytes
	h.Summary.QuickStats.OverallMemoryUsage = 4 << 10
}

// target returns what VMs of such a host can have.
func target(h *simulator.HostSystem) *types.ConfigTarget {
	t := &types.ConfigTarget{NumCpus: packages * cores * threads, NumCpuCores: packages * cores, NumNumaNodes: nodes, SupportedMaxMemMB: 6 << 20}
	for i, d := range h.Hardware.PciDevice {
		for _, b := range h.Config.PciPassthruInfo {
			p := b.GetHostPciPassthruInfo()
			if p.Id != d.Id {
				continue
			}
			info := types.VirtualMachinePciPassthroughInfo{VirtualMachineTargetInfo: types.VirtualMachineTargetInfo{Name: d.Id}, PciDevice: h.Hardware.PciDevice[i], SystemId: "564d-" + h.Name}
			if p.PassthruActive {
				t.PciPassthrough = append(t.PciPassthrough, &info)
				t.DynamicPassthrough = append(t.DynamicPassthrough, types.VirtualMachineDynamicPassthroughInfo{DeviceName: d.DeviceName,
					VendorId: int32(uint16(d.VendorId)), DeviceId: int32(uint16(d.DeviceId))})
			}
			if s, ok := b.(*types.HostSriovInfo); ok && s.SriovActive {
				t.Sriov = append(t.Sriov, types.VirtualMachineSriovInfo{VirtualMachinePciPassthroughInfo: info})
			}
		}
	}
	return t
}

// room sets what VMs of a pool over n hosts can reserve: a sixteenth of the memory is ESXi's own.
func room(p *simulator.ResourcePool, n int) {
	memory, cpu := int64(n)*nodes*NodeBytes/16*15, int64(n)*packages*cores*mhz
	p.Runtime.Memory = types.ResourcePoolResourceUsage{UnreservedForPool: memory, UnreservedForVm: memory, MaxUsage: memory}
	p.Runtime.Cpu = types.ResourcePoolResourceUsage{UnreservedForPool: cpu, UnreservedForVm: cpu, MaxUsage: cpu}
}
