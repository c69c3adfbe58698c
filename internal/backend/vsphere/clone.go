package vsphere

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
)

// markKey is the advanced setting that marks a VM as nearmetal's. The call that clones the VM writes it, so that the
// VM is never without it; a custom attribute would need a second call.
const markKey = "nearmetal.mark"

// The kinds of Refs.
const (
	kindVM        = "vm"
	kindPortGroup = "portgroup"
)

// Start clones the template, configures the clone in one task, has vCenter customize it, and powers it on. It records
// beforehand what it makes: the VM's name, its mark, the template, the folder and the host; then the VM's own ID.
func (d *driver) Start(ctx context.Context, r backend.Request) (backend.Instance, error) {
	v, err := d.vm(r.VM.Name)
	if err != nil {
		return nil, err
	}
	m := d.place.hosts[v.Host]
	if m == nil {
		return nil, fmt.Errorf("VM %s: host %s was not read", v.Name, v.Host)
	}
	card, err := d.card(r)
	if err != nil {
		return nil, fmt.Errorf("VM %s: %w", v.Name, err)
	}
	turn, err := d.c.slot(ctx, m.name)
	if err != nil {
		return nil, err
	}
	defer turn()
	mark := newMark()
	i := newInstance(d, r, v, m, mark, card)
	if err := r.Record(i.Ref()); err != nil {
		return nil, fmt.Errorf("VM %s: %w", v.Name, err)
	}
	err = i.start(ctx, r)
	if err == nil {
		return i, nil
	}
	i.log.Say("%v", err)
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
	defer cancel()
	if e := i.removeInTurn(undo); e != nil { // uses this start's slot: all VMs of a host may end at the same time
		err = fmt.Errorf("%w; and it is left: %w", err, e)
	}
	return nil, err
}

// card returns the card of a VM; Network chose its MAC and address.
func (d *driver) card(r backend.Request) (*backend.Card, error) {
	c, ok := d.cards[r.VM.Name]
	if !ok {
		return nil, errors.New("it has no network")
	}
	return &c, nil
}

// start performs the steps. An error names the VM, the host and the task, and has vCenter's own words.
func (i *instance) start(ctx context.Context, r backend.Request) error {
	d := i.d
	at := fmt.Sprintf("VM %s (%s) on host %s", i.plan.Name, i.name, i.host.name)
	info, err := i.c.do(ctx, "clone template "+text.OneLine(d.place.template.Name)+" as "+at, i.clone, func(t types.ManagedObjectReference) error {
		i.log.Say("clone: task %s", t.Value)
		return nil
	})
	var ref types.ManagedObjectReference
	if info != nil { // also if ctx has ended: the clone is then removed without a search
		ref, _ = info.Result.(types.ManagedObjectReference)
	}
	if err != nil {
		if ref.Type == "VirtualMachine" {
			i.setVM(ref)
		}
		return err
	}
	if ref.Type != "VirtualMachine" {
		return fmt.Errorf("%s: vCenter cloned it, and does not say as what", at)
	}
	i.setVM(ref)
	i.log.Say("cloned: %s", ref.Value)
	if err := r.Record(i.Ref()); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	// A clone does not always have the settings of its call. Its devices are read, and everything else is set.
	var clone mo.VirtualMachine
	if err := i.c.retrieve(ctx, ref, []string{"config.hardware", "config.extraConfig"}, &clone); err != nil {
		return i.c.explain("read "+at, err)
	}
	if clone.Config == nil {
		return fmt.Errorf("%s: vCenter reports no settings of the clone", at)
	}
	spec, err := i.settings(&clone)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	vm := object.NewVirtualMachine(i.c.client.Client, ref)
	if _, err = i.c.do(ctx, "set "+at, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := vm.Reconfigure(ctx, *spec)
		return taskRef(t), err
	}, nil); err != nil {
		return err
	}
	i.log.Say("set in one task")
	if _, err = i.c.do(ctx, "customize "+at, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := vm.Customize(ctx, i.customization(spec, &clone))
		return taskRef(t), err
	}, nil); err != nil {
		return err
	}
	if err := i.watch(); err != nil {
		return err
	}
	if _, err = i.c.do(ctx, "power on "+at, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := vm.PowerOn(ctx)
		return taskRef(t), err
	}, nil); err != nil {
		return err
	}
	i.log.Say("powered on")
	return nil
}

// clone starts the task that clones the template.
func (i *instance) clone(ctx context.Context) (types.ManagedObjectReference, error) {
	p := i.d.place
	pool := i.d.poolOf(i.set.Host)
	spec := types.VirtualMachineCloneSpec{
		Location: types.VirtualMachineRelocateSpec{Pool: &pool, Host: &i.host.ref, Datastore: p.datastore},
		Config: &types.VirtualMachineConfigSpec{Annotation: markLine(i.mark),
			ExtraConfig: []types.BaseOptionValue{&types.OptionValue{Key: markKey, Value: i.mark}}},
	}
	if p.file.Linked {
		spec.Location.DiskMoveType = string(types.VirtualMachineRelocateDiskMoveOptionsCreateNewChildDiskBacking)
		spec.Snapshot = p.template.Snapshot.CurrentSnapshot
	}
	t, err := object.NewVirtualMachine(i.c.client.Client, p.template.Self).Clone(ctx, object.NewFolder(i.c.client.Client, p.folder), i.name, spec)
	return taskRef(t), err
}

// normal returns an allocation without a limit. An allocation is replaced as a whole.
func normal(reservation int64) *types.ResourceAllocationInfo {
	return &types.ResourceAllocationInfo{Reservation: &reservation, Limit: types.NewInt64(-1), Shares: &types.SharesInfo{Level: types.SharesLevelNormal}}
}

// settings returns the one change that configures a clone as planned.
func (i *instance) settings(clone *mo.VirtualMachine) (*types.VirtualMachineConfigSpec, error) {
	v := i.set
	spec := &types.VirtualMachineConfigSpec{
		NumCPUs: int32(v.NumCPUs), NumCoresPerSocket: int32(v.CoresPerSocket), MemoryMB: v.MemoryMB,
		CpuHotAddEnabled: types.NewBool(v.CPUHotAdd), MemoryReservationLockedToMax: types.NewBool(v.MemoryLocked),
		LatencySensitivity: &types.LatencySensitivity{Level: types.LatencySensitivitySensitivityLevel(v.Latency)},
		CpuAllocation:      normal(v.CPUReservation), MemoryAllocation: normal(0), Firmware: v.Firmware, Annotation: markLine(i.mark),
	}
	if v.SecureBoot != nil {
		spec.BootOptions = &types.VirtualMachineBootOptions{EfiSecureBootEnabled: v.SecureBoot}
	}
	if v.MemoryLocked {
		spec.MemoryAllocation = normal(v.MemoryMB)
	}
	if v.CoresPerNUMANode > 0 {
		spec.VirtualNuma = &types.VirtualMachineVirtualNuma{CoresPerNumaNode: types.NewInt32(int32(v.CoresPerNUMANode))}
	}
	for _, k := range sortedKeys(v.ExtraConfig) {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: k, Value: v.ExtraConfig[k]})
	}
	// For a vCenter that ignores the advanced settings of a clone's call.
	if has, _ := hasMark(clone.Config.ExtraConfig, i.mark); !has {
		spec.ExtraConfig = append(spec.ExtraConfig, &types.OptionValue{Key: markKey, Value: i.mark})
	}
	i.network(spec, clone)
	return spec, i.devices(spec)
}

// network connects the clone's first card to the VMs' network, or adds a card if the clone has none.
func (i *instance) network(spec *types.VirtualMachineConfigSpec, clone *mo.VirtualMachine) {
	backing := i.d.place.backing
	if c := firstCard(clone); c != nil {
		b := c.(types.BaseVirtualEthernetCard).GetVirtualEthernetCard()
		b.AddressType, b.MacAddress = string(types.VirtualEthernetCardMacTypeManual), i.card.MAC
		if backing != nil {
			b.Backing = backing
		}
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationEdit, Device: c})
		return
	}
	n := &types.VirtualVmxnet3{}
	n.Key, n.Backing, n.AddressType, n.MacAddress = -1, backing, string(types.VirtualEthernetCardMacTypeManual), i.card.MAC
	n.Connectable = connected()
	spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: n})
}

// connected describes a new card that is connected from the start.
func connected() *types.VirtualDeviceConnectInfo {
	return &types.VirtualDeviceConnectInfo{StartConnected: true, Connected: true, AllowGuestControl: true}
}

// firstCard returns a VM's first network card; nil: none.
func firstCard(vm *mo.VirtualMachine) types.BaseVirtualDevice {
	for _, d := range vm.Config.Hardware.Device {
		if _, ok := d.(types.BaseVirtualEthernetCard); ok {
			return d
		}
	}
	return nil
}

// devices adds the functions of the host.
func (i *instance) devices(spec *types.VirtualMachineConfigSpec) error {
	if len(i.set.Devices) == 0 {
		return nil
	}
	f, err := i.host.capture.found()
	if err != nil {
		return err
	}
	for n, x := range i.set.Devices {
		dev, err := i.device(f, x, int32(-100-n))
		if err != nil {
			return err
		}
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: types.VirtualDeviceConfigSpecOperationAdd, Device: dev})
	}
	return nil
}

// device converts a function of the host into a device of a VM.
func (i *instance) device(f *found, x esx.Device, key int32) (types.BaseVirtualDevice, error) {
	switch x.Kind {
	case esx.VGPU:
		d := &types.VirtualPCIPassthrough{}
		d.Key, d.Backing = key, &types.VirtualPCIPassthroughVmiopBackingInfo{Vgpu: x.Name, MigrateSupported: types.NewBool(false)}
		return d, nil
	case esx.PVRDMA:
		d := &types.VirtualVmxnet3Vrdma{}
		d.Key, d.Backing, d.Connectable = key, i.d.place.pvrdma, connected()
		return d, nil
	case "dynamic":
		p, err := i.host.dynamic(f, x)
		if err != nil {
			return nil, err
		}
		d := &types.VirtualPCIPassthrough{}
		d.Key, d.Backing = key, &types.VirtualPCIPassthroughDynamicBackingInfo{
			AllowedDevice: []types.VirtualPCIPassthroughAllowedDevice{{VendorId: p.VendorId, DeviceId: p.DeviceId}}}
		return d, nil
	}
	var pci *types.VirtualMachinePciPassthroughInfo
	for _, b := range f.target.PciPassthrough {
		if p := b.GetVirtualMachinePciPassthroughInfo(); x.Kind == "passthru" && address(p.PciDevice.Id) == x.Address {
			pci = p
		}
	}
	for k := range f.target.Sriov {
		if p := &f.target.Sriov[k]; x.Kind == "sriov" && address(p.PciDevice.Id) == x.Address {
			pci = &p.VirtualMachinePciPassthroughInfo
		}
	}
	if pci == nil {
		return nil, fmt.Errorf("host %s: vCenter does not list %s among what VMs can have (%s)", i.host.name, x.Address, x.Kind)
	}
	backing := types.VirtualPCIPassthroughDeviceBackingInfo{Id: pci.PciDevice.Id, DeviceId: fmt.Sprintf("%x", uint16(pci.PciDevice.DeviceId)),
		SystemId: pci.SystemId, VendorId: pci.PciDevice.VendorId}
	backing.DeviceName = pci.PciDevice.DeviceName
	node := int32(0) // the API's own client cannot distinguish 0 from a missing value
	if x.NUMANode != nil {
		node = int32(*x.NUMANode)
	}
	if x.Kind == "passthru" {
		d := &types.VirtualPCIPassthrough{}
		d.Key, d.NumaNode, d.Backing = key, node, &backing
		return d, nil
	}
	d := &types.VirtualSriovEthernetCard{AllowGuestOSMtuChange: types.NewBool(true),
		SriovBacking: &types.VirtualSriovEthernetCardSriovBackingInfo{PhysicalFunctionBacking: &backing}}
	d.Key, d.NumaNode, d.Backing, d.Connectable = key, node, i.d.place.backing, connected()
	return d, nil
}

// dynamic returns vCenter's entry for functions with a dynamic device's IDs.
func (m *machine) dynamic(f *found, x esx.Device) (*types.VirtualMachineDynamicPassthroughInfo, error) {
	for k := range f.target.DynamicPassthrough {
		if p := &f.target.DynamicPassthrough[k]; int(uint16(p.VendorId)) == x.VendorID && int(uint16(p.DeviceId)) == x.DeviceID {
			return p, nil
		}
	}
	return nil, fmt.Errorf("host %s: vCenter lists no function %s for Dynamic DirectPath I/O: leave dynamic out", m.name, x.IDs())
}

// customization sets the clone's name, and the address of its first card, if it has one; other cards use DHCP.
func (i *instance) customization(spec *types.VirtualMachineConfigSpec, clone *mo.VirtualMachine) types.CustomizationSpec {
	f := i.d.place.file
	s := types.CustomizationSpec{
		Identity:         &types.CustomizationLinuxPrep{HostName: &types.CustomizationFixedName{Name: i.plan.Name}, Domain: f.Domain},
		GlobalIPSettings: types.CustomizationGlobalIPSettings{DnsServerList: f.DNS},
	}
	cards := 0
	for _, d := range clone.Config.Hardware.Device {
		if _, ok := d.(types.BaseVirtualEthernetCard); ok {
			cards++
		}
	}
	for _, c := range spec.DeviceChange {
		x := c.GetVirtualDeviceConfigSpec()
		if _, ok := x.Device.(types.BaseVirtualEthernetCard); ok && x.Operation == types.VirtualDeviceConfigSpecOperationAdd {
			cards++
		}
	}
	for n := 0; n < cards; n++ {
		m := types.CustomizationAdapterMapping{Adapter: types.CustomizationIPSettings{Ip: &types.CustomizationDhcpIpGenerator{}}}
		if n == 0 && i.card.Address.IsValid() {
			m.Adapter = types.CustomizationIPSettings{Ip: &types.CustomizationFixedIp{IpAddress: i.card.Address.Addr().String()}, SubnetMask: mask(i.card.Address.Bits())}
			if i.card.Gateway.IsValid() {
				m.Adapter.Gateway = []string{i.card.Gateway.String()}
			}
		}
		s.NicSettingMap = append(s.NicSettingMap, m)
	}
	return s
}

// mask formats a prefix length as a netmask.
func mask(bits int) string {
	n := ^uint32(0) << (32 - bits)
	return fmt.Sprintf("%d.%d.%d.%d", n>>24, n>>16&0xff, n>>8&0xff, n&0xff)
}

// hasMark reports whether a VM's advanced settings have this mark; other, whether they have a different one.
func hasMark(list []types.BaseOptionValue, mark string) (has, other bool) {
	for _, o := range list {
		if v := o.GetOptionValue(); v.Key == markKey {
			text, _ := v.Value.(string)
			has = mark != "" && text == mark
			return has, !has
		}
	}
	return false, false
}
