// Package lower determines the properties of QEMU's machine that a VM of a plan needs and that the plan does not
// state. All backends whose VMs are QEMU's use it, so that their machines are the same.
package lower

import (
	"nearmetal/internal/plan"
)

// FirstBus is the first bus number of expanders; lower ones are left to the machine's own root complex.
const FirstBus = 64

// DefaultWindow is the size in bytes of QEMU's own window of a q35 machine: a smaller one need not be requested.
const DefaultWindow = 32 << 30

// IOMMUAbove is the x2APIC ID above which a virtual IOMMU with interrupt remapping is needed, because without it more
// than 255 vCPUs cannot be interrupted.
const IOMMUAbove = 254

// Machine lists the properties of a QEMU machine that a VM needs in addition to its plan.
type Machine struct {
	Expanders []Expander // in the order of the devices
	// MMIO is the window for the 64-bit BARs of the devices, in bytes; 0: the default.
	MMIO uint64
	// PhysBits is the width of physical addresses that memory and window need; 0: the default is enough.
	PhysBits int
	// IOMMU reports that the VM needs a virtual IOMMU with interrupt remapping, because it has x2APIC IDs above
	// IOMMUAbove.
	IOMMU bool
}

// Expander is a PCIe expander bridge of a VM with the devices below it.
type Expander struct {
	Node    int   // guest node
	Bus     int   // its bus number
	Devices []int // indices in plan.VM.Devices
}

// Of returns the machine for a VM. It is pure.
func Of(vm *plan.VM) Machine {
	var bars uint64
	for i := range vm.Devices {
		bars += vm.Devices[i].BARBytes
	}
	l := Machine{Expanders: expand(vm), MMIO: mmioBytes(bars), IOMMU: maxAPIC(vm) > IOMMUAbove}
	l.PhysBits = physBits(vm.MemoryBytes, l.MMIO)
	return l
}

// expand puts the devices behind expander bridges on their nodes, including nodes with memory only. With a single
// node the root complex itself is on it.
func expand(vm *plan.VM) []Expander {
	if len(vm.Nodes) < 2 {
		return nil
	}
	var list []Expander
	at := map[int]int{} // node → index in list
	for i := range vm.Devices {
		node := vm.Devices[i].Node
		if node < 0 {
			continue
		}
		k, ok := at[node]
		if !ok {
			k = len(list)
			at[node] = k
			list = append(list, Expander{Node: node})
		}
		list[k].Devices = append(list[k].Devices, i)
	}
	// The expanders get equal shares of the bus numbers above the machine's own: room for each one's root ports and
	// the buses behind them.
	for k := range list {
		list[k].Bus = FirstBus + (256-FirstBus)/len(list)*k
	}
	return list
}

// maxAPIC returns the largest x2APIC ID that QEMU assigns: each level below the socket gets as many bits as its
// number needs.
func maxAPIC(vm *plan.VM) int {
	width := func(n int) int {
		w := 0
		for w < 62 && 1<<w < n {
			w++
		}
		return w
	}
	id := vm.Sockets - 1
	for _, n := range []int{vm.Dies, vm.Cores, vm.Threads} {
		id = id<<width(n) + n - 1
	}
	return id
}

// mmioBytes returns the size of the window by VMware's rule: the sum of the BARs rounded up to a power of two, then
// doubled.
func mmioBytes(bars uint64) uint64 {
	if bars == 0 {
		return 0
	}
	w := uint64(1 << 20)
	for w < bars && w < 1<<50 {
		w <<= 1
	}
	return w << 1
}

// physBits returns the width of addresses needed for the memory, the hole below 4 GiB and the window; 0: at most 40
// bits, which every CPU model has.
func physBits(memory, mmio uint64) int {
	top := memory + 4<<30
	if mmio > 0 {
		top = (top + mmio - 1) / mmio * mmio // the window is aligned to its size
	}
	top += mmio
	bits := 0
	for bits < 63 && uint64(1)<<bits < top {
		bits++
	}
	if bits <= 40 {
		return 0
	}
	return bits
}

// Dedicated reports whether each vCPU has one host CPU that no other vCPU shares: the guest may then spin.
func Dedicated(pins [][]int) bool {
	seen := map[int]bool{}
	for _, p := range pins {
		if len(p) != 1 || seen[p[0]] {
			return false
		}
		seen[p[0]] = true
	}
	return len(pins) > 0
}
