package state

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
)

// UplinkHost is the address of the host on a VM's uplink, with the length of its subnet.
var UplinkHost = netip.PrefixFrom(backend.UserHost, backend.UserGuest.Bits())

// Everywhere returns the VMs of the cluster and of the other hosts of its overlay, host by host.
func (r *Record) Everywhere() []VMRecord {
	if len(r.Overlay) == 0 {
		return r.VMs
	}
	var list []VMRecord
	for _, h := range r.Overlay {
		if h.Self {
			list = append(list, r.VMs...)
		} else {
			list = append(list, h.VMs...)
		}
	}
	return list
}

// Joined returns an error that names a host of the overlay that is not joined yet; nil if all are.
func (r *Record) Joined() error {
	for _, h := range r.Overlay {
		if !h.Joined {
			why := h.Why
			if why == "" {
				why = "it has not called yet"
			}
			return fmt.Errorf("the VMs of host %s (%s) cannot be reached: %s", h.Name, h.Addr, why)
		}
	}
	return nil
}

// Here reports whether VM number i of Everywhere is on this host.
func (r *Record) Here(i int) bool {
	for _, h := range r.Overlay {
		n := len(h.VMs)
		if i < n {
			return h.Self
		}
		i -= n
	}
	return true
}

// HostAddress returns the address of this host for VMs of the overlay's other hosts, with the prefix length of their
// uplink's subnet. It is the address by which the other hosts reach this one. If all hosts are one machine, that
// address would be the loopback, which in a VM is the VM's own; HostAddress then returns the uplink's address.
func (r *Record) HostAddress() netip.Prefix {
	for _, h := range r.Overlay {
		if !h.Self {
			continue
		}
		ips, err := net.LookupIP(h.Addr)
		for _, ip := range ips {
			if a, ok := netip.AddrFromSlice(ip.To4()); ok && err == nil && !a.IsLoopback() {
				return netip.PrefixFrom(a, UplinkHost.Bits())
			}
		}
	}
	return UplinkHost
}

// DevicesUnreached returns a line that names the host whose devices have not answered yet.
func (r *Record) DevicesUnreached() string {
	any := slices.ContainsFunc(r.VMs, func(v VMRecord) bool {
		return slices.ContainsFunc(v.Devices, func(d guest.Device) bool { _, err := netip.ParseAddr(d.IP); return err == nil })
	})
	for _, h := range r.Overlay {
		if any && !h.Self && !h.DevicesReached {
			return cmp.Or(h.DeviceFault, fmt.Sprintf("the devices of the VMs of host %s have not answered yet", h.Name))
		}
	}
	return ""
}
