package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/network"
)

// network makes the VMs' network: the back end's own where it has one, else one of ours.
func (c *Cluster) network(ctx context.Context, p *prepared, o Options, id [16]byte) (*wiring, error) {
	n, names := o.Spec.Network, p.names()
	d, ok := c.driver.(backend.Networker)
	if !ok || n.Type == "none" || !slices.Contains(c.caps.Links, backend.LinkOwn) {
		return wire(n, id, names, c.uplink(o.Spec), c.journal, o.Overlay)
	}
	if o.Overlay != nil {
		return nil, fmt.Errorf("back end %s has a network of its own, and joins no VMs of several hosts' jobs", c.rec.Backend)
	}
	cards, err := d.Network(ctx, names, n, c.record)
	if err != nil {
		return nil, err
	}
	return wireOwn(names, cards)
}

// wireOwn is the wiring of VMs that have these cards. They come from a driver that has asked others:
// each VM has one, and no two are alike.
func wireOwn(names []string, cards []backend.Card) (*wiring, error) {
	if len(cards) != len(names) {
		return nil, fmt.Errorf("the back end's network has %d cards for %d VMs", len(cards), len(names))
	}
	w := &wiring{files: make([][]*os.File, len(names))}
	seen := map[string]bool{}
	for i, k := range cards {
		mac, err := net.ParseMAC(k.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return nil, fmt.Errorf("the back end's network: card of %s: %.40q is no unicast MAC address", names[i], k.MAC)
		}
		if !k.Address.IsValid() || !k.Address.Addr().Is4() {
			return nil, fmt.Errorf("the back end's network: card of %s: %s is no IPv4 address with its subnet", names[i], k.Address)
		}
		if seen[mac.String()] || seen[k.Address.Addr().String()] {
			return nil, fmt.Errorf("the back end's network: card of %s: %s, %s is another VM's too", names[i], mac, k.Address.Addr())
		}
		seen[mac.String()], seen[k.Address.Addr().String()] = true, true
		w.addrs = append(w.addrs, network.Address{Name: names[i], MAC: mac, IP: k.Address.Addr(), Prefix: k.Address.Masked()})
		w.links = append(w.links, []backend.Link{{Kind: backend.LinkOwn, MAC: mac.String(), MTU: k.MTU}})
		w.config = append(w.config, []guest.Link{{Name: "eth0", MAC: mac.String(), MTU: k.MTU, Address: k.Address, Gateway: k.Gateway}})
	}
	return w, nil
}
