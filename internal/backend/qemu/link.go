package qemu

import (
	"fmt"
	"net"
)

// link is a network card and what it is joined to.
type link struct {
	Link
	Index int
	FD    int // for stream and tap
}

// Bounds of the MTU: what IPv6 needs, and the largest of a virtio card.
const (
	minMTU = 1280
	maxMTU = 65521
)

// takesFile says whether the link needs an inherited file.
func (l Link) takesFile() bool { return l.Kind == LinkStream || l.Kind == LinkTap }

func (l link) Valid() error {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return fmt.Errorf("network card %d: %.40q is no unicast MAC address", l.Index, l.MAC)
	}
	if l.MTU != 0 && (l.MTU < minMTU || l.MTU > maxMTU) {
		return fmt.Errorf("network card %d: MTU %d: %d to %d", l.Index, l.MTU, minMTU, maxMTU)
	}
	switch l.Kind {
	case LinkStream, LinkTap:
		if l.FD < firstFD {
			return fmt.Errorf("network card %d: %w", l.Index, errNoFD)
		}
	case LinkUser:
	default:
		return fmt.Errorf("network card %d: unknown kind %.40q", l.Index, l.Kind)
	}
	return nil
}

func (l link) Args() []string {
	id := fmt.Sprintf("net%d", l.Index)
	var netdev string
	switch l.Kind {
	case LinkStream:
		netdev = option("stream", "id="+id, "addr.type=fd", fmt.Sprintf("addr.str=%d", l.FD))
	case LinkTap:
		netdev = option("tap", "id="+id, fmt.Sprintf("fd=%d", l.FD))
	case LinkUser:
		netdev = option("user", "id="+id, "net=10.0.2.0/24", "host=10.0.2.2", "ipv6=off")
	}
	// romfile=: nobody starts from the network, and the ROM may not be installed.
	nic := []string{"netdev=" + id, "mac=" + l.MAC, "romfile="}
	if l.MTU != 0 {
		nic = append(nic, fmt.Sprintf("host_mtu=%d", l.MTU))
	}
	return []string{"-netdev", netdev, "-device", option("virtio-net-pci", nic...)}
}
