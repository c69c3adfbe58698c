// Package wiring joins the VMs of a cluster: it creates their cards and addresses, the switch of this host, and the
// overlay between the hosts of a job. It also checks whether VMs reach each other over their devices.
package wiring

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

// Net is the VMs' network: the cards of each VM, and the open files behind them for the backend.
type Net struct {
	// Late: the VMs' addresses are known only when they run (backend.Late).
	Late bool
	// Uplink: each VM has a card on the user network.
	Uplink bool
	// Ports are the ports of this host that the VMs can reach; nil: all.
	Ports *network.HostPorts
	// Joined joins the VMs to those of other hosts; nil: this host runs all of them.
	Joined *Joined

	addrs   []network.Address
	links   [][]backend.Link
	filters []*network.Filter // one before each VM's user network
	config  [][]guest.Link
	files   [][]*os.File
	sw      *network.Switch // nil: no switch
}

// Request describes the network to make.
type Request struct {
	// Network is the network section of the cluster file.
	Network spec.Network
	// ID makes the names and MAC addresses of this cluster's network unique.
	ID [16]byte
	// Names are the names of this host's VMs.
	Names []string
	// Uplink: the VMs get a card on the user network, by which they reach Ports of this host (nil: all).
	Uplink bool
	Ports  *network.HostPorts
	// Journal records objects that have a name on the host.
	Journal *journal.Journal
	// Overlay are the hosts whose VMs share one network with these; nil: only this host.
	Overlay *Overlay
}

// Make makes the network of the VMs. The caller closes it.
func Make(r Request) (*Net, error) {
	n, names, overlay := r.Network, r.Names, r.Overlay
	w := &Net{
		Uplink: r.Uplink, Ports: r.Ports,
		links:  make([][]backend.Link, len(names)),
		config: make([][]guest.Link, len(names)),
		files:  make([][]*os.File, len(names)),
	}
	if n.Type == "none" || n.Type == "bridge" {
		overlay = nil // the site's bridge joins the hosts
	}
	if n.Type != "none" && (len(names) > 1 || n.Type == "bridge" || overlay != nil) {
		if err := w.number(r, overlay); err != nil {
			return nil, err
		}
		if err := w.join(n, r.ID, r.Journal); err != nil {
			w.Close()
			return nil, err
		}
	}
	if r.Uplink {
		if err := w.addUplinks(r); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}

// number assigns addresses to the VMs, including those of the overlay's other hosts.
func (w *Net) number(r Request, overlay *Overlay) error {
	subnet, err := netip.ParsePrefix(r.Network.Subnet)
	if err != nil {
		return fmt.Errorf("network.subnet: %w", err)
	}
	all, first, macs := r.Names, 0, r.ID
	if overlay != nil {
		all, first = overlay.names()
		macs = [16]byte(network.Derive(overlay.Secret, "network")[:16])
		w.Joined = &Joined{Overlay: overlay}
	}
	addrs, err := network.Addresses(macs, subnet, all)
	if err != nil {
		return err
	}
	w.addrs = addrs[first : first+len(r.Names)]
	if overlay != nil {
		at := 0
		for _, h := range overlay.Hosts {
			w.Joined.addrs = append(w.Joined.addrs, addrs[at:at+len(h.VMs)])
			at += len(h.VMs)
		}
	}
	return nil
}

// addUplinks adds a card on the user network to each VM, behind a filter unless all ports are open.
func (w *Net) addUplinks(r Request) error {
	for i := range r.Names {
		mac := fmt.Sprintf("56:%02x:%02x:%02x:%02x:%02x", r.ID[3], r.ID[4], r.ID[5], byte(i>>8), byte(i))
		w.links[i] = append(w.links[i], backend.Link{Kind: backend.LinkUser, MAC: mac, Filtered: r.Ports != nil})
		if r.Ports != nil {
			f, card, host, err := network.NewFilter(r.Ports, backend.UserGuest)
			if err != nil {
				return err
			}
			w.filters = append(w.filters, f)
			w.files[i] = append(w.files[i], card, host)
		}
		w.config[i] = append(w.config[i], guest.Link{Name: "eth1", MAC: mac, Address: backend.UserGuest, Gateway: backend.UserHost})
	}
	return nil
}

// Links returns the cards of VM number i.
func (w *Net) Links(i int) []backend.Link { return w.links[i] }

// Files returns the open files behind the cards of VM number i. The network still owns them.
func (w *Net) Files(i int) []*os.File { return w.files[i] }

// Config returns the configuration of the cards for VM number i.
func (w *Net) Config(i int) []guest.Link { return w.config[i] }

// join connects the VMs: by a direct link for two, a switch for more, or taps.
func (w *Net) join(n spec.Network, id [16]byte, j *journal.Journal) error {
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
	case w.Joined != nil:
		if err := w.Joined.wire(w, &ends); err != nil {
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

// Subnet returns the subnet of IP(i); "" for the loopback.
func (w *Net) Subnet(i int) string {
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

// HostEntries returns the lines of the VMs' /etc/hosts: the VMs, and the host by its own name.
func (w *Net) HostEntries(vms []string, hostName string) []guest.HostEntry {
	var list []guest.HostEntry
	if w.Joined != nil {
		for _, h := range w.Joined.addrs {
			for _, a := range h {
				list = append(list, guest.HostEntry{Addr: a.IP, Names: []string{a.Name}})
			}
		}
		vms = nil
	}
	for i, name := range vms {
		list = append(list, guest.HostEntry{Addr: w.IP(i), Names: []string{name}})
	}
	if w.Uplink {
		names := []string{"nearmetal-host"}
		if hostName != "" {
			names = append(names, hostName)
		}
		list = append(list, guest.HostEntry{Addr: backend.UserHost, Names: names})
	}
	return list
}

// Peers returns the names of all VMs that a VM may reach; names are those of this host.
func (w *Net) Peers(names []string) []string {
	if w.Joined == nil {
		return names
	}
	all, _ := w.Joined.names()
	return all
}

// IP returns the address of VM number i: on the VMs' network, or for a single VM its uplink's address or its
// loopback.
func (w *Net) IP(i int) netip.Addr {
	switch {
	case i < len(w.addrs):
		return w.addrs[i].IP
	case len(w.links[i]) > 0:
		return backend.UserGuest.Addr()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// HandedOver closes this process's copies of the files that the VMs have received.
func (w *Net) HandedOver() {
	for i := range w.files {
		closeAll(w.files[i])
		w.files[i] = nil
	}
}

// Again prepares the links of VM number i for its next process: it replaces the user network and drops the data sent
// to the VM in the meantime, because the last process may have read part of a frame.
func (w *Net) Again(i int) error {
	files := w.files[i]
	if w.Ports != nil {
		f, card, host, err := network.NewFilter(w.Ports, backend.UserGuest)
		if err != nil {
			return err
		}
		w.filters[i].Close()
		w.filters[i] = f
		n := len(files) - 2 // the user network's files follow that of the VMs' network
		closeAll(files[n:])
		files = append(files[:n:n], card, host)
		w.files[i] = files
	}
	if len(w.links[i]) > 0 && w.links[i][0].Kind == backend.LinkStream && i < len(w.addrs) {
		return network.Drain(files[0])
	}
	return nil
}

func (w *Net) Close() {
	w.HandedOver()
	w.Joined.close()
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
