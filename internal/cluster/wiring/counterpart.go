package wiring

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
)

// All hosts of a job number the devices of all VMs in the same way, so that each knows the addresses of the others'
// devices without asking.

// Self returns the number of this host in the overlay; 0 without an overlay.
func (w *Net) Self() int {
	if w.Joined != nil {
		return w.Joined.Self
	}
	return 0
}

// deviceCounts returns the number of devices of each VM of a host. Hosts of a batch system's job run VMs from one
// cluster file; their numbers are then those of the plan p of this host.
func (w *Net) deviceCounts(p *plan.Plan, host int) []int {
	var list []int
	if t := w.Joined; t != nil && host < len(t.Hosts) && len(t.Hosts[host].Sizes) > 0 {
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

// DeviceAddress returns the address of device number i of VM number vm on a host, all counted from 0. p is the plan
// of this host.
func (w *Net) DeviceAddress(subnet netip.Prefix, p *plan.Plan, host, vm, i int) (netip.Addr, error) {
	number := i + 1
	for h := 0; h <= host; h++ {
		for k, n := range w.deviceCounts(p, h) {
			if h < host || k < vm {
				number += n
			}
		}
	}
	// The last address is the subnet's broadcast address.
	if last := 1<<(32-subnet.Bits()) - 1; number >= last {
		return netip.Addr{}, fmt.Errorf("network.deviceSubnet: %s has too few addresses for the devices of all VMs: write a shorter prefix length", subnet)
	}
	base := subnet.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(base[:]) + uint32(number)
	binary.BigEndian.PutUint32(base[:], n)
	return netip.AddrFrom4(base), nil
}

// EndsOf returns the devices of a host's VMs, which are of the same kind as those in this host's record r.
func (w *Net) EndsOf(r state.Record, host int) ([]End, error) {
	var list []End
	counts := w.deviceCounts(r.Plan, host)
	for k, name := range w.Joined.Hosts[host].VMs {
		if k >= len(counts) {
			break
		}
		// A VM of this host with as many devices serves as the model.
		like := slices.IndexFunc(r.Plan.VMs, func(v plan.VM) bool { return len(v.Devices) == counts[k] })
		if like < 0 {
			continue
		}
		theirs := Ends(name, r.VMs[like].Devices)
		for i := range theirs {
			var err error
			if theirs[i].Addr, err = w.counterpart(r, like, host, k, i); err != nil {
				return nil, err
			}
		}
		list = append(list, theirs...)
	}
	return list, nil
}

// counterpart returns the address of the nth device with an address (from 0) of VM number k on a host. VM number like
// of this host is the model of that VM.
func (w *Net) counterpart(r state.Record, like, host, k, nth int) (netip.Addr, error) {
	seen := map[string]bool{}
	for i, d := range r.VMs[like].Devices {
		if d.IP == "" || seen[d.IP] {
			continue
		}
		if d.Kind == "rxe" {
			break
		}
		if seen[d.IP] = true; len(seen) <= nth {
			continue
		}
		subnet, err := netip.ParsePrefix(r.Spec.Network.DeviceSubnet)
		if err != nil {
			return netip.Addr{}, err
		}
		return w.DeviceAddress(subnet, r.Plan, host, k, i)
	}
	return w.Joined.addrs[host][k].IP, nil
}

// ReachHosts connects from the devices of this host's VMs to those of the other hosts' VMs, which may boot later,
// until each answers or the cluster ends. It returns immediately; the record states which have answered.
func (w *Net) ReachHosts(dial Dial, from []End) {
	t := w.Joined
	if t == nil || len(from) == 0 {
		return
	}
	r := t.own.Record()
	for host := range t.Hosts {
		if host == t.Self {
			continue
		}
		to, err := w.EndsOf(r, host)
		if err != nil {
			t.devices(host, false, err.Error())
			continue
		}
		go func() {
			for t.ctx.Err() == nil {
				bound, cancel := context.WithTimeout(t.ctx, ReachBound)
				failed := Reach(bound, dial, from, to)
				cancel()
				if len(failed) == 0 {
					t.devices(host, true, "")
					return
				}
				t.devices(host, false, UnreachedLine(failed))
			}
		}()
	}
}

// devices notes in the record whether a host's VMs answer over their devices.
func (t *Joined) devices(host int, reached bool, fault string) {
	t.changeHost(host, func(h *state.RecordHost) { h.DevicesReached, h.DeviceFault = reached, fault })
}
