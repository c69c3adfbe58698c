package qemu

import (
	"fmt"
	"net"

	"nearmetal/internal/backend"
)

// link is a network card and its connection.
type link struct {
	backend.Link
	Index int
	FD    [2]int // for stream and tap; for a filtered user network the card's and its own
	Apart bool   // the user network is in another process: only the card's file exists
}

// Bounds of the MTU: what IPv6 needs, and the largest of a virtio card.
const (
	minMTU = 1280
	maxMTU = 65521
)

func (l link) Valid() error {
	mac, err := net.ParseMAC(l.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return fmt.Errorf("network card %d: %.40q is not a unicast MAC address", l.Index, l.MAC)
	}
	if l.MTU != 0 && (l.MTU < minMTU || l.MTU > maxMTU) {
		return fmt.Errorf("network card %d: MTU %d: %d to %d", l.Index, l.MTU, minMTU, maxMTU)
	}
	switch l.Kind {
	case backend.LinkStream, backend.LinkTap, backend.LinkUser:
		for n := range l.Files() {
			if l.FD[n] < firstFD && !(l.Apart && n > 0) {
				return fmt.Errorf("network card %d: %w", l.Index, errNoFD)
			}
		}
	default:
		return fmt.Errorf("network card %d: unknown kind %.40q", l.Index, l.Kind)
	}
	return nil
}

// Addresses of the user network: those of backend.UserGuest and backend.UserHost.
const (
	userNet  = "10.0.2.0/24"
	userHost = "10.0.2.2"
)

// netdevs returns the arguments of netdev_add for a link whose user network is behind a filter. A hub joins the two.
// They are added while the machine runs, because QEMU 7.2 with a hub without a card on its command line does not load
// an ELF kernel into the guest's memory.
func (l link) netdevs() []map[string]any {
	if l.Kind != backend.LinkUser || !l.Filtered || l.Apart {
		return nil
	}
	id := fmt.Sprintf("net%d", l.Index)
	port := func(of string) map[string]any {
		return map[string]any{"type": "hubport", "id": "hub" + of, "hubid": l.Index, "netdev": of}
	}
	return []map[string]any{
		{"type": "user", "id": "user" + id, "net": userNet, "host": userHost, "ipv6": false},
		port("user" + id), port("way" + id),
	}
}

func (l link) Args() []string {
	id := fmt.Sprintf("net%d", l.Index)
	stream := func(id string, fd int) string {
		return option("stream", "id="+id, "addr.type=fd", fmt.Sprintf("addr.str=%d", fd))
	}
	var args []string
	netdev := func(text string) { args = append(args, "-netdev", text) }
	switch {
	case l.Kind == backend.LinkStream || l.Apart:
		netdev(stream(id, l.FD[0]))
	case l.Kind == backend.LinkTap:
		netdev(option("tap", "id="+id, fmt.Sprintf("fd=%d", l.FD[0])))
	case l.Filtered:
		netdev(stream(id, l.FD[0]))
		netdev(stream("way"+id, l.FD[1]))
	default:
		netdev(option("user", "id="+id, "net="+userNet, "host="+userHost, "ipv6=off"))
	}
	// romfile=: no VM boots from the network, and the ROM may not be installed.
	nic := []string{"netdev=" + id, "mac=" + l.MAC, "romfile="}
	if l.MTU != 0 {
		nic = append(nic, fmt.Sprintf("host_mtu=%d", l.MTU))
	}
	return append(args, "-device", option("virtio-net-pci", nic...))
}
