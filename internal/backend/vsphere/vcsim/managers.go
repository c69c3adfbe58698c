package vcsim

import (
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Managers of a host that the simulator lacks. They follow VMware's API, but at once: no host has to reboot.

// manage adds the managers of a host's devices and power policy.
func manage(h *simulator.HostSystem) {
	p, w := &pciSystem{host: h}, &powerSystem{host: h}
	p.Self = types.ManagedObjectReference{Type: "HostPciPassthruSystem", Value: "pci-" + h.Self.Value}
	w.Self = types.ManagedObjectReference{Type: "HostPowerSystem", Value: "power-" + h.Self.Value}
	for key := int32(1); policies[key] != ""; key++ {
		w.Capability.AvailablePolicy = append(w.Capability.AvailablePolicy, types.HostPowerPolicy{Key: key, ShortName: policies[key]})
	}
	pci, power := simulator.Map.Put(p).Reference(), simulator.Map.Put(w).Reference()
	h.ConfigManager.PciPassthruSystem, h.ConfigManager.PowerSystem = &pci, &power
	// The simulator has two copies of a host's networks: new switches are made in one, and listed in the other.
	if n, ok := simulator.Map.Get(*h.ConfigManager.NetworkSystem).(*simulator.HostNetworkSystem); ok {
		n.NetworkInfo = h.Config.Network
	}
}

type pciSystem struct {
	mo.HostPciPassthruSystem
	host *simulator.HostSystem
}

// UpdatePassthruConfig changes the functions that the request names.
func (s *pciSystem) UpdatePassthruConfig(_ *simulator.Context, req *types.UpdatePassthruConfig) soap.HasFault {
	body := &methods.UpdatePassthruConfigBody{}
	for _, c := range req.Config {
		p := s.find(c.GetHostPciPassthruConfig().Id)
		if p == nil {
			body.Fault_ = simulator.Fault("the device is not there", &types.InvalidArgument{InvalidProperty: "config.id"})
			return body
		}
		switch x := c.(type) {
		case *types.HostSriovConfig:
			v, ok := p.(*types.HostSriovInfo)
			if !ok || x.NumVirtualFunction > v.MaxVirtualFunctionSupported {
				body.Fault_ = simulator.Fault("the device cannot have as many", &types.InvalidArgument{InvalidProperty: "config.numVirtualFunction"})
				return body
			}
			v.SriovEnabled, v.SriovActive = x.SriovEnabled, x.SriovEnabled
			v.NumVirtualFunction, v.NumVirtualFunctionRequested = x.NumVirtualFunction, x.NumVirtualFunction
		default:
			b := p.GetHostPciPassthruInfo()
			b.PassthruEnabled = c.GetHostPciPassthruConfig().PassthruEnabled
			b.PassthruActive = b.PassthruEnabled
		}
	}
	body.Res = &types.UpdatePassthruConfigResponse{}
	return body
}

func (s *pciSystem) find(id string) types.BaseHostPciPassthruInfo {
	for _, b := range s.host.Config.PciPassthruInfo {
		if b.GetHostPciPassthruInfo().Id == id {
			return b
		}
	}
	return nil
}

// Refresh does nothing, because everything is up to date.
func (s *pciSystem) Refresh(*simulator.Context, *types.Refresh) soap.HasFault {
	return &methods.RefreshBody{Res: &types.RefreshResponse{}}
}

type powerSystem struct {
	mo.HostPowerSystem
	host *simulator.HostSystem
}

var policies = map[int32]string{1: "static", 2: "dynamic", 3: "low", 4: "custom"}

// ConfigurePowerPolicy sets the policy with that key.
func (s *powerSystem) ConfigurePowerPolicy(_ *simulator.Context, req *types.ConfigurePowerPolicy) soap.HasFault {
	body := &methods.ConfigurePowerPolicyBody{}
	if policies[req.Key] == "" {
		body.Fault_ = simulator.Fault("there is no such policy", &types.InvalidArgument{InvalidProperty: "key"})
		return body
	}
	s.host.Config.PowerSystemInfo = &types.PowerSystemInfo{CurrentPolicy: types.HostPowerPolicy{Key: req.Key, Name: "PowerPolicy." + policies[req.Key] + ".name", ShortName: policies[req.Key]}}
	body.Res = &types.ConfigurePowerPolicyResponse{}
	return body
}
