package vsphere

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/plan"
	"nearmetal/internal/text"
)

// Inspect reads the VM back from vCenter, setting by setting.
func (i *instance) Inspect(ctx context.Context, vm *plan.VM, _ *plan.Region) *backend.Facts {
	f := &backend.Facts{VM: vm.Name, Guest: guestPlan(vm, i.set)}
	var have mo.VirtualMachine
	if err := i.c.retrieve(ctx, i.vm, []string{"config", "runtime"}, &have); err != nil || have.Config == nil {
		f.Settings = []backend.Setting{{What: "settings in vCenter", Planned: "as planned", Found: "cannot be read: " + words(err), Unread: true}}
		return f
	}
	r := &readBack{}
	c := have.Config
	r.add("power", "on", map[bool]string{true: "on", false: string(have.Runtime.PowerState)}[have.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn])
	host := ""
	if have.Runtime.Host != nil {
		host = i.d.place.hostName(*have.Runtime.Host)
	}
	r.add("host", i.host.name, host)
	r.add("numCPUs", fmt.Sprint(i.set.NumCPUs), fmt.Sprint(c.Hardware.NumCPU))
	r.add("numCoresPerSocket", fmt.Sprint(i.set.CoresPerSocket), fmt.Sprint(c.Hardware.NumCoresPerSocket))
	r.add("memoryMB", fmt.Sprint(i.set.MemoryMB), fmt.Sprint(c.Hardware.MemoryMB))
	r.add("memoryReservationLockedToMax", fmt.Sprint(i.set.MemoryLocked), fmt.Sprint(c.MemoryReservationLockedToMax != nil && *c.MemoryReservationLockedToMax))
	r.add("cpuHotAddEnabled", fmt.Sprint(i.set.CPUHotAdd), fmt.Sprint(c.CpuHotAddEnabled != nil && *c.CpuHotAddEnabled))
	level := "normal"
	if c.LatencySensitivity != nil {
		level = string(c.LatencySensitivity.Level)
	}
	r.add("latencySensitivity", i.set.Latency, level)
	var mhz int64
	if c.CpuAllocation != nil && c.CpuAllocation.Reservation != nil {
		mhz = *c.CpuAllocation.Reservation
	}
	r.add("cpuAllocation.reservation", fmt.Sprint(i.set.CPUReservation), fmt.Sprint(mhz))
	if i.set.CoresPerNUMANode > 0 {
		found := "automatic"
		if n := c.NumaInfo; n != nil && n.CoresPerNumaNode != nil && (n.AutoCoresPerNumaNode == nil || !*n.AutoCoresPerNumaNode) {
			found = fmt.Sprint(*n.CoresPerNumaNode)
		}
		r.add("virtualNuma.coresPerNumaNode", fmt.Sprint(i.set.CoresPerNUMANode), found)
	}
	if i.set.Firmware != "" {
		r.add("firmware", i.set.Firmware, text.OneLine(c.Firmware))
	}
	if on := i.set.SecureBoot; on != nil {
		found := c.BootOptions != nil && c.BootOptions.EfiSecureBootEnabled != nil && *c.BootOptions.EfiSecureBootEnabled
		r.add("efiSecureBootEnabled", fmt.Sprint(*on), fmt.Sprint(found))
	}
	extra := map[string]string{}
	for _, o := range c.ExtraConfig {
		v := o.GetOptionValue()
		extra[v.Key] = fmt.Sprint(v.Value)
	}
	for _, k := range sortedKeys(i.set.ExtraConfig) {
		found, ok := extra[k]
		if !ok {
			found = "not set"
		}
		r.add(k, i.set.ExtraConfig[k], text.OneLine(found))
	}
	r.add("mark", i.mark, text.OneLine(extra[markKey]))
	r.devices(i.set.Devices, c.Hardware.Device, i.d.place)
	f.Settings = r.list
	return f
}

// readBack collects settings as planned and as found.
type readBack struct{ list []backend.Setting }

func (r *readBack) add(what, planned, found string) {
	r.list = append(r.list, backend.Setting{What: what, Planned: planned, Found: found, OK: planned == found})
}

// devices compares the functions of the host.
func (r *readBack) devices(planned []esx.Device, have []types.BaseVirtualDevice, p *place) {
	count := map[string]int{}
	for _, d := range have {
		switch v := d.(type) {
		case *types.VirtualPCIPassthrough:
			if b, ok := v.Backing.(*types.VirtualPCIPassthroughDeviceBackingInfo); ok {
				count["passthru "+address(b.Id)]++
			}
			if b, ok := v.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo); ok && len(b.AllowedDevice) == 1 {
				a := b.AllowedDevice[0]
				count["dynamic "+esx.Device{VendorID: int(uint16(a.VendorId)), DeviceID: int(uint16(a.DeviceId))}.IDs()]++
			}
			if b, ok := v.Backing.(*types.VirtualPCIPassthroughVmiopBackingInfo); ok {
				count[esx.VGPU+" "+b.Vgpu]++
			}
		case *types.VirtualVmxnet3Vrdma:
			if sameGroup(v.Backing, p.pvrdma) {
				count[esx.PVRDMA+" "+p.file.PVRDMA]++
			}
		case *types.VirtualSriovEthernetCard:
			if v.SriovBacking != nil && v.SriovBacking.PhysicalFunctionBacking != nil {
				count["sriov "+address(v.SriovBacking.PhysicalFunctionBacking.Id)]++
			}
		}
	}
	for _, d := range planned {
		key := d.Kind + " " + d.Which()
		found := "in the VM"
		if count[key]--; count[key] < 0 {
			found = "not in the VM"
		}
		r.add("device "+key, "in the VM", found)
	}
}

// sameGroup reports whether two cards are on one port group of a distributed switch.
func sameGroup(a, b types.BaseVirtualDeviceBackingInfo) bool {
	x, ok := a.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo)
	y, is := b.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo)
	return ok && is && x.Port.PortgroupKey == y.Port.PortgroupKey && x.Port.SwitchUuid == y.Port.SwitchUuid
}

// hostName returns the name of a known host.
func (p *place) hostName(ref types.ManagedObjectReference) string {
	for _, m := range p.hosts {
		if m.ref == ref {
			return m.name
		}
	}
	return ref.Value
}

// guestPlan returns the part of the plan that the guest can see: ESXi presents no threads, dies, caches or distances,
// and sockets of its own.
func guestPlan(vm *plan.VM, set *esx.VM) *plan.VM {
	g := *vm
	g.Dies, g.Threads, g.Cores, g.L3 = 1, 1, set.CoresPerSocket, nil
	g.Sockets = max(1, set.NumCPUs/max(1, set.CoresPerSocket))
	g.Nodes = slices.Clone(vm.Nodes)
	for n := range g.Nodes {
		g.Nodes[n].Distances, g.Nodes[n].PageBytes = nil, 0
	}
	g.Devices = nil // ESXi chooses their addresses in the guest
	return &g
}

func sortedKeys(m map[string]string) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	sort.Strings(list)
	return list
}
