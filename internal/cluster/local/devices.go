package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"

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
		switch {
		case f.Class>>8 == 0x0200:
			g.Net, g.RDMA = true, f.VendorID == device.Mellanox
		case f.Class>>8 == 0x0207 || f.Class>>8 == 0x0c06:
			g.RDMA = true
			g.IPoIB = true
		}
		if g.Net || g.IPoIB {
			g.Address, g.MTU = netip.PrefixFrom(addr, subnet.Bits()), s.Network.DeviceMTU
		}
		list = append(list, g)
	}
	return list, nil
}
