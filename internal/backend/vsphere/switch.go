package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
)

// mark is the description of the distributed switches that nearmetal makes, written by the call that makes them.
// Other switches are never changed or removed.
const mark = "made by nearmetal vsphere dvs"

// uplinks are the uplinks of a distributed switch, of which hosts use the first.
var uplinks = []string{"uplink1", "uplink2", "uplink3", "uplink4"}

// undoBound bounds the undo of a half-made switch.
const undoBound = time.Minute

// SVS makes a standard switch on a host, with one card and one port group; or, if remove is set, removes exactly that
// switch. An existing one with these settings is left unchanged; made reports that anything was changed.
func (p Part) SVS(ctx context.Context, host string, w esx.Switch, remove bool) (made bool, err error) {
	h, err := p.host(ctx, host)
	if err != nil {
		return false, err
	}
	defer h.s.Close()
	m := h.mo.ConfigManager.NetworkSystem
	if m == nil {
		return false, fmt.Errorf("host %s has no NetworkSystem", h.name)
	}
	net := object.NewHostNetworkSystem(h.s.client.Client, *m)
	var there *types.HostVirtualSwitch
	for i, v := range h.mo.Config.Network.Vswitch {
		if v.Name == w.Name {
			there = &h.mo.Config.Network.Vswitch[i]
		} else if slices.Contains(h.groups(&h.mo.Config.Network.Vswitch[i]), w.PortGroup) {
			return false, fmt.Errorf("host %s: port group %q is of switch %q", h.name, w.PortGroup, text.OneLine(v.Name))
		}
	}
	if remove {
		return h.removeSVS(ctx, net, w, there)
	}
	if there == nil {
		if err := h.card(w.Card); err != nil {
			return false, err
		}
		spec := &types.HostVirtualSwitchSpec{NumPorts: 128, Mtu: int32(w.MTU), Bridge: &types.HostVirtualSwitchBondBridge{NicDevice: []string{w.Card}}}
		if err := net.AddVirtualSwitch(ctx, w.Name, spec); err != nil {
			return false, h.s.explain(fmt.Sprintf("make switch %s on host %s", w.Name, h.name), err)
		}
		made = true
	} else if err := h.same(there, w); err != nil {
		return false, err
	} else if slices.Contains(h.groups(there), w.PortGroup) {
		return false, nil
	}
	if err := net.AddPortGroup(ctx, types.HostPortGroupSpec{Name: w.PortGroup, VlanId: int32(w.VLAN), VswitchName: w.Name}); err != nil {
		err = h.s.explain(fmt.Sprintf("make port group %s on host %s", w.PortGroup, h.name), err)
		if made { // half of a switch was not requested
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
			defer cancel()
			err = errors.Join(err, h.s.explain("remove switch "+w.Name+" again", net.RemoveVirtualSwitch(undo, w.Name)))
		}
		return false, err
	}
	return true, nil
}

// removeSVS removes a switch that is exactly as SVS would make it.
func (h *esxiHost) removeSVS(ctx context.Context, net *object.HostNetworkSystem, w esx.Switch, there *types.HostVirtualSwitch) (bool, error) {
	if there == nil {
		return false, nil
	}
	if err := h.same(there, w); err != nil {
		return false, err
	}
	list := h.groups(there)
	for _, g := range list {
		if g != w.PortGroup {
			return false, fmt.Errorf("host %s: switch %s has port group %q besides: it is not removed", h.name, w.Name, text.OneLine(g))
		}
	}
	for _, g := range list {
		if err := net.RemovePortGroup(ctx, g); err != nil {
			return false, h.s.explain(fmt.Sprintf("remove port group %s of host %s", g, h.name), err)
		}
	}
	if err := net.RemoveVirtualSwitch(ctx, w.Name); err != nil {
		return false, h.s.explain(fmt.Sprintf("remove switch %s of host %s", w.Name, h.name), err)
	}
	return true, nil
}

// groups returns the port groups of a standard switch.
func (h *esxiHost) groups(v *types.HostVirtualSwitch) []string {
	var list []string
	for _, g := range h.mo.Config.Network.Portgroup {
		if g.Spec.VswitchName == v.Name {
			list = append(list, g.Spec.Name)
		}
	}
	return list
}

// same returns an error for a switch with other cards than the requested one. A switch without cards is a half-made
// one.
func (h *esxiHost) same(v *types.HostVirtualSwitch, w esx.Switch) error {
	for _, key := range v.Pnic {
		for _, p := range h.mo.Config.Network.Pnic {
			if p.Key == key && p.Device != w.Card {
				return fmt.Errorf("host %s: switch %s is there, with card %s: it is another's", h.name, w.Name, text.OneLine(p.Device))
			}
		}
	}
	return nil
}

// card returns an error for a network card that does not exist, or is in a switch.
func (h *esxiHost) card(name string) error {
	n := h.mo.Config.Network
	i := slices.IndexFunc(n.Pnic, func(p types.PhysicalNic) bool { return p.Device == name })
	if i < 0 {
		var have []string
		for _, p := range n.Pnic {
			have = append(have, text.OneLine(p.Device))
		}
		return fmt.Errorf("host %s has no card %.40q: it has %s", h.name, name, strings.Join(have, ", "))
	}
	for _, v := range n.Vswitch {
		if slices.Contains(v.Pnic, n.Pnic[i].Key) {
			return fmt.Errorf("host %s: card %s is in switch %s", h.name, name, text.OneLine(v.Name))
		}
	}
	for _, v := range n.ProxySwitch {
		if slices.Contains(v.Pnic, n.Pnic[i].Key) {
			return fmt.Errorf("host %s: card %s is in switch %s", h.name, name, text.OneLine(v.DvsName))
		}
	}
	return nil
}

// DVS makes a distributed switch over hosts, with one card of each and one port group; or, if remove is set, removes
// it. A switch that nearmetal did not make is neither changed nor removed.
func (p Part) DVS(ctx context.Context, hosts []string, w esx.Switch, remove bool) (made bool, err error) {
	s, _, err := p.login(ctx, "")
	if err != nil {
		return false, err
	}
	defer s.Close()
	if err := s.datacenter(ctx, ""); err != nil {
		return false, err
	}
	d, err := s.dvs(ctx, w.Name)
	if err != nil {
		return false, err
	}
	if remove {
		if d == nil {
			return false, nil
		}
		return true, s.removeDVS(ctx, d, w.Name)
	}
	made = d == nil
	if made {
		if d, err = s.makeDVS(ctx, hosts, w); err != nil {
			return false, err
		}
	} else if has, err := s.hasGroup(ctx, d, w.PortGroup); err != nil || has {
		return false, err
	}
	spec := types.DVPortgroupConfigSpec{Name: w.PortGroup, Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding), NumPorts: 128, Description: mark,
		DefaultPortConfig: &types.VMwareDVSPortSetting{
			Vlan: &types.VmwareDistributedVirtualSwitchVlanIdSpec{VlanId: int32(w.VLAN)},
			UplinkTeamingPolicy: &types.VmwareUplinkPortTeamingPolicy{
				Policy:          &types.StringPolicy{Value: "failover_explicit"},
				UplinkPortOrder: &types.VMwareUplinkPortOrderPolicy{ActiveUplinkPort: uplinks[:1]},
			}}}
	err = s.task(ctx, "make port group "+w.PortGroup, func(ctx context.Context) (*object.Task, error) {
		return d.AddPortgroup(ctx, []types.DVPortgroupConfigSpec{spec})
	})
	if err != nil && made {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoBound)
		defer cancel()
		err = errors.Join(err, s.removeDVS(undo, d, w.Name))
	}
	return err == nil, err
}

// dvs finds a distributed switch made by nearmetal; nil: none with that name.
func (s *Session) dvs(ctx context.Context, name string) (*object.DistributedVirtualSwitch, error) {
	n, err := s.finder.Network(ctx, name)
	var missing *find.NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain("find switch "+name, err)
	}
	d, ok := n.(*object.DistributedVirtualSwitch)
	if !ok {
		return nil, fmt.Errorf("%s is there, and is not a distributed switch", name)
	}
	var have mo.DistributedVirtualSwitch
	if err := s.retrieve(ctx, d.Reference(), []string{"config", "summary"}, &have); err != nil {
		return nil, s.explain("read switch "+name, err)
	}
	if have.Summary.Description != mark {
		return nil, fmt.Errorf("switch %s is there, and nearmetal did not make it: it is left alone", name)
	}
	return d, nil
}

// removeDVS removes a switch made by nearmetal: first its port groups with the mark, then the switch with its
// uplinks' group.
func (s *Session) removeDVS(ctx context.Context, d *object.DistributedVirtualSwitch, name string) error {
	var have mo.DistributedVirtualSwitch
	if err := s.retrieve(ctx, d.Reference(), []string{"portgroup"}, &have); err != nil {
		return s.explain("read the port groups of switch "+name, err)
	}
	for _, ref := range have.Portgroup {
		var g mo.DistributedVirtualPortgroup
		if err := s.retrieve(ctx, ref, []string{"config"}, &g); err != nil {
			return s.explain("read the port groups of switch "+name, err)
		}
		if g.Config.Description != mark {
			continue
		}
		if err := s.task(ctx, "remove port group "+text.OneLine(g.Config.Name), object.NewDistributedVirtualPortgroup(s.client.Client, ref).Destroy); err != nil {
			return err
		}
	}
	return s.task(ctx, "remove switch "+name, d.Destroy)
}

// hasGroup reports whether a switch has a port group of that name.
func (s *Session) hasGroup(ctx context.Context, d *object.DistributedVirtualSwitch, name string) (bool, error) {
	var have mo.DistributedVirtualSwitch
	if err := s.retrieve(ctx, d.Reference(), []string{"portgroup"}, &have); err != nil {
		return false, s.explain("read the switch's port groups", err)
	}
	for _, ref := range have.Portgroup {
		var g mo.DistributedVirtualPortgroup
		if err := s.retrieve(ctx, ref, []string{"config"}, &g); err != nil {
			return false, s.explain("read the switch's port groups", err)
		}
		if g.Config.Name == name {
			return true, nil
		}
	}
	return false, nil
}

// makeDVS makes the switch with its hosts, in one task.
func (s *Session) makeDVS(ctx context.Context, hosts []string, w esx.Switch) (*object.DistributedVirtualSwitch, error) {
	c := &types.VMwareDVSConfigSpec{MaxMtu: int32(w.MTU), DVSConfigSpec: types.DVSConfigSpec{Name: w.Name, Description: mark,
		UplinkPortPolicy: &types.DVSNameArrayUplinkPortPolicy{UplinkPortName: uplinks}}}
	for _, name := range hosts {
		h := &esxiHost{s: s, name: name}
		if err := h.find(ctx); err != nil {
			return nil, err
		}
		if err := h.card(w.Card); err != nil {
			return nil, err
		}
		c.Host = append(c.Host, types.DistributedVirtualSwitchHostMemberConfigSpec{Operation: string(types.ConfigSpecOperationAdd), Host: h.mo.Self,
			Backing: &types.DistributedVirtualSwitchHostMemberPnicBacking{PnicSpec: []types.DistributedVirtualSwitchHostMemberPnicSpec{{PnicDevice: w.Card}}}})
	}
	dc, err := s.finder.DefaultDatacenter(ctx)
	if s.access.datacenter != "" {
		dc, err = s.finder.Datacenter(ctx, s.access.datacenter)
	}
	if err != nil {
		return nil, s.explain("find the datacenter", err)
	}
	f, err := dc.Folders(ctx)
	if err != nil {
		return nil, s.explain("find the folder of networks", err)
	}
	err = s.task(ctx, "make switch "+w.Name, func(ctx context.Context) (*object.Task, error) {
		return f.NetworkFolder.CreateDVS(ctx, types.DVSCreateSpec{ConfigSpec: c})
	})
	if err != nil {
		return nil, err
	}
	d, err := s.dvs(ctx, w.Name)
	if err == nil && d == nil {
		err = fmt.Errorf("vCenter made switch %s, and it is not there", w.Name)
	}
	return d, err
}

// task starts a task and waits for its end, by a property collector. The error is vCenter's own, in one line.
func (s *Session) task(ctx context.Context, what string, start func(context.Context) (*object.Task, error)) error {
	t, err := start(ctx)
	if err == nil {
		_, err = t.WaitForResult(ctx)
	}
	return s.explain(what, err)
}
