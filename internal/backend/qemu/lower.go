package qemu

import (
	"fmt"

	"nearmetal/internal/plan"
	"nearmetal/internal/topology"
)

// lowered is what a VM of a plan needs of a QEMU machine beside what the plan says.
type lowered struct {
	expanders []pxb
	// mmio is the window for the 64-bit BARs of the devices, in bytes; 0: the default.
	mmio uint64
	// physBits is the width of physical addresses that memory and window need; 0: the default is enough.
	physBits int
	// iommu says that the VM needs a virtual IOMMU with interrupt remapping: x2APIC IDs above 254.
	iommu bool
}

// pxb is a PCIe expander bridge of a VM with the devices below it.
type pxb struct {
	node    int   // guest node
	bus     int   // its bus number
	devices []int // by place in plan.VM.Devices
}

// lower finds it out. It is pure.
func lower(vm *plan.VM) lowered {
	var bars uint64
	for i := range vm.Devices {
		bars += vm.Devices[i].BARBytes
	}
	l := lowered{expanders: expand(vm), mmio: mmioBytes(bars), iommu: maxAPIC(vm) > iommuAbove}
	l.physBits = physBits(vm.MemoryBytes, l.mmio)
	return l
}

// expand puts the devices behind expander bridges on their nodes, those of memory only too. Where
// there is one node the root complex itself is on it.
func expand(vm *plan.VM) []pxb {
	if len(vm.Nodes) < 2 {
		return nil
	}
	var list []pxb
	at := map[int]int{} // node → place in list
	for i := range vm.Devices {
		node := vm.Devices[i].Node
		if node < 0 {
			continue
		}
		k, ok := at[node]
		if !ok {
			k = len(list)
			at[node] = k
			list = append(list, pxb{node: node})
		}
		list[k].devices = append(list[k].devices, i)
	}
	// Bus numbers of the expanders, in equal shares of those above the machine's
	// own: room for each one's root ports and what is behind them.
	for k := range list {
		list[k].bus = minExpanderBus + (256-minExpanderBus)/len(list)*k
	}
	return list
}

// maxAPIC is the largest x2APIC ID that QEMU assigns: each level below the socket
// gets as many bits as its number needs.
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

// mmioBytes is the window by VMware's rule: the sum of the BARs rounded
// up to a power of two, then the next one.
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

// physBits is the width of addresses that memory, the hole below 4 GiB and the
// window need; 0: at most 40 bits, which every CPU model has.
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

// Advise says what of a plan QEMU cannot do well on its hosts.
func (d *driver) Advise(p *plan.Plan, hosts []topology.Host) []string {
	var list []string
	for i := range p.VMs {
		vm := &p.VMs[i]
		need := lower(vm).physBits
		for k := range hosts {
			if h := &hosts[k]; h.Name == vm.Host && need > h.PhysBits && h.PhysBits > 0 {
				list = append(list, fmt.Sprintf("%s: %s needs %d bits of physical addresses for memory and device windows, the CPU has %d", h.Name, vm.Name, need, h.PhysBits))
			}
		}
	}
	return list
}
