package device

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mayBind returns the reason why a function must not be given to a VM, or nil.
func (h *Host) mayBind(f *Function) error {
	if !h.there(f.Address) {
		return fmt.Errorf("device %s: %w", f.Address, errGone)
	}
	// A cluster claims a function before it binds it.
	if who, pid := h.claim(f.Address); who != "" && pid != os.Getpid() {
		return &ClaimedError{f.Address, who}
	}
	if h.held(f) {
		return fmt.Errorf("device %s is in use by %s", f.Address, h.whoHolds(f.Address))
	}
	if bridge(f.Class) {
		return fmt.Errorf("device %s is a bridge: it cannot be passed through", f.Address)
	}
	if err := h.isolated(f); err != nil {
		return err
	}
	if len(f.VFs) > 0 {
		return fmt.Errorf("device %s has %d VFs: give them to VMs, or take them away with nearmetal device disable-vfs %s first", f.Address, len(f.VFs), f.Address)
	}
	return h.unused(f)
}

// isolated returns the reason why a function cannot be isolated from the host and from others, or nil.
func (h *Host) isolated(f *Function) error {
	if f.Group < 0 {
		return fmt.Errorf("device %s has no IOMMU group: enable VT-d or AMD-Vi in the firmware, and on Intel start the kernel with intel_iommu=on (and iommu=pt)", f.Address)
	}
	var foreign []string
	for _, o := range f.Others {
		if d := h.target(h.dev(o, "driver")); d != vfioDriver {
			if d == "" {
				d = "no driver"
			}
			foreign = append(foreign, o+" ("+d+")")
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("device %s cannot be isolated: its IOMMU group %d holds %s too: enable ACS (and ARI) in the firmware, or put the card into another slot",
			f.Address, f.Group, strings.Join(foreign, ", "))
	}
	return nil
}

// unused returns the host's own use of a function as an error, or nil.
func (h *Host) unused(f *Function) error {
	if h.attr(h.dev(f.Address, "boot_vga")) == "1" {
		return fmt.Errorf("device %s is this host's console", f.Address)
	}
	if f.Class>>16 == 0x01 && f.Driver != "" && f.Driver != vfioDriver {
		return fmt.Errorf("device %s is storage with driver %s, perhaps with file systems of this host: take the driver off first", f.Address, f.Driver)
	}
	for _, n := range f.Net {
		if err := h.quietInterface(f.Address, n); err != nil {
			return err
		}
	}
	return nil
}

// quietInterface returns an error if the host uses an interface: its default route uses it, it has an address, or it
// is part of a bridge or bond.
func (h *Host) quietInterface(at, n string) error {
	if h.defaultRoute(n) {
		return fmt.Errorf("device %s is in use by this host: its default route goes over %s", at, n)
	}
	if _, err := os.Lstat(h.dev(at, "net", n, "master")); err == nil {
		return fmt.Errorf("device %s is in use by this host: %s belongs to %s", at, n, h.target(h.dev(at, "net", n, "master")))
	}
	if h.root == "" {
		addrs, err := h.Links.Addresses(n)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("device %s: cannot tell whether this host uses %s: %w", at, n, err)
		}
		if len(addrs) > 0 {
			return fmt.Errorf("device %s is in use by this host: %s has the address %s (ip addr flush dev %s takes it away)", at, n, addrs[0], n)
		}
	}
	return nil
}

// defaultRoute reports whether the default route of IPv4 or IPv6 uses an interface (/proc/net/route: Iface
// Destination Gateway Flags RefCnt Use Metric Mask; ipv6_route: destination, prefix length, source, prefix length,
// next hop, metric, …, flags, interface).
func (h *Host) defaultRoute(n string) bool {
	b, _ := os.ReadFile(h.path("/proc/net/route"))
	for _, line := range strings.Split(string(b), "\n") {
		if w := strings.Fields(line); len(w) >= 8 && w[0] == n && w[1] == "00000000" && w[7] == "00000000" {
			return true
		}
	}
	b, _ = os.ReadFile(h.path("/proc/net/ipv6_route"))
	for _, line := range strings.Split(string(b), "\n") {
		w := strings.Fields(line)
		if len(w) != 10 || w[9] != n || w[1] != "00" || strings.Trim(w[0], "0") != "" {
			continue
		}
		// RTF_REJECT (0x200): the kernel's own "no route"
		if flags, err := strconv.ParseUint(w[8], 16, 32); err == nil && flags&0x200 == 0 {
			return true
		}
	}
	return false
}
