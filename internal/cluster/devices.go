package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strings"

	"nearmetal/internal/guest"
	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// devices are the host's functions that a cluster may take, and those it has.
type devices struct {
	host   *device.Host
	taken  map[string]string // address → who has it, or why it cannot be had
	claims []*device.Claim
}

// wantsDevices reports whether any VM is to have a device.
func wantsDevices(s *spec.Cluster) bool {
	for i := range s.VMs {
		if len(s.VMs[i].Devices) > 0 {
			return true
		}
	}
	return false
}

// findDevices looks at which functions this user may have, of those in only where it is not nil;
// it returns nil where no VM wants one.
func findDevices(s *spec.Cluster, only []string) (*devices, error) {
	if !wantsDevices(s) {
		return nil, nil
	}
	h, err := device.Open("/", 0)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	d := &devices{host: h, taken: map[string]string{}}
	list, err := h.List(true)
	if err != nil {
		return nil, fmt.Errorf("devices: %w", err)
	}
	for _, f := range list {
		if len(f.VFs) > 0 {
			continue // a card that is held takes its VFs along in a plan; and Bind refuses it as a whole
		}
		if only != nil && !slices.Contains(only, f.Address) {
			d.taken[f.Address] = "is not the job's"
			continue
		}
		if why := h.Usable(f); why != "" {
			d.taken[f.Address] = why
		}
	}
	return d, nil
}

// hold puts what cannot be had into the ledger.
func (d *devices) hold(l *plan.Ledger, h *topology.Host) {
	if d == nil {
		return
	}
	held := plan.Held{Host: h.Name, Cluster: "others"}
	for a := range d.taken {
		held.Devices = append(held.Devices, a)
	}
	sort.Strings(held.Devices)
	l.Held = append(l.Held, held)
}

// explain adds to a plan that failed why VFs and devices could not be had.
func (d *devices) explain(err error, h *topology.Host) error {
	if d == nil || err == nil {
		return err
	}
	var why []string
	for a, w := range d.taken {
		if f := h.Device(a); f != nil && f.IsVF() {
			why = append(why, a+" "+w)
		}
	}
	sort.Strings(why)
	const most = 4
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	if len(why) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(why, ", "))
}

// claim takes the functions of a plan. A *device.ClaimedError says which one another cluster
// was quicker with.
func (d *devices) claim(p *plan.Plan) error {
	if d == nil {
		return nil
	}
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			c, err := d.host.Claim(v.Address, p.Cluster)
			if err != nil {
				d.close()
				return err
			}
			d.claims = append(d.claims, c)
		}
	}
	return nil
}

// close releases the claims.
func (d *devices) close() {
	if d == nil {
		return
	}
	for _, c := range d.claims {
		c.Close()
	}
	d.claims = nil
}

// planned makes the plan, and takes its devices: when another cluster takes one in the
// meantime, the plan is made anew without it. Devices are those of the first host, which is this one.
func (d *devices) planned(s *spec.Cluster, hosts []topology.Host, ledger plan.Ledger) (*plan.Plan, error) {
	for {
		l := ledger
		l.Held = append([]plan.Held(nil), ledger.Held...)
		d.hold(&l, &hosts[0])
		p, err := plan.Make(s, hosts, l)
		if err != nil {
			return nil, d.explain(err, &hosts[0])
		}
		err = d.claim(p)
		var lost *device.ClaimedError
		if !errors.As(err, &lost) {
			return p, err
		}
		if _, twice := d.taken[lost.Address]; twice {
			return nil, err
		}
		d.taken[lost.Address] = "is held by " + lost.Holder
	}
}

// bind hands the planned functions to this user where they are not yet, as root: each is
// written down, and given back with the cluster's end.
func (c *Cluster) bind(ctx context.Context, p *plan.Plan) error {
	for i := range p.VMs {
		for _, v := range p.VMs[i].Devices {
			f, err := c.devices.host.Find(v.Address)
			if err != nil {
				return err
			}
			if f.VFIO != "" {
				continue // handed over already, and to stay so
			}
			if _, err := c.journal.Record(device.Bound(v.Address)); err != nil {
				return err
			}
			if err := c.devices.host.Bind(ctx, v.Address, os.Getuid(), os.Getgid()); err != nil {
				return err
			}
		}
	}
	return nil
}

// functions are what VM number vm of this host reads of its functions.
func (c *Cluster) functions(h *topology.Host, s *spec.Cluster, p *plan.Plan, vm int) ([]guest.Function, error) {
	subnet, err := netip.ParsePrefix(s.Network.DeviceSubnet)
	if err != nil {
		return nil, fmt.Errorf("network.deviceSubnet: %w", err)
	}
	var list []guest.Function
	for i, d := range p.VMs[vm].Devices {
		addr, err := c.deviceAddress(subnet, p, c.self(), vm, i)
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

// self is the number of this host among those of the overlay, 0 where it is alone.
func (c *Cluster) self() int {
	if t := c.wiring.overlay; t != nil {
		return t.Self
	}
	return 0
}

// deviceCounts are how many devices each VM of a host has. Hosts of a batch system's job have VMs of one cluster
// file, so as many as the plan of this host.
func (c *Cluster) deviceCounts(p *plan.Plan, host int) []int {
	var list []int
	if t := c.wiring.overlay; t != nil && host < len(t.Hosts) && len(t.Hosts[host].Sizes) > 0 {
		for _, s := range t.Hosts[host].Sizes {
			list = append(list, s.Devices)
		}
		return list
	}
	for k := range p.VMs {
		list = append(list, len(p.VMs[k].Devices))
	}
	return list
}

// deviceAddress is the address of device number i of VM number vm on a host, all counted from 0.
func (c *Cluster) deviceAddress(subnet netip.Prefix, p *plan.Plan, host, vm, i int) (netip.Addr, error) {
	number := i + 1
	for h := 0; h <= host; h++ {
		for k, n := range c.deviceCounts(p, h) {
			if h < host || k < vm {
				number += n
			}
		}
	}
	// The last address is the subnet's broadcast.
	if last := 1<<(32-subnet.Bits()) - 1; number >= last {
		return netip.Addr{}, fmt.Errorf("network.deviceSubnet: %s has too few addresses for the devices of all VMs: write a shorter prefix length", subnet)
	}
	base := subnet.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(base[:]) + uint32(number)
	binary.BigEndian.PutUint32(base[:], n)
	return netip.AddrFrom4(base), nil
}
