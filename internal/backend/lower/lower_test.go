package lower

import (
	"reflect"
	"testing"

	"nearmetal/internal/plan"
)

// TestExpand: a device is behind an expander if the guest has several nodes, including those with memory only.
// Otherwise, or if the device is on no node, it is on the VM's own root.
func TestExpand(t *testing.T) {
	devices := []plan.Device{{Node: 2}, {Node: -1}, {Node: 0}, {Node: 2}}
	vm := &plan.VM{Nodes: []plan.Node{{ID: 0}, {ID: 1}, {ID: 2}}, Devices: devices}
	want := []Expander{{2, 64, []int{0, 3}}, {0, 160, []int{2}}}
	if got := expand(vm); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	vm.Nodes = vm.Nodes[:1]
	if got := expand(vm); got != nil {
		t.Errorf("one node: %+v", got)
	}
}

// TestLower: the window is the sum of the BARs rounded up to a power of two, doubled; addresses are wide enough for
// memory and window if 40 bits are not; x2APIC ID 255 requires a virtual IOMMU.
func TestLower(t *testing.T) {
	vm := func(sockets, cores, threads int, memory uint64, bars ...uint64) *plan.VM {
		v := &plan.VM{Sockets: sockets, Dies: 1, Cores: cores, Threads: threads, VCPUs: sockets * cores * threads, MemoryBytes: memory}
		for _, b := range bars {
			v.Devices = append(v.Devices, plan.Device{Node: -1, BARBytes: b})
		}
		return v
	}
	for _, x := range []struct {
		vm       *plan.VM
		mmio     uint64
		physBits int
		iommu    bool
	}{
		{vm(1, 1, 1, 2<<30), 0, 0, false},
		{vm(1, 1, 1, 2<<30, 32<<20, 1), 128 << 20, 0, false},
		{vm(1, 1, 1, 2<<30, 16<<30, 17<<30), 128 << 30, 0, false},
		{vm(1, 1, 1, 1<<40), 0, 41, false},
		{vm(1, 1, 1, 2<<30, 1<<40), 2 << 40, 42, false},
		{vm(1, 128, 2, 2<<30), 0, 0, true},   // IDs to 255
		{vm(1, 127, 2, 2<<30), 0, 0, false},  // to 253
		{vm(2, 72, 1, 2<<30), 0, 0, false},   // 7 bits of core: to 199
		{vm(3, 65, 1, 2<<30), 0, 0, true},    // 195 vCPUs, but IDs to 320
		{vm(1<<40, 1, 1, 2<<30), 0, 0, true}, // a value that no check has seen yet
	} {
		l := Of(x.vm)
		if l.MMIO != x.mmio || l.PhysBits != x.physBits || l.IOMMU != x.iommu {
			t.Errorf("%d x %d x %d, %d bytes: %+v", x.vm.Sockets, x.vm.Cores, x.vm.Threads, x.vm.MemoryBytes, l)
		}
	}
}
