package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/network"
	"nearmetal/internal/region"
)

// network makes the VMs' network: the backend's own if it has one, else one of nearmetal.
func (m *VMs) network(ctx context.Context, p *prepared, o options, id [16]byte) (*wiring.Net, error) {
	n, names := o.Spec.Network, p.names()
	d, ok := m.driver.(backend.Networker)
	if !ok || n.Type == "none" || !slices.Contains(m.caps.Links, backend.LinkOwn) {
		r := wiring.Request{Network: n, ID: id, Names: names, Uplink: n.Uplink == "user", Journal: m.own.Journal, Overlay: o.Overlay}
		if r.Uplink && m.caps.Filter {
			r.Ports = network.NewHostPorts(n.HostPorts)
		}
		return wiring.Make(r)
	}
	if o.Overlay != nil {
		return nil, fmt.Errorf("backend %s has a network of its own, and joins no VMs of several hosts' jobs", m.own.Record().Backend)
	}
	cards, err := d.Network(ctx, names, n, m.own.Ref)
	if err != nil {
		return nil, err
	}
	w, err := wiring.Own(names, cards)
	if err == nil && w.Late && p.image != nil {
		err = errors.New("the backend's network: a VM that starts a kernel of this host's needs an address before")
	}
	return w, err
}

// awaitAddresses waits for the addresses that VMs get only when they run, and sends all of them to each VM.
func (m *VMs) awaitAddresses(ctx context.Context, p *prepared, o options, reg *region.Region) error {
	got := make([]netip.Prefix, len(m.vms))
	asking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var g errgroup.Group
	for _, v := range m.vms {
		g.Go(func() (err error) {
			defer func() {
				if err != nil {
					giveUp(err) // the first error cancels the others
				}
			}()
			l, ok := v.instance().(backend.Late)
			if !ok {
				return fmt.Errorf("%s: the backend reports no address of it", v.plan.Name)
			}
			if got[v.index], err = l.Address(asking); err != nil {
				return v.unready(ctx, fmt.Errorf("%s: its address: %w", v.plan.Name, err))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return context.Cause(asking)
	}
	for i, a := range got {
		if err := m.net.Address(i, a); err != nil {
			return err
		}
	}
	for _, v := range m.vms {
		config, err := m.config(v, o.Spec, p, reg)
		if err != nil {
			return err
		}
		v.instance().(backend.Late).Configure(config)
	}
	if err := m.own.Write(func(r *state.Record) {
		for i := range r.VMs {
			r.VMs[i].Subnet, r.VMs[i].IP = m.net.Subnet(i), m.net.IP(i).String()
		}
	}); err != nil {
		return err
	}
	return WriteHostFiles(m.own)
}
