package vsphere

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/backend"
	"nearmetal/internal/spec"
)

// Network chooses each VM's address, unless DHCP assigns it, and makes the port group if the cluster file requests
// one.
func (d *driver) Network(ctx context.Context, vms []string, n spec.Network, record func(backend.Ref) error) ([]backend.Card, error) {
	if d.place.file.DHCP {
		n.Subnet = "10.0.0.0/8" // without effect, because the addresses are dropped
	}
	cards, err := cardsFor(len(vms), n, d.place.file.Gateway)
	if err != nil {
		return nil, err
	}
	if d.place.file.DHCP {
		for i := range cards {
			cards[i].Address = netip.Prefix{}
		}
	}
	d.cards = map[string]backend.Card{}
	for i, name := range vms {
		d.cards[name] = cards[i]
	}
	if d.place.dvs != nil {
		if err := d.makePortGroup(ctx, record); err != nil {
			return nil, err
		}
	}
	return cards, nil
}

// mtuMost is the MTU of cards if the cluster file's is larger.
const mtuMost = 9000

// cardsFor returns cards with addresses 1, 2, … of the network's subnet, and consecutive unicast MAC addresses from a
// random one on, in the range that VMware leaves to administrators (00:50:56:00:00:00 to 00:50:56:3f:ff:ff).
func cardsFor(n int, w spec.Network, gateway string) ([]backend.Card, error) {
	subnet, err := netip.ParsePrefix(w.Subnet)
	if err != nil {
		return nil, fmt.Errorf("network.subnet: %w", err)
	}
	var gw netip.Addr
	if gateway != "" {
		if gw, err = netip.ParseAddr(gateway); err != nil {
			return nil, fmt.Errorf("vsphere.gateway: %w", err)
		}
		if !subnet.Contains(gw) {
			return nil, fmt.Errorf("vsphere.gateway: %s is not in network.subnet %s", gw, subnet)
		}
	}
	base := subnet.Masked().Addr().As4()
	first := binary.BigEndian.Uint32(base[:])
	last := first + 1<<(32-subnet.Bits()) - 1 // the broadcast address
	var b [4]byte
	rand.Read(b[:])
	mac := binary.BigEndian.Uint32(b[:]) % (0x400000 - spec.MaxVMs)
	var cards []backend.Card
	for at := first + 1; len(cards) < n; at++ {
		if at >= last {
			return nil, fmt.Errorf("network.subnet: %s has too few addresses for %d VMs", subnet, n)
		}
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], at)
		addr := netip.AddrFrom4(a)
		if addr == gw {
			continue
		}
		m := mac + uint32(len(cards))
		cards = append(cards, backend.Card{MAC: fmt.Sprintf("00:50:56:%02x:%02x:%02x", m>>16, m>>8&0xff, m&0xff),
			Address: netip.PrefixFrom(addr, subnet.Bits()), Gateway: gw, MTU: min(w.MTU, mtuMost)})
	}
	return cards, nil
}

// newMark returns a mark for an object of this cluster: 128 random bits.
func newMark() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// inventoryName returns a unique name in vCenter's inventory, of at most 80 characters, which is vCenter's limit.
func inventoryName(cluster, vm, mark string) string {
	text := "nm-" + cluster
	if vm != "" {
		text += "-" + vm
	}
	return text[:min(len(text), 63)] + nameEnd(mark)
}

// nameEnd returns the unique part of a name: 64 random bits.
func nameEnd(mark string) string { return "-" + mark[:min(len(mark), 16)] }

// makePortGroup makes the cluster's port group, after recording its name, its mark and its switch.
func (d *driver) makePortGroup(ctx context.Context, record func(backend.Ref) error) error {
	mark := newMark()
	name := inventoryName(d.file.Name, "", mark)
	s := *d.place.dvs
	ref := backend.Ref{Driver: "vsphere", What: "port group " + name, ID: map[string]string{
		"server": d.c.access.server, "kind": kindPortGroup, "name": name, "mark": mark, "switch": s.String()}}
	if err := record(ref); err != nil {
		return err
	}
	spec := types.DVPortgroupConfigSpec{Name: name, Type: string(types.DistributedVirtualPortgroupPortgroupTypeEarlyBinding),
		NumPorts: 8, AutoExpand: types.NewBool(true), Description: markLine(mark)}
	if v := d.place.file.VLAN; v > 0 {
		spec.DefaultPortConfig = &types.VMwareDVSPortSetting{Vlan: &types.VmwareDistributedVirtualSwitchVlanIdSpec{VlanId: int32(v)}}
	}
	o := object.NewDistributedVirtualSwitch(d.c.client.Client, s)
	_, err := d.c.do(ctx, "make port group "+name, func(ctx context.Context) (types.ManagedObjectReference, error) {
		t, err := o.AddPortgroup(ctx, []types.DVPortgroupConfigSpec{spec})
		return taskRef(t), err
	}, nil)
	if err != nil {
		return err
	}
	g, err := d.c.portGroup(ctx, s, name, mark)
	if err != nil {
		return err
	}
	if g == nil {
		return fmt.Errorf("vCenter made port group %s, and it is not there", name)
	}
	// vCenter's own ID, in addition to the name.
	ref.ID = map[string]string{"server": d.c.access.server, "kind": kindPortGroup, "name": name, "mark": mark, "switch": s.String(), "id": g.Value}
	if err := record(ref); err != nil {
		return err
	}
	d.place.backing, err = object.NewDistributedVirtualPortgroup(d.c.client.Client, *g).EthernetCardBackingInfo(ctx)
	return d.c.explain("read port group "+name, err)
}

// markLine returns the description of an object with a mark.
func markLine(mark string) string {
	return "made by nearmetal for a cluster, and removed with it; mark " + mark
}

// portGroup finds a switch's port group by its name, and only with the mark; nil: none.
func (s *Session) portGroup(ctx context.Context, dvs types.ManagedObjectReference, name, mark string) (*types.ManagedObjectReference, error) {
	var have mo.DistributedVirtualSwitch
	if found, err := s.readOne(ctx, dvs, []string{"portgroup"}, &have); err != nil || !found || len(have.Portgroup) == 0 {
		return nil, s.explain("read the switch's port groups", err)
	}
	var list []mo.DistributedVirtualPortgroup
	if err := s.pc.Retrieve(ctx, have.Portgroup, []string{"config"}, &list); err != nil {
		return nil, s.explain("read the switch's port groups", err)
	}
	for i := range list {
		if list[i].Config.Name == name && list[i].Config.Description == markLine(mark) {
			return &list[i].Self, nil
		}
	}
	return nil, nil
}

// taskRef returns a task's reference; the zero one for nil.
func taskRef(t *object.Task) types.ManagedObjectReference {
	if t == nil {
		return types.ManagedObjectReference{}
	}
	return t.Reference()
}
