package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"nearmetal/internal/guest"
	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// bind assigns those planned functions to this user that are not assigned yet; it needs root. Each change is recorded
// in the journal and undone at the cluster's end.
func (m *VMs) bind(ctx context.Context, p *plan.Plan) error {
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			f, err := m.devices.Host.Find(v.Address)
			if err != nil {
				return err
			}
			if f.VFIO != "" {
				continue // assigned before, and remains so
			}
			if _, err := m.own.Journal.Record(device.Bound(v.Address)); err != nil {
				return err
			}
			if err := m.devices.Host.Bind(ctx, v.Address, os.Getuid(), os.Getgid()); err != nil {
				return err
			}
		}
	}
	return nil
}

// functions returns the configuration of the functions of this host's VM number vm.
func (m *VMs) functions(h *topology.Host, s *spec.Cluster, p *plan.Plan, vm int) ([]guest.Function, error) {
	subnet, err := netip.ParsePrefix(s.Network.DeviceSubnet)
	if err != nil {
		return nil, fmt.Errorf("network.deviceSubnet: %w", err)
	}
	var list []guest.Function
	for i, d := range p.VMs[vm].Devices {
		addr, err := m.net.DeviceAddress(subnet, p, m.net.Self(), vm, i)
		if err != nil {
			return nil, err
		}
		f := h.Device(d.Address)
		if f == nil {
			return nil, fmt.Errorf("device %s has gone", d.Address)
		}
		g := guest.Function{Vendor: f.VendorID, Device: f.DeviceID}
		always := alwaysRDMA(f)
		rdma := always || !s.Network.AllowTCP && showsRDMA(h, f)
		switch f.Class >> 8 {
		case 0x0200:
			g.Net, g.RDMA = !elasticFabric(f), rdma
		case 0x0207, 0x0208, 0x0c06:
			g.RDMA, g.IPoIB = true, true
		case 0x0280: // ConnectX-2 and -3; else a wireless card, for instance
			g.RDMA, g.IPoIB = rdma, rdma
		}
		if g.Net || g.IPoIB {
			g.Address, g.MTU = netip.PrefixFrom(addr, subnet.Bits()), s.Network.DeviceMTU
		}
		list = append(list, g)
	}
	return list, nil
}

// alwaysRDMA reports whether the driver of a function makes an RDMA device, wherever it runs: cards of Mellanox, E810
// of Intel as a whole, and Amazon's EFA.
func alwaysRDMA(f *topology.Device) bool {
	const intel, firstE810, lastE810 = 0x8086, 0x1591, 0x159b
	return f.VendorID == device.Mellanox || elasticFabric(f) || f.VendorID == intel && f.DeviceID >= firstE810 && f.DeviceID <= lastE810
}

// elasticFabric reports whether a function is Amazon's EFA, an Ethernet controller by its class, whose driver makes no
// network interface.
func elasticFabric(f *topology.Device) bool {
	return f.VendorID == 0x1d0f && f.DeviceID >= 0xefa0 && f.DeviceID <= 0xefaf
}

// showsRDMA reports whether a function, or the card that it is a VF of, has an RDMA device of its driver on this host:
// then the guest's driver makes one as well. Soft RoCE on its network interface is not the driver's.
func showsRDMA(h *topology.Host, f *topology.Device) bool {
	list := f.RDMA
	if pf := h.Device(f.PF); pf != nil {
		list = append(list[:len(list):len(list)], pf.RDMA...)
	}
	return slices.ContainsFunc(list, func(name string) bool { return !strings.HasPrefix(name, "rxe") && !strings.HasPrefix(name, "siw") })
}
