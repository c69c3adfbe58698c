package cluster

import (
	"fmt"
	"net/netip"
	"os"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/journal"
	"nearmetal/internal/network"
	"nearmetal/internal/spec"
)

// UplinkHost is the host's address on a VM's uplink, with the length of its subnet.
var UplinkHost = netip.PrefixFrom(backend.UserHost, backend.UserGuest.Bits())

// wiring is the VMs' network: for each VM its cards, and the open files that the back end
// gets for them.
type wiring struct {
	late    bool // the VMs' addresses are known when they run (backend.Late)
	addrs   []network.Address
	links   [][]backend.Link
	uplink  bool               // each VM has a card on the user network
	ports   *network.HostPorts // of this host that the VMs reach there; nil: all
	filters []*network.Filter  // before each VM's user network
	config  [][]guest.Link
	files   [][]*os.File
	sw      *network.Switch // nil: no switch
	overlay *overlayLinks   // nil: this host alone
}

// uplink is the VMs' way to this host and beyond.
type uplink struct {
	there bool
	ports *network.HostPorts // nil: it is not filtered
}

// uplink returns that of the cluster file s.
func (c *Cluster) uplink(s *spec.Cluster) uplink {
	u := uplink{there: s.Network.Uplink == "user"}
	if u.there && c.caps.Filter {
		u.ports = network.NewHostPorts(s.Network.HostPorts)
	}
	return u
}

// wire makes the network of the VMs called names.
func wire(n spec.Network, id [16]byte, names []string, up uplink, j *journal.Journal, overlay *Overlay) (*wiring, error) {
	w := &wiring{
		uplink: up.there, ports: up.ports,
		links:  make([][]backend.Link, len(names)),
		config: make([][]guest.Link, len(names)),
		files:  make([][]*os.File, len(names)),
	}
	if n.Type == "none" || n.Type == "bridge" {
		overlay = nil // the site's bridge is the way between the hosts
	}
	if n.Type != "none" && (len(names) > 1 || n.Type == "bridge" || overlay != nil) {
		subnet, err := netip.ParsePrefix(n.Subnet)
		if err != nil {
			return nil, fmt.Errorf("network.subnet: %w", err)
		}
		all, first, macs := names, 0, id
		if overlay != nil {
			all, first = overlay.names()
			macs = [16]byte(network.Derive(overlay.Secret, "network")[:16])
			w.overlay = &overlayLinks{Overlay: overlay}
		}
		addrs, err := network.Addresses(macs, subnet, all)
		if err != nil {
			return nil, err
		}
		w.addrs = addrs[first : first+len(names)]
		if overlay != nil {
			at := 0
			for _, h := range overlay.Hosts {
				w.overlay.addrs = append(w.overlay.addrs, addrs[at:at+len(h.VMs)])
				at += len(h.VMs)
			}
		}
		if err := w.join(n, id, j); err != nil {
			w.close()
			return nil, err
		}
	}
	if up.there {
		for i := range names {
			mac := fmt.Sprintf("56:%02x:%02x:%02x:%02x:%02x", id[3], id[4], id[5], byte(i>>8), byte(i))
			w.links[i] = append(w.links[i], backend.Link{Kind: backend.LinkUser, MAC: mac, Filtered: up.ports != nil})
			if up.ports != nil {
				f, card, host, err := network.NewFilter(up.ports, backend.UserGuest)
				if err != nil {
					w.close()
					return nil, err
				}
				w.filters = append(w.filters, f)
				w.files[i] = append(w.files[i], card, host)
			}
			w.config[i] = append(w.config[i], guest.Link{Name: "eth1", MAC: mac, Address: backend.UserGuest, Gateway: backend.UserHost})
		}
	}
	return w, nil
}

// join makes the way between the VMs: a direct link for two, a switch for more, or taps.
func (w *wiring) join(n spec.Network, id [16]byte, j *journal.Journal) error {
	var ends []*os.File
	kind := backend.LinkStream
	switch {
	case n.Type == "bridge":
		kind = backend.LinkTap
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
	case w.overlay != nil:
		if err := w.overlay.wire(w, &ends); err != nil {
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
		w.links[i] = []backend.Link{{Kind: kind, MAC: a.MAC.String(), MTU: n.MTU}}
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
	case i < len(w.addrs) && !w.addrs[i].IP.IsValid():
		return ""
	case i < len(w.addrs):
		return w.addrs[i].Prefix.String()
	case len(w.links[i]) > 0:
		return backend.UserGuest.Masked().String()
	}
	return ""
}

// hosts are the lines of the VMs' /etc/hosts: the VMs, and the host by its own name.
func (w *wiring) hosts(vms []string, hostName string) []guest.HostEntry {
	var list []guest.HostEntry
	if w.overlay != nil {
		for _, h := range w.overlay.addrs {
			for _, a := range h {
				list = append(list, guest.HostEntry{Addr: a.IP, Names: []string{a.Name}})
			}
		}
		vms = nil
	}
	for i, name := range vms {
		list = append(list, guest.HostEntry{Addr: w.ip(i), Names: []string{name}})
	}
	if w.uplink {
		names := []string{"nearmetal-host"}
		if hostName != "" {
			names = append(names, hostName)
		}
		list = append(list, guest.HostEntry{Addr: backend.UserHost, Names: names})
	}
	return list
}

// peers are the names of all VMs that a VM may reach; names are those of this host.
func (w *wiring) peers(names []string) []string {
	if w.overlay == nil {
		return names
	}
	all, _ := w.overlay.names()
	return all
}

// ip returns the address of VM number i: on the VMs' network; of a VM that is alone, that on
// its uplink, or its loopback.
func (w *wiring) ip(i int) netip.Addr {
	switch {
	case i < len(w.addrs):
		return w.addrs[i].IP
	case len(w.links[i]) > 0:
		return backend.UserGuest.Addr()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// handedOver drops our copies of what the VMs have got.
func (w *wiring) handedOver() {
	for i := range w.files {
		closeAll(w.files[i])
		w.files[i] = nil
	}
}

// again makes the links of VM number i ready for its next process: its user network anew, and without what was sent
// to it meanwhile, of which its last process may have read a part.
func (w *wiring) again(i int) error {
	files := w.files[i]
	if w.ports != nil {
		f, card, host, err := network.NewFilter(w.ports, backend.UserGuest)
		if err != nil {
			return err
		}
		w.filters[i].Close()
		w.filters[i] = f
		n := len(files) - 2 // behind that of the VMs' network
		closeAll(files[n:])
		files = append(files[:n:n], card, host)
		w.files[i] = files
	}
	if len(w.links[i]) > 0 && w.links[i][0].Kind == backend.LinkStream && i < len(w.addrs) {
		return network.Drain(files[0])
	}
	return nil
}

func (w *wiring) close() {
	w.handedOver()
	w.overlay.close()
	if w.sw != nil {
		w.sw.Close()
	}
	for _, f := range w.filters {
		f.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
