package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// place has the objects in vCenter's inventory that a cluster file's `vsphere` names.
type place struct {
	file      spec.VSphere
	template  mo.VirtualMachine
	folder    types.ManagedObjectReference
	pool      *types.ManagedObjectReference // nil: each host's own
	datastore *types.ManagedObjectReference // nil: the template's
	backing   types.BaseVirtualDeviceBackingInfo
	pvrdma    types.BaseVirtualDeviceBackingInfo // nil: no PVRDMA cards
	dvs       *types.ManagedObjectReference      // switch on which a port group is made
	hosts     map[string]*machine                // by their names in plans
}

// machine is a host on which VMs may run.
type machine struct {
	name    string // in vCenter
	ref     types.ManagedObjectReference
	parent  types.ManagedObjectReference
	pool    types.ManagedObjectReference
	capture Capture
}

// templateProperties are the properties that are read of the template.
var templateProperties = []string{"name", "parent", "config.template", "config.firmware", "config.version", "config.hardware", "snapshot", "runtime.powerState", "resourcePool"}

// find finds all objects that the cluster file names, before anything is made.
func (s *Session) find(ctx context.Context, file spec.VSphere) (*place, error) {
	p := &place{file: file}
	if file.Template == "" {
		return nil, fmt.Errorf("VMs of vSphere are clones of a template: write vsphere: {template: NAME}")
	}
	if err := s.datacenter(ctx, file.Datacenter); err != nil {
		return nil, err
	}
	t, err := s.finder.VirtualMachine(ctx, file.Template)
	if err != nil {
		return nil, s.explain(fmt.Sprintf("find template %.100q", file.Template), err)
	}
	if err := s.retrieve(ctx, t.Reference(), templateProperties, &p.template); err != nil {
		return nil, s.explain("read template "+file.Template, err)
	}
	if err := p.checkTemplate(); err != nil {
		return nil, err
	}
	if p.template.Parent != nil {
		p.folder = *p.template.Parent
	}
	if file.Folder != "" {
		f, err := s.finder.Folder(ctx, file.Folder)
		if err != nil {
			return nil, s.explain(fmt.Sprintf("find folder %.100q", file.Folder), err)
		}
		p.folder = f.Reference()
	}
	if file.Datastore != "" {
		d, err := s.finder.Datastore(ctx, file.Datastore)
		if err != nil {
			return nil, s.explain(fmt.Sprintf("find datastore %.100q", file.Datastore), err)
		}
		ref := d.Reference()
		p.datastore = &ref
	}
	if file.Pool != "" {
		r, err := s.finder.ResourcePool(ctx, file.Pool)
		if err != nil {
			return nil, s.explain(fmt.Sprintf("find resource pool %.100q", file.Pool), err)
		}
		ref := r.Reference()
		p.pool = &ref
	}
	return p, s.findNetwork(ctx, p)
}

// checkTemplate returns an error for a template that is unsuitable for any plan.
func (p *place) checkTemplate() error {
	t := &p.template
	name := text.OneLine(t.Name)
	switch {
	case t.Config == nil:
		return fmt.Errorf("template %s: vCenter reports no settings of it", name)
	case t.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOn:
		return fmt.Errorf("template %s is powered on: its clones would be of a running system's disks", name)
	case p.file.Linked && (t.Snapshot == nil || t.Snapshot.CurrentSnapshot == nil):
		return fmt.Errorf("template %s has no snapshot, which linked clones share: make one, or leave linked out", name)
	}
	return nil
}

// findNetwork finds the VMs' network.
func (s *Session) findNetwork(ctx context.Context, p *place) error {
	f := p.file
	if f.DHCP && f.Gateway != "" {
		return fmt.Errorf("vsphere: with dhcp the gateway is DHCP's: leave gateway out")
	}
	if f.PVRDMA != "" {
		n, err := s.finder.Network(ctx, f.PVRDMA)
		if err != nil {
			return s.explain(fmt.Sprintf("find port group %.100q", f.PVRDMA), err)
		}
		if p.pvrdma, err = n.EthernetCardBackingInfo(ctx); err != nil {
			return s.explain("read port group "+f.PVRDMA, err)
		}
		if _, ok := p.pvrdma.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo); !ok {
			return fmt.Errorf("%.100q is not a port group of a distributed switch, which PVRDMA cards need", f.PVRDMA)
		}
	}
	if f.PortGroup != "" && f.Switch != "" {
		return fmt.Errorf("vsphere: portGroup names an existing port group, and switch the switch on which to make one: write one of them")
	}
	if f.PortGroup != "" {
		n, err := s.finder.Network(ctx, f.PortGroup)
		if err != nil {
			return s.explain(fmt.Sprintf("find port group %.100q", f.PortGroup), err)
		}
		if _, ok := n.(*object.DistributedVirtualSwitch); ok {
			return fmt.Errorf("%.100q is a switch: write vsphere: {switch: …} to have a port group made on it", f.PortGroup)
		}
		p.backing, err = n.EthernetCardBackingInfo(ctx)
		return s.explain("read port group "+f.PortGroup, err)
	}
	if f.Switch != "" {
		n, err := s.finder.Network(ctx, f.Switch)
		if err != nil {
			return s.explain(fmt.Sprintf("find switch %.100q", f.Switch), err)
		}
		d, ok := n.(*object.DistributedVirtualSwitch)
		if !ok {
			return fmt.Errorf("%.100q is not a distributed switch", f.Switch)
		}
		ref := d.Reference()
		p.dvs = &ref
	}
	return nil
}

// findHosts reads the hosts on which VMs may run: the named ones, else all of the datacenter that accept VMs. Devices
// are read if the cluster file has any.
func (s *Session) findHosts(ctx context.Context, p *place, devices bool) ([]topology.Host, error) {
	names := p.file.Hosts
	if len(names) == 0 {
		names = []string{"*/*"} // of every cluster and single hosts
	}
	var refs []types.ManagedObjectReference
	for _, n := range names {
		list, err := s.finder.HostSystemList(ctx, n)
		var none *find.NotFoundError
		if errors.As(err, &none) { // a cluster's name selects its hosts
			if of, e := s.finder.HostSystemList(ctx, n+"/*"); e == nil {
				list, err = of, nil
			}
		}
		if err != nil {
			return nil, s.explain(fmt.Sprintf("find host %.100q", n), err)
		}
		for _, h := range list {
			if !slices.Contains(refs, h.Reference()) {
				refs = append(refs, h.Reference())
			}
		}
	}
	props := bareProperties
	if devices {
		props = hostProperties
	}
	captures, err := s.read(ctx, refs, props)
	if err != nil {
		return nil, err
	}
	p.hosts = map[string]*machine{}
	var list []*machine
	var away []string
	for i := range captures {
		f, err := captures[i].found()
		if err != nil {
			return nil, err
		}
		m := &machine{name: text.OneLine(f.host.Name), ref: captures[i].content.Obj, capture: captures[i]}
		if f.host.Parent != nil {
			m.parent = *f.host.Parent
		}
		r := f.host.Runtime
		if r.InMaintenanceMode || r.ConnectionState != "" && r.ConnectionState != types.HostSystemConnectionStateConnected {
			why := "in maintenance mode"
			if !r.InMaintenanceMode {
				why = text.OneLine(string(r.ConnectionState))
			}
			if len(p.file.Hosts) > 0 {
				return nil, fmt.Errorf("host %s accepts no VMs: it is %s", m.name, why)
			}
			away = append(away, m.name+" is "+why)
			continue
		}
		list = append(list, m)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("vSphere server %s: no host accepts VMs: %s", s.access.server, strings.Join(away[:min(len(away), 4)], ", "))
	}
	if err := s.findPools(ctx, list, devices); err != nil {
		return nil, err
	}
	var out []topology.Host
	for _, m := range list {
		h, err := m.capture.Topology()
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", m.name, err)
		}
		if p.hosts[h.Name] != nil {
			return nil, fmt.Errorf("two hosts are called %s in plans: name one of them in vsphere.hosts", h.Name)
		}
		p.hosts[h.Name] = m
		out = append(out, *h)
	}
	return out, nil
}

// findPools reads the properties that hosts share with their clusters: the pool, and the browser that reports what
// VMs can have.
func (s *Session) findPools(ctx context.Context, list []*machine, devices bool) error {
	var parents []types.ManagedObjectReference
	for _, m := range list {
		if m.parent.Type != "" && !slices.Contains(parents, m.parent) {
			parents = append(parents, m.parent)
		}
	}
	var clusters []mo.ComputeResource
	if err := s.pc.Retrieve(ctx, parents, []string{"resourcePool", "environmentBrowser"}, &clusters); err != nil {
		return s.explain("read the hosts' clusters", err)
	}
	by := map[types.ManagedObjectReference]*mo.ComputeResource{}
	for i := range clusters {
		by[clusters[i].Self] = &clusters[i]
	}
	var asks []func() error
	for _, m := range list {
		c := by[m.parent]
		if c == nil || c.ResourcePool == nil {
			return fmt.Errorf("host %s has no resource pool", m.name)
		}
		m.pool = *c.ResourcePool
		if devices && c.EnvironmentBrowser != nil {
			asks = append(asks, func() error { return s.configTargetOf(ctx, &m.capture, *c.EnvironmentBrowser) })
		}
	}
	return side(asks, provisioning)
}

// checkPlan returns an error, in one line, for settings of the plan that this template does not support, and for a
// reservation that exceeds the pools' rest.
func (d *driver) checkPlan(ctx context.Context) error {
	p := d.place
	memory, mhz := map[types.ManagedObjectReference]int64{}, map[types.ManagedObjectReference]int64{}
	for i := range d.translated.VMs {
		v := &d.translated.VMs[i]
		if v.Firmware != "" && p.template.Config.Firmware != v.Firmware {
			what := "the windows of whole functions need"
			if v.SecureBoot != nil && *v.SecureBoot {
				what = "secure boot needs"
			}
			return fmt.Errorf("template %s starts by %s, and %s %s: install a template that starts so", text.OneLine(p.template.Name), text.OneLine(p.template.Config.Firmware), what, v.Firmware)
		}
		if have := hardwareVersion(p.template.Config.Version); v.HardwareVersion > have && have > 0 {
			if v.CoresPerNUMANode == 0 {
				return fmt.Errorf("template %s has hardware version %d, and PVRDMA cards need %d: upgrade the template's compatibility in vCenter, or leave pvrdma out", text.OneLine(p.template.Name), have, v.HardwareVersion)
			}
			return fmt.Errorf("template %s has hardware version %d, and NUMA nodes of VM %s need %d: upgrade the template's compatibility in vCenter, or write placement: {nodes: 1}", text.OneLine(p.template.Name), have, v.Name, v.HardwareVersion)
		}
		for _, x := range v.Devices {
			if m := p.hosts[v.Host]; (x.Kind == "dynamic" || x.Kind == esx.VGPU) && m != nil {
				f, err := m.capture.found()
				if err == nil && x.Kind == esx.VGPU {
					err = m.offers(f, x.Name)
				} else if err == nil {
					_, err = m.dynamic(f, x)
				}
				if err != nil {
					return fmt.Errorf("VM %s: %w", v.Name, err)
				}
			}
		}
		pool := d.poolOf(v.Host)
		if v.MemoryLocked {
			memory[pool] += v.MemoryMB << 20
		}
		mhz[pool] += v.CPUReservation
	}
	var refs []types.ManagedObjectReference
	for ref := range memory {
		refs = append(refs, ref)
	}
	if len(refs) == 0 {
		return nil
	}
	var pools []mo.ResourcePool
	if err := d.c.pc.Retrieve(ctx, refs, []string{"name", "runtime"}, &pools); err != nil {
		return d.c.explain("read the resource pools", err)
	}
	for i := range pools {
		r := &pools[i]
		if free := r.Runtime.Memory.UnreservedForVm; free < memory[r.Self] && r.Runtime.Memory.MaxUsage > 0 {
			return fmt.Errorf("resource pool %s: the VMs' reservations need %d MB of memory, and %d MB are not reserved yet: fewer VMs, less memory, or another pool", text.OneLine(r.Name), memory[r.Self]>>20, free>>20)
		}
		if free := r.Runtime.Cpu.UnreservedForVm; free < mhz[r.Self] && r.Runtime.Cpu.MaxUsage > 0 {
			return fmt.Errorf("resource pool %s: the VMs' reservations need %d MHz of CPU, and %d MHz are not reserved yet: fewer vCPUs, another pool, or placement: {pin: never}", text.OneLine(r.Name), mhz[r.Self], free)
		}
	}
	return nil
}

// offers returns an error for a vGPU profile that the host does not have, with the available ones.
func (m *machine) offers(f *found, profile string) error {
	var have []string
	if c := f.host.Config; c != nil {
		have = c.SharedPassthruGpuTypes
	}
	if slices.Contains(have, profile) {
		return nil
	}
	if len(have) == 0 {
		return fmt.Errorf("host %s offers no vGPU: vsphere.vgpu needs one with NVIDIA's manager, and its GPUs shared directly", m.name)
	}
	return fmt.Errorf("host %s offers no vGPU profile %s: it has %s", m.name, text.OneLine(profile), text.OneLine(strings.Join(have[:min(len(have), 8)], ", ")))
}

// poolOf returns the pool of VMs on a host.
func (d *driver) poolOf(host string) types.ManagedObjectReference {
	if d.place.pool != nil {
		return *d.place.pool
	}
	return d.place.hosts[host].pool
}

// hardwareVersion parses the number of "vmx-19"; 0: not known.
func hardwareVersion(text string) int {
	n := 0
	fmt.Sscanf(text, "vmx-%d", &n)
	return n
}
