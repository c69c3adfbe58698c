package wiring

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/network"
)

// Own returns the network of VMs with these cards. A driver has obtained them from another program; therefore Own
// checks that each VM has a card and that no two cards are alike.
func Own(names []string, cards []backend.Card) (*Net, error) {
	if len(cards) != len(names) {
		return nil, fmt.Errorf("the backend's network has %d cards for %d VMs", len(cards), len(names))
	}
	w := &Net{files: make([][]*os.File, len(names)), Late: len(cards) > 0 && !slices.ContainsFunc(cards, func(k backend.Card) bool { return k.Address.IsValid() })}
	seen := map[string]bool{}
	for i, k := range cards {
		mac, err := net.ParseMAC(k.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return nil, fmt.Errorf("the backend's network: card of %s: %.40q is not a unicast MAC address", names[i], k.MAC)
		}
		if seen[mac.String()] {
			return nil, fmt.Errorf("the backend's network: card of %s: %s is another VM's too", names[i], mac)
		}
		seen[mac.String()] = true
		w.addrs = append(w.addrs, network.Address{Name: names[i], MAC: mac})
		w.links = append(w.links, []backend.Link{{Kind: backend.LinkOwn, MAC: mac.String(), MTU: k.MTU}})
		w.config = append(w.config, []guest.Link{{Name: "eth0", MAC: mac.String(), MTU: k.MTU, Gateway: k.Gateway}})
		if !w.Late {
			if err := w.Address(i, k.Address); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// Address sets the address of VM number i. It fails if the address is invalid or belongs to another VM.
func (w *Net) Address(i int, a netip.Prefix) error {
	name := w.addrs[i].Name
	if !a.IsValid() || !a.Addr().Is4() {
		return fmt.Errorf("the backend's network: card of %s: %s is not an IPv4 address with its subnet", name, a)
	}
	if slices.ContainsFunc(w.addrs, func(b network.Address) bool { return b.IP == a.Addr() }) {
		return fmt.Errorf("the backend's network: card of %s: %s is another VM's too", name, a.Addr())
	}
	w.addrs[i].IP, w.addrs[i].Prefix = a.Addr(), a.Masked()
	w.config[i][0].Address = a
	return nil
}
