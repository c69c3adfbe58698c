package vsphere

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
)

// esxiHost is a host whose settings are printed or changed.
type esxiHost struct {
	s    *Session
	name string
	mo   mo.HostSystem
}

// host logs in and reads a host. The caller closes the session.
func (p Part) host(ctx context.Context, name string) (*esxiHost, error) {
	s, name, err := p.login(ctx, name)
	if err != nil {
		return nil, err
	}
	h := &esxiHost{s: s, name: name}
	if err := h.find(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return h, nil
}

func (h *esxiHost) find(ctx context.Context) error {
	if !strings.HasPrefix(h.name, "/") {
		if err := h.s.datacenter(ctx, ""); err != nil {
			return err
		}
	}
	o, err := h.s.finder.HostSystemOrDefault(ctx, h.name)
	if err != nil {
		return h.s.explain(fmt.Sprintf("find host %.100q", h.name), err)
	}
	h.mo.Self = o.Reference()
	return h.read(ctx)
}

// read reads the current settings.
func (h *esxiHost) read(ctx context.Context) error {
	self := h.mo.Self
	h.mo = mo.HostSystem{}
	err := h.s.retrieve(ctx, self, []string{"name", "hardware.pciDevice", "config.pciPassthruInfo", "config.network", "config.powerSystemInfo", "configManager", "runtime.inMaintenanceMode"}, &h.mo)
	if err != nil {
		return h.s.explain("read host "+h.name, err)
	}
	if h.mo.Config == nil || h.mo.Hardware == nil {
		return fmt.Errorf("host %s: vCenter reports nothing about its settings: is it connected?", h.name)
	}
	h.name = text.OneLine(h.mo.Name)
	return nil
}

// functions returns the PCI functions that can be assigned to VMs, whole or in part.
func (h *esxiHost) functions() []esx.Function {
	name, net := map[string]string{}, map[string]string{}
	for _, d := range h.mo.Hardware.PciDevice {
		name[address(d.Id)] = text.OneLine(strings.TrimSpace(d.VendorName + " " + d.DeviceName))
	}
	uses := map[string][]string{}
	if n := h.mo.Config.Network; n != nil {
		key := map[string]string{}
		for _, p := range n.Pnic {
			net[address(p.Pci)], key[p.Key] = text.OneLine(p.Device), address(p.Pci)
		}
		for _, s := range n.Vswitch {
			for _, k := range s.Pnic {
				uses[key[k]] = append(uses[key[k]], text.OneLine(s.Name))
			}
		}
		for _, s := range n.ProxySwitch {
			for _, k := range s.Pnic {
				uses[key[k]] = append(uses[key[k]], text.OneLine(s.DvsName))
			}
		}
	}
	var list []esx.Function
	for _, b := range h.mo.Config.PciPassthruInfo {
		p := b.GetHostPciPassthruInfo()
		s, _ := b.(*types.HostSriovInfo)
		a := address(p.Id)
		if a == "" || !p.PassthruCapable && (s == nil || !s.SriovCapable) {
			continue
		}
		f := esx.Function{Address: a, Name: name[a], Net: net[a], Passthru: p.PassthruEnabled, Active: p.PassthruActive, Capable: p.PassthruCapable, Uses: uses[a]}
		if s != nil && s.SriovCapable {
			f.Most = int(s.MaxVirtualFunctionSupported)
			if s.SriovEnabled {
				f.Requested = int(s.NumVirtualFunctionRequested)
			}
			if s.SriovActive {
				f.VFs = int(s.NumVirtualFunction)
			}
		}
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b esx.Function) int { return strings.Compare(a.Address, b.Address) })
	return list
}

// function finds a function by its address or network name.
func (h *esxiHost) function(which string) (*esx.Function, error) {
	list := h.functions()
	var names []string
	for i := range list {
		if list[i].Address == address(which) || list[i].Net != "" && list[i].Net == which {
			return &list[i], nil
		}
		names = append(names, list[i].Address)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("host %s has no function that VMs can have", h.name)
	}
	return nil, fmt.Errorf("host %s: VMs can have no part of %.40q: it has %s", h.name, which, strings.Join(names, ", "))
}

// free returns an error for a function over which the host's own switches send, because the host could lose its
// network.
func (h *esxiHost) free(f *esx.Function) error {
	if len(f.Uses) > 0 {
		return fmt.Errorf("host %s: %s (%s) carries %s: take it from there first", h.name, f.Address, f.Net, strings.Join(f.Uses, ", "))
	}
	return nil
}

// id returns the function's address in vCenter's own form.
func (h *esxiHost) id(a string) string {
	for _, b := range h.mo.Config.PciPassthruInfo {
		if p := b.GetHostPciPassthruInfo(); address(p.Id) == a {
			return p.Id
		}
	}
	return a
}

// Functions lists the PCI functions of a host that can be assigned to VMs.
func (p Part) Functions(ctx context.Context, host string) ([]esx.Function, error) {
	h, err := p.host(ctx, host)
	if err != nil {
		return nil, err
	}
	defer h.s.Close()
	return h.functions(), nil
}

// SetPassthru enables or disables passthrough for functions, by address or network name, in one call. It returns the
// functions before and after the change.
func (p Part) SetPassthru(ctx context.Context, host string, which []string, on bool) (before, after []esx.Function, err error) {
	return p.set(ctx, host, which, func(h *esxiHost, f *esx.Function) (types.BaseHostPciPassthruConfig, error) {
		if !f.Capable {
			return nil, fmt.Errorf("host %s: %s cannot be passed through", h.name, f.Address)
		}
		if f.Requested > 0 && on {
			return nil, fmt.Errorf("host %s: %s has virtual functions: set them to 0 first", h.name, f.Address)
		}
		if f.Passthru == on {
			return nil, nil
		}
		return &types.HostPciPassthruConfig{Id: h.id(f.Address), PassthruEnabled: on, ApplyNow: types.NewBool(true)}, nil
	})
}

// SetVFs sets the number of virtual functions of cards; 0 disables SR-IOV.
func (p Part) SetVFs(ctx context.Context, host string, which []string, n int) (before, after []esx.Function, err error) {
	return p.set(ctx, host, which, func(h *esxiHost, f *esx.Function) (types.BaseHostPciPassthruConfig, error) {
		switch {
		case f.Most == 0:
			return nil, fmt.Errorf("host %s: %s has no SR-IOV", h.name, f.Address)
		case n > f.Most:
			return nil, fmt.Errorf("host %s: %s can have %d virtual functions, not %d", h.name, f.Address, f.Most, n)
		case f.Passthru && n > 0:
			return nil, fmt.Errorf("host %s: %s is passed through as a whole: switch that off first", h.name, f.Address)
		case f.Requested == n:
			return nil, nil
		}
		return &types.HostSriovConfig{HostPciPassthruConfig: types.HostPciPassthruConfig{Id: h.id(f.Address), PassthruEnabled: f.Passthru}, SriovEnabled: n > 0, NumVirtualFunction: int32(n)}, nil
	})
}

// set changes functions by one call of UpdatePassthruConfig; change returns nil for a function that needs no change.
// No call is made unless all can be changed. The result is read back.
func (p Part) set(ctx context.Context, host string, which []string, change func(*esxiHost, *esx.Function) (types.BaseHostPciPassthruConfig, error)) (before, after []esx.Function, err error) {
	h, err := p.host(ctx, host)
	if err != nil {
		return nil, nil, err
	}
	defer h.s.Close()
	req := types.UpdatePassthruConfig{}
	var chosen []string
	for _, w := range which {
		f, err := h.function(w)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(chosen, f.Address) {
			return nil, nil, fmt.Errorf("%s is named twice", f.Address)
		}
		c, err := change(h, f)
		if err != nil {
			return nil, nil, err
		}
		if c != nil {
			if _, whole := c.(*types.HostPciPassthruConfig); whole && c.GetHostPciPassthruConfig().PassthruEnabled {
				if err := h.free(f); err != nil {
					return nil, nil, err
				}
			}
			req.Config = append(req.Config, c)
		}
		chosen, before = append(chosen, f.Address), append(before, *f)
	}
	if len(req.Config) == 0 {
		return before, before, nil
	}
	m := h.mo.ConfigManager.PciPassthruSystem
	if m == nil {
		return nil, nil, fmt.Errorf("host %s passes nothing through: it has no PciPassthruSystem", h.name)
	}
	req.This = *m
	if _, err := methods.UpdatePassthruConfig(ctx, h.s.client, &req); err != nil {
		return nil, nil, h.s.explain("set the devices of host "+h.name, err)
	}
	if _, err := methods.Refresh(ctx, h.s.client, &types.Refresh{This: *m}); err != nil {
		return nil, nil, h.s.explain("read back the devices of host "+h.name, err)
	}
	if err := h.read(ctx); err != nil {
		return nil, nil, err
	}
	for i, a := range chosen {
		f, err := h.function(a)
		if err != nil {
			return nil, nil, err
		}
		if c, _ := change(h, f); c != nil {
			return nil, nil, fmt.Errorf("host %s took the change of %s, and it is as before: %+v", h.name, a, before[i])
		}
		after = append(after, *f)
	}
	return before, after, nil
}

// Power returns a host's power policy as a command's word; if policy is not "" it sets that first, and returns both.
func (p Part) Power(ctx context.Context, host, policy string) (before, after string, err error) {
	h, err := p.host(ctx, host)
	if err != nil {
		return "", "", err
	}
	defer h.s.Close()
	if before, err = h.policy(); err != nil || policy == "" || policy == before {
		return before, before, err
	}
	m := h.mo.ConfigManager.PowerSystem
	if m == nil {
		return "", "", fmt.Errorf("host %s has no power policies: its firmware keeps them to itself", h.name)
	}
	for _, x := range esx.Policies {
		if x.Word != policy {
			continue
		}
		if _, err := methods.ConfigurePowerPolicy(ctx, h.s.client, &types.ConfigurePowerPolicy{This: *m, Key: x.Key}); err != nil {
			return "", "", h.s.explain("set the power policy of host "+h.name, err)
		}
		if err := h.read(ctx); err != nil {
			return "", "", err
		}
		after, err = h.policy()
		if err == nil && after != policy {
			err = fmt.Errorf("host %s took the power policy %s, and has %s", h.name, policy, after)
		}
		return before, after, err
	}
	return "", "", fmt.Errorf("%.40q is not a power policy: high, balanced, low or custom", policy)
}

// policy returns the current power policy.
func (h *esxiHost) policy() (string, error) {
	p := h.mo.Config.PowerSystemInfo
	if p == nil {
		return "", errors.New("host " + h.name + " has no power policies: its firmware keeps them to itself")
	}
	for _, x := range esx.Policies {
		if x.Short == p.CurrentPolicy.ShortName {
			return x.Word, nil
		}
	}
	return text.OneLine(p.CurrentPolicy.ShortName), nil
}
