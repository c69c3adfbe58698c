package vsphere

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
)

// address converts a PCI address into the form of plans: 0000:3b:00.0. Older ESXi versions omit the domain. "": not
// an address.
func address(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	if strings.Count(id, ":") == 1 {
		id = "0000:" + id
	}
	if !topology.ValidAddress(id) {
		return ""
	}
	return id
}

// vfDomain is the PCI domain of placeholder addresses for virtual functions that ESXi does not list: VF 3 of
// 0000:3b:00.0 is f0000003:3b:00.0. ESXi itself chooses the VF when a VM starts.
const vfDomain = 0xf0000000

// standIn returns the placeholder address of a PF's VF number n, from 0.
func standIn(pf string, n int) string {
	_, rest, _ := strings.Cut(pf, ":")
	return fmt.Sprintf("%08x:%s", vfDomain+n, rest)
}

// devices fills in PCI functions: their node by HostNumaNode.pciId, the network cards' names, the functions that can
// be passed through, and virtual functions.
func (f *found) devices(h *topology.Host) error {
	hw := f.host.Hardware
	if len(hw.PciDevice) > topology.MaxDevices {
		return fmt.Errorf("%d PCI functions", len(hw.PciDevice))
	}
	node := map[string]int{}
	for _, n := range numaNodes(hw) {
		for _, id := range n.PciId {
			if a := address(id); a != "" {
				node[a] = int(n.TypeId)
			}
		}
	}
	parent := map[string]string{}
	for _, d := range hw.PciDevice {
		if a, p := address(d.Id), address(d.ParentBridge); a != "" && p != "" && p != a {
			parent[a] = p
		}
	}
	at := map[string]int{}
	for _, d := range hw.PciDevice {
		a := address(d.Id)
		if _, twice := at[a]; a == "" || twice {
			h.Repairs = append(h.Repairs, fmt.Sprintf("PCI function %.40q left out: its address is none, or another's", text.OneLine(d.Id)))
			continue
		}
		t := topology.Device{Address: a, Class: int(uint16(d.ClassId)) << 8, VendorID: int(uint16(d.VendorId)), DeviceID: int(uint16(d.DeviceId)), Node: -1, Group: -1}
		if n, ok := node[a]; ok {
			t.Node = n
		}
		for b := parent[a]; b != "" && len(t.Bridges) < 16; b = parent[b] {
			t.Bridges = append(t.Bridges, b)
		}
		slices.Reverse(t.Bridges)
		top := a
		if len(t.Bridges) > 0 {
			top = t.Bridges[0]
		}
		t.Root = "pci" + top[:strings.LastIndexByte(top, ':')]
		at[a] = len(h.Devices)
		h.Devices = append(h.Devices, t)
	}
	if c := f.host.Config; c != nil {
		if c.Network != nil {
			for _, p := range c.Network.Pnic {
				if i, ok := at[address(p.Pci)]; ok && plainName(p.Device) {
					h.Devices[i].Net = append(h.Devices[i].Net, p.Device)
					h.Devices[i].Driver = text.OneLine(p.Driver)
				}
			}
		}
		for _, b := range c.PciPassthruInfo {
			if i, ok := at[address(b.GetHostPciPassthruInfo().Id)]; ok {
				f.shared(h, i, b)
			}
		}
	}
	sort.Slice(h.Devices, func(i, j int) bool { return h.Devices[i].Address < h.Devices[j].Address })
	return nil
}

// shared records how a function can be assigned to VMs: whole, or as virtual functions.
func (f *found) shared(h *topology.Host, i int, b types.BaseHostPciPassthruInfo) {
	d := &h.Devices[i]
	p := b.GetHostPciPassthruInfo()
	if p.PassthruActive {
		d.Driver = esx.Passthru
	}
	// The IOMMU is enabled; functions that can be assigned only together depend on the same device.
	if p.PassthruCapable {
		d.Group = group(h, i, p.DependentDevice)
	}
	s, ok := b.(*types.HostSriovInfo)
	if !ok || !s.SriovCapable {
		return
	}
	d.TotalVFs = int(min(max(s.MaxVirtualFunctionSupported, 0), 65535))
	if !s.SriovActive {
		return
	}
	made := int(min(max(s.NumVirtualFunction, 0), 256))
	own := f.listed(d)
	pf := *d
	for n := 0; n < made && len(h.Devices) < topology.MaxDevices; n++ {
		vf := topology.Device{Address: standIn(pf.Address, n), Class: pf.Class, VendorID: pf.VendorID, DeviceID: pf.DeviceID,
			Node: pf.Node, Root: pf.Root, Bridges: pf.Bridges, Group: len(h.Devices), PF: pf.Address}
		if n < len(own) {
			if j := slices.IndexFunc(h.Devices, func(x topology.Device) bool { return x.Address == own[n] }); j >= 0 {
				h.Devices[j].PF = pf.Address
				h.Devices[j].Group = j
				if h.Devices[j].Node < 0 {
					h.Devices[j].Node = pf.Node
				}
				h.Devices[i].VFs = append(h.Devices[i].VFs, own[n])
				continue
			}
		}
		h.Devices = append(h.Devices, vf)
		h.Devices[i].VFs = append(h.Devices[i].VFs, vf.Address)
	}
}

// group returns a number for the functions that depend on one device: that device's index, or the function's own.
func group(h *topology.Host, i int, on string) int {
	if j := slices.IndexFunc(h.Devices, func(d topology.Device) bool { return d.Address == address(on) }); j >= 0 {
		return j
	}
	return i
}

// listed returns the virtual functions of a PF that QueryConfigTarget lists under the PF's network name.
func (f *found) listed(pf *topology.Device) []string {
	var list []string
	for _, s := range f.target.Sriov {
		if a := address(s.PciDevice.Id); s.VirtualFunction && a != "" && a != pf.Address && slices.Contains(pf.Net, s.Pnic) && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	slices.Sort(list)
	return list
}

// plainName reports whether s is the name of a network card, as vmnic4.
func plainName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}
