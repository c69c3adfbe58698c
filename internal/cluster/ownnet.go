package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/network"
	"nearmetal/internal/region"
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
	w, err := wireOwn(names, cards)
	if err == nil && w.late && p.image != nil {
		err = errors.New("the back end's network: a VM that starts a kernel of this host's needs an address before")
	}
	return w, err
}

// wireOwn is the wiring of VMs that have these cards. They come from a driver that has asked others:
// each VM has one, and no two are alike.
func wireOwn(names []string, cards []backend.Card) (*wiring, error) {
	if len(cards) != len(names) {
		return nil, fmt.Errorf("the back end's network has %d cards for %d VMs", len(cards), len(names))
	}
	w := &wiring{files: make([][]*os.File, len(names)), late: len(cards) > 0 && !slices.ContainsFunc(cards, func(k backend.Card) bool { return k.Address.IsValid() })}
	seen := map[string]bool{}
	for i, k := range cards {
		mac, err := net.ParseMAC(k.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return nil, fmt.Errorf("the back end's network: card of %s: %.40q is no unicast MAC address", names[i], k.MAC)
		}
		if seen[mac.String()] {
			return nil, fmt.Errorf("the back end's network: card of %s: %s is another VM's too", names[i], mac)
		}
		seen[mac.String()] = true
		w.addrs = append(w.addrs, network.Address{Name: names[i], MAC: mac})
		w.links = append(w.links, []backend.Link{{Kind: backend.LinkOwn, MAC: mac.String(), MTU: k.MTU}})
		w.config = append(w.config, []guest.Link{{Name: "eth0", MAC: mac.String(), MTU: k.MTU, Gateway: k.Gateway}})
		if !w.late {
			if err := w.address(i, k.Address); err != nil {
				return nil, err
			}
		}
	}
	return w, nil
}

// address notes the address of VM number i, which no other has.
func (w *wiring) address(i int, a netip.Prefix) error {
	name := w.addrs[i].Name
	if !a.IsValid() || !a.Addr().Is4() {
		return fmt.Errorf("the back end's network: card of %s: %s is no IPv4 address with its subnet", name, a)
	}
	if slices.ContainsFunc(w.addrs, func(b network.Address) bool { return b.IP == a.Addr() }) {
		return fmt.Errorf("the back end's network: card of %s: %s is another VM's too", name, a.Addr())
	}
	w.addrs[i].IP, w.addrs[i].Prefix = a.Addr(), a.Masked()
	w.config[i][0].Address = a
	return nil
}

// awaitAddresses waits for the addresses that VMs get only when they run, and hands all of them to each.
func (c *Cluster) awaitAddresses(ctx context.Context, p *prepared, o Options, reg *region.Region) error {
	got := make([]netip.Prefix, len(c.vms))
	asking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var asks []func() error
	for _, v := range c.vms {
		asks = append(asks, func() (err error) {
			defer func() {
				if err != nil {
					giveUp(err) // the first of all ends the others
				}
			}()
			l, ok := v.instance().(backend.Late)
			if !ok {
				return fmt.Errorf("%s: the back end says no address of it", v.plan.Name)
			}
			if got[v.index], err = l.Address(asking); err != nil {
				return v.unready(ctx, fmt.Errorf("%s: its address: %w", v.plan.Name, err))
			}
			return nil
		})
	}
	if err := together(asks...); err != nil {
		return context.Cause(asking)
	}
	for i, a := range got {
		if err := c.wiring.address(i, a); err != nil {
			return err
		}
	}
	for _, v := range c.vms {
		config, err := c.config(v, o.Spec, p, reg)
		if err != nil {
			return err
		}
		v.instance().(backend.Late).Configure(config)
	}
	if err := c.write(func(r *Record) {
		for i := range r.VMs {
			r.VMs[i].Subnet, r.VMs[i].IP = c.wiring.subnet(i), c.wiring.ip(i).String()
		}
	}); err != nil {
		return err
	}
	return c.writeHostFiles()
}
