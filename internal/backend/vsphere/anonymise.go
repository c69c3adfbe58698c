package vsphere

import (
	"fmt"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
)

// Anonymise removes from a capture everything that identifies its owner: names, addresses, serial numbers, licences,
// datastores and networks. name replaces the host's name. Data that plans need stays.
func (c *Capture) Anonymise(name string) error {
	f, err := c.found()
	if err != nil {
		return err
	}
	c.content.Obj.Value = "host-1"
	var props []types.DynamicProperty
	put := func(name string, v any) { props = append(props, types.DynamicProperty{Name: name, Val: v}) }
	put("name", name)
	if hw := f.host.Hardware; hw != nil {
		hw.SystemInfo = types.HostSystemInfo{Vendor: hw.SystemInfo.Vendor, Model: hw.SystemInfo.Model}
		hw.BiosInfo, hw.DvxClasses, hw.PersistentMemoryInfo, hw.ReliableMemoryInfo, hw.SgxInfo = nil, nil, nil, nil, nil
		put("hardware", *hw)
	}
	if cfg := f.host.Config; cfg != nil {
		p := cfg.Product
		p.InstanceUuid, p.LicenseProductName, p.LicenseProductVersion = "", "", ""
		put("config.product", p)
		if len(cfg.PciPassthruInfo) > 0 {
			put("config.pciPassthruInfo", types.ArrayOfHostPciPassthruInfo{HostPciPassthruInfo: cfg.PciPassthruInfo})
		}
		if cfg.Network != nil && len(cfg.Network.Pnic) > 0 {
			var cards []types.PhysicalNic
			for i, n := range cfg.Network.Pnic {
				cards = append(cards, types.PhysicalNic{Key: fmt.Sprintf("key-vim.host.PhysicalNic-%d", i), Device: n.Device, Pci: n.Pci, Driver: n.Driver, LinkSpeed: n.LinkSpeed})
			}
			put("config.network.pnic", types.ArrayOfPhysicalNic{PhysicalNic: cards})
		}
		if cfg.PowerSystemInfo != nil {
			put("config.powerSystemInfo", *cfg.PowerSystemInfo)
		}
		if cfg.HyperThread != nil {
			put("config.hyperThread", *cfg.HyperThread)
		}
	}
	put("runtime.connectionState", f.host.Runtime.ConnectionState)
	put("runtime.inMaintenanceMode", f.host.Runtime.InMaintenanceMode)
	put("summary.quickStats", types.HostListSummaryQuickStats{OverallMemoryUsage: f.host.Summary.QuickStats.OverallMemoryUsage, OverallCpuUsage: f.host.Summary.QuickStats.OverallCpuUsage})
	c.content.PropSet = props
	c.target.Returnval = anonymousTarget(&f.target)
	return nil
}

// noSystem replaces a host's own identifier in the backing of a device.
const noSystem = "00000000-0000-0000-0000-000000000000"

// anonymousTarget returns only the CPUs that VMs can have, and the devices without the host's identifier.
func anonymousTarget(t *types.ConfigTarget) *types.ConfigTarget {
	own := &types.ConfigTarget{NumCpus: t.NumCpus, NumCpuCores: t.NumCpuCores, NumNumaNodes: t.NumNumaNodes, SmcPresent: t.SmcPresent,
		MaxCpusPerHost: t.MaxCpusPerHost, MaxMemMBOptimalPerf: t.MaxMemMBOptimalPerf, SupportedMaxMemMB: t.SupportedMaxMemMB,
		SharedGpuPassthroughTypes: t.SharedGpuPassthroughTypes, DynamicPassthrough: t.DynamicPassthrough, MaxSimultaneousThreads: t.MaxSimultaneousThreads}
	for i, p := range t.PciPassthrough {
		b := *p.GetVirtualMachinePciPassthroughInfo()
		b.SystemId, b.Name = noSystem, fmt.Sprintf("pci-%d", i)
		b.ConfigurationTag = nil
		own.PciPassthrough = append(own.PciPassthrough, &b)
	}
	for _, s := range t.Sriov {
		s.SystemId, s.ConfigurationTag, s.DevicePool = noSystem, nil, nil
		if !strings.HasPrefix(s.Name, "pci") {
			s.Name = s.PciDevice.Id
		}
		own.Sriov = append(own.Sriov, s)
	}
	return own
}
