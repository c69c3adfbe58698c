package tenant

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/portsbinding"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/carry"
	"nearmetal/internal/spec"
)

// Network creates a security group, unless the backend's name disables it, and a port for each VM.
func (d *driver) Network(ctx context.Context, vms []string, _ spec.Network, record func(backend.Ref) error) ([]backend.Card, error) {
	c, err := d.clients(ctx)
	if err != nil {
		return nil, err
	}
	// Without a group of its own, a port has the project's default one; the field must be absent if Neutron has no
	// groups.
	var guard *[]string
	if d.o.guard == "own" {
		id, err := d.guard(ctx, c, record)
		if err != nil {
			return nil, err
		}
		guard = &[]string{id}
	}
	d.ports = map[string]port{}
	var cards []backend.Card
	for _, vm := range vms {
		ref := d.ref(kindPort, "nearmetal-"+d.mark+"-"+vm)
		if err := record(ref); err != nil {
			return nil, err
		}
		p, err := ports.Create(ctx, c.network, portsbinding.CreateOptsExt{
			CreateOptsBuilder: ports.CreateOpts{NetworkID: d.network, Name: ref.ID[keyName], SecurityGroups: guard},
			VNICType:          d.o.vnic,
		}).Extract()
		settled(ref, err)
		if err != nil {
			return nil, explain("making a port for "+vm, err)
		}
		card, err := d.card(ctx, c, p)
		if err != nil {
			return nil, fmt.Errorf("the port of %s: %w", vm, err)
		}
		d.ports[vm] = port{p.ID, card.Address.Addr()}
		cards = append(cards, *card)
	}
	return cards, nil
}

// guard creates a security group that allows all traffic between the VMs, and returns its ID.
func (d *driver) guard(ctx context.Context, c *center, record func(backend.Ref) error) (string, error) {
	ref := d.ref(kindSecurity, "nearmetal-"+d.mark)
	if err := record(ref); err != nil {
		return "", err
	}
	g, err := groups.Create(ctx, c.network, groups.CreateOpts{Name: ref.ID[keyName], Description: "nearmetal: the VMs of one cluster"}).Extract()
	settled(ref, err)
	if err != nil {
		return "", explain("making a security group", err)
	}
	for _, r := range []rules.CreateOpts{
		{Direction: rules.DirIngress, EtherType: rules.EtherType4, SecGroupID: g.ID, RemoteGroupID: g.ID},
		{Direction: rules.DirIngress, EtherType: rules.EtherType4, SecGroupID: g.ID, RemoteIPPrefix: d.o.from, Protocol: rules.ProtocolTCP, PortRangeMin: carry.Port, PortRangeMax: carry.Port},
	} {
		if _, err := rules.Create(ctx, c.network, r).Extract(); err != nil {
			return "", explain("making a rule of a security group", err)
		}
	}
	return g.ID, nil
}

// card returns a port as the card of its VM.
func (d *driver) card(ctx context.Context, c *center, p *ports.Port) (*backend.Card, error) {
	for _, ip := range p.FixedIPs {
		a, err := netip.ParseAddr(ip.IPAddress)
		if err != nil || !a.Is4() {
			continue
		}
		s, err := subnets.Get(ctx, c.network, ip.SubnetID).Extract()
		if err != nil {
			return nil, explain("a subnet", err)
		}
		net, err := netip.ParsePrefix(s.CIDR)
		if err != nil || !net.Contains(a) {
			return nil, fmt.Errorf("%s is not in its subnet %.40q", a, s.CIDR)
		}
		card := &backend.Card{MAC: p.MACAddress, Address: netip.PrefixFrom(a, net.Bits())}
		if gw, err := netip.ParseAddr(s.GatewayIP); err == nil && gw.Is4() {
			card.Gateway = gw
		}
		return card, nil
	}
	return nil, fmt.Errorf("network %s has no IPv4 address for it", d.o.network)
}
