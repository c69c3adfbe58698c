package cluster

import (
	"fmt"
	"net/netip"
	"os"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest"
	"nearmetal/internal/journal"
	"nearmetal/internal/network"
	"nearmetal/internal/spec"
)

// QEMU's user network (slirp) has these addresses in every VM: VMs do not see one
// another there, each sees the host.
var (
	uplinkAddr = netip.MustParsePrefix("10.0.2.15/24")
	uplinkHost = netip.MustParseAddr("10.0.2.2")
)

// UplinkHost is the host's address on a VM's uplink, with the length of its subnet.
var UplinkHost = netip.PrefixFrom(uplinkHost, uplinkAddr.Bits())

// wiring is the VMs' network: for each VM its cards, and the open files that QEMU
// inherits for them.
type wiring struct {
	addrs  []network.Address
	links  [][]qemu.Link
	config [][]guest.Link
	files  [][]*os.File
	sw     *network.Switch // nil: no switch
	trunk  *trunked        // nil: this host alone
}

// wire makes the network of the VMs called names.
func wire(n spec.Network, id [16]byte, names []string, uplink bool, j *journal.Journal, trunk *Trunk) (*wiring, error) {
	w := &wiring{
		links:  make([][]qemu.Link, len(names)),
		config: make([][]guest.Link, len(names)),
		files:  make([][]*os.File, len(names)),
	}
	if n.Type == "none" || n.Type == "bridge" {
		trunk = nil // the site's bridge is the way between the hosts
	}
	if n.Type != "none" && (len(names) > 1 || n.Type == "bridge" || trunk != nil) {
		subnet, err := netip.ParsePrefix(n.Subnet)
		if err != nil {
			return nil, fmt.Errorf("network.subnet: %w", err)
		}
		all, first, macs := names, 0, id
		if trunk != nil {
			all, first = trunk.names()
			macs = [16]byte(network.Derive(trunk.Secret, "network")[:16])
			w.trunk = &trunked{Trunk: trunk}
		}
		addrs, err := network.Addresses(macs, subnet, all)
		if err != nil {
			return nil, err
		}
		w.addrs = addrs[first : first+len(names)]
		if trunk != nil {
			at := 0
			for _, h := range trunk.Hosts {
				w.trunk.addrs = append(w.trunk.addrs, addrs[at:at+len(h.VMs)])
				at += len(h.VMs)
			}
		}
		if err := w.join(n, id, j); err != nil {
			w.close()
			return nil, err
		}
	}
	if uplink {
		for i := range names {
			mac := fmt.Sprintf("56:%02x:%02x:%02x:%02x:%02x", id[3], id[4], id[5], byte(i>>8), byte(i))
			w.links[i] = append(w.links[i], qemu.Link{Kind: qemu.LinkUser, MAC: mac})
			w.config[i] = append(w.config[i], guest.Link{Name: "eth1", MAC: mac, Address: uplinkAddr, Gateway: uplinkHost})
		}
	}
	return w, nil
}

// join makes the way between the VMs: a direct link for two, a switch for more, or taps.
func (w *wiring) join(n spec.Network, id [16]byte, j *journal.Journal) error {
	var ends []*os.File
	kind := qemu.LinkStream
	switch {
	case n.Type == "bridge":
		kind = qemu.LinkTap
		bridge := n.Bridge
		if bridge == "" {
			var err error
			if bridge, err = network.CreateBridge(id, j); err != nil {
				return err
			}
		}
		for range w.addrs {
			f, err := network.OpenTap(bridge, n.MTU)
			if err != nil {
				closeAll(ends)
				return err
			}
			ends = append(ends, f)
		}
	case w.trunk != nil:
		if err := w.trunk.wire(w, &ends); err != nil {
			return err
		}
	case len(w.addrs) == 2:
		a, b, err := network.Pair()
		if err != nil {
			return err
		}
		ends = []*os.File{a, b}
	default:
		var err error
		if w.sw, ends, err = network.NewSwitch(w.addrs); err != nil {
			return err
		}
	}
	for i, a := range w.addrs {
		w.files[i] = []*os.File{ends[i]}
		w.links[i] = []qemu.Link{{Kind: kind, MAC: a.MAC.String(), MTU: n.MTU}}
		w.config[i] = []guest.Link{{
			Name: "eth0", MAC: a.MAC.String(), MTU: n.MTU,
			Address: netip.PrefixFrom(a.IP, a.Prefix.Bits()),
		}}
	}
	return nil
}

// subnet is that of ip, "" for the loopback.
func (w *wiring) subnet(i int) string {
	switch {
	case i < len(w.addrs):
		return w.addrs[i].Prefix.String()
	case len(w.links[i]) > 0:
		return uplinkAddr.Masked().String()
	}
	return ""
}

// hosts are the lines of the VMs' /etc/hosts: the VMs, and the host by its own name.
func (w *wiring) hosts(vms []string, hostName string, uplink bool) []guest.HostEntry {
	var list []guest.HostEntry
	if w.trunk != nil {
		for _, h := range w.trunk.addrs {
			for _, a := range h {
				list = append(list, guest.HostEntry{Addr: a.IP, Names: []string{a.Name}})
			}
		}
		vms = nil
	}
	for i, name := range vms {
		list = append(list, guest.HostEntry{Addr: w.ip(i), Names: []string{name}})
	}
	if uplink {
		names := []string{"nearmetal-host"}
		if hostName != "" {
			names = append(names, hostName)
		}
		list = append(list, guest.HostEntry{Addr: uplinkHost, Names: names})
	}
	return list
}

// peers are the names of all VMs that a VM may reach; names are those of this host.
func (w *wiring) peers(names []string) []string {
	if w.trunk == nil {
		return names
	}
	all, _ := w.trunk.names()
	return all
}

// ip gives the address of VM number i: on the VMs' network; of a VM that is alone, that on
// its uplink, or its loopback.
func (w *wiring) ip(i int) netip.Addr {
	switch {
	case i < len(w.addrs):
		return w.addrs[i].IP
	case len(w.links[i]) > 0:
		return uplinkAddr.Addr()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// handedOver drops our copies of what the QEMUs have inherited.
func (w *wiring) handedOver() {
	for i := range w.files {
		closeAll(w.files[i])
		w.files[i] = nil
	}
}

func (w *wiring) close() {
	w.handedOver()
	w.trunk.close()
	if w.sw != nil {
		w.sw.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
