// Package network connects the VMs of a cluster. It assigns their addresses and provides a direct link between two VMs,
// a frame switch for more and, for root, taps on a bridge.
package network

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Limits of an interface's MTU in bytes. IPv6 requires the lower limit; a frame of at most 65535 bytes the upper one.
const (
	MinMTU = 1280
	MaxMTU = 65521
)

// Address is the address of one VM's interface.
type Address struct {
	Name   string           // of the VM
	MAC    net.HardwareAddr // 6 bytes
	IP     netip.Addr       // IPv4
	Prefix netip.Prefix     // the subnet
}

// Addresses assigns addresses to the VMs called names. VM number i gets the subnet's address number i+1, and a MAC made
// of the cluster's random id and the number, so that two clusters on one bridge do not collide. The subnet must be
// IPv4, /8 to /28. Addresses fails if the subnet has too few addresses.
func Addresses(cluster [16]byte, subnet netip.Prefix, names []string) ([]Address, error) {
	if !subnet.IsValid() || !subnet.Addr().Is4() || subnet.Bits() < 8 || subnet.Bits() > 28 {
		return nil, fmt.Errorf("network: the subnet %s is not IPv4 with a prefix of /8 to /28", subnet)
	}
	subnet = subnet.Masked()
	// The first address is the subnet's own, and the last its broadcast address.
	if room := 1<<(32-subnet.Bits()) - 2; len(names) > room {
		return nil, fmt.Errorf("network: %s has room for %d VMs, not %d; take a shorter prefix", subnet, room, len(names))
	}
	if len(names) > 1<<16 {
		return nil, fmt.Errorf("network: %d VMs are too many", len(names))
	}
	base := subnet.Addr().As4()
	first := uint32(base[0])<<24 | uint32(base[1])<<16 | uint32(base[2])<<8 | uint32(base[3])
	out := make([]Address, len(names))
	for i, name := range names {
		n := first + uint32(i) + 1
		out[i] = Address{
			Name:   name,
			MAC:    mac(cluster, i),
			IP:     netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}),
			Prefix: subnet,
		}
	}
	return out, nil
}

// mac returns a locally administered unicast address (IEEE 802c): bit 1 of the first byte is set, bit 0 clear. QEMU's
// own addresses start with the same 0x52.
func mac(cluster [16]byte, i int) net.HardwareAddr {
	return net.HardwareAddr{0x52, cluster[0], cluster[1], cluster[2], byte(i >> 8), byte(i)}
}

// Hosts returns the lines of /etc/hosts for the addresses.
func Hosts(addrs []Address) string {
	var b strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&b, "%s %s\n", a.IP, a.Name)
	}
	return b.String()
}

// CheckMTU returns an error if mtu, in bytes, is outside the limits.
func CheckMTU(mtu int) error {
	if mtu < MinMTU || mtu > MaxMTU {
		return fmt.Errorf("network: an MTU of %d is not in %d to %d", mtu, MinMTU, MaxMTU)
	}
	return nil
}
