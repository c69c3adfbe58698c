package check

import (
	"context"
	"slices"
	"strings"

	"nearmetal/internal/topology"
)

const ibDir = "/sys/class/infiniband/"

// rdmaDevice is an RDMA device of the kernel.
type rdmaDevice struct {
	name  string // mlx5_0
	pci   string // address, "" for software devices
	ports []rdmaPort
}

// rdmaPort is a port of an RDMA device, numbered from 1.
type rdmaPort struct {
	dir   string
	name  string // mlx5_0/1
	state string // "4: ACTIVE"
	rate  string // "100 Gb/sec (4X EDR)"
	layer string // InfiniBand or Ethernet
	net   string // the network interface of an Ethernet port, or ""
}

func (d *rdmaDevice) dir() string { return ibDir + d.name + "/" }

// rdmaDevices returns the RDMA devices by name.
func (f *facts) rdmaDevices() []*rdmaDevice {
	if f.rdmaDone {
		return f.rdma
	}
	f.rdmaDone = true
	const most = 1024
	for _, name := range names(f.list(ibDir)) {
		if len(f.rdma) >= most {
			break
		}
		d := &rdmaDevice{name: name}
		if a := f.link(d.dir() + "device"); topology.ValidAddress(a) {
			d.pci = a
		}
		for _, p := range f.devices() {
			if d.pci == "" && slices.Contains(p.rdma, name) {
				d.pci = p.address
			}
		}
		for _, n := range f.numbered(d.dir()+"ports", "") {
			p := rdmaPort{dir: d.dir() + "ports/" + n + "/", name: name + "/" + n}
			p.state, p.rate, p.layer = f.line(p.dir+"state"), f.line(p.dir+"rate"), f.line(p.dir+"link_layer")
			if p.layer == "Ethernet" {
				if list := names([]string{f.line(p.dir + "gid_attrs/ndevs/0")}); len(list) == 1 {
					p.net = list[0]
				} else if list := names(f.list(d.dir() + "device/net")); len(list) > 0 {
					p.net = list[0]
				}
			}
			d.ports = append(d.ports, p)
		}
		f.rdma = append(f.rdma, d)
	}
	return f.rdma
}

// rocePorts returns the ports that are Ethernet.
func (f *facts) rocePorts() []rdmaPort {
	var list []rdmaPort
	for _, d := range f.rdmaDevices() {
		for _, p := range d.ports {
			if p.layer == "Ethernet" {
				list = append(list, p)
			}
		}
	}
	return list
}

// onInfiniBand reports whether a card's first port is InfiniBand: by its RDMA device, else by its PCI class.
func (f *facts) onInfiniBand(d *pciDevice) bool {
	for _, r := range f.rdmaDevices() {
		if r.pci == d.address && len(r.ports) > 0 {
			return r.ports[0].layer == "InfiniBand"
		}
	}
	return d.class>>8 == 0x0207 || d.class>>8 == 0x0c06
}

// cards returns the PCI functions that MPI's network may use: those with an RDMA device, and network cards that
// support VFs. VFs themselves are included only in a VM, where nothing distinguishes a VF from a card.
func (f *facts) cards() []*pciDevice {
	var list []*pciDevice
	rdma := map[string]bool{}
	for _, d := range f.rdmaDevices() {
		rdma[d.pci] = true
	}
	for _, d := range f.devices() {
		if !d.vf && (rdma[d.address] || len(d.rdma) > 0 || d.network() && (d.total > 0 || d.class>>8 == 0x0207)) {
			list = append(list, d)
		}
	}
	return list
}

// perCard returns the finding of a row that examines each card.
func perCard(look func(*facts, *pciDevice) Item) func(*facts) finding {
	return perCardOr(noCard(nil), look)
}

// perCardOr is perCard, with the finding none if no card has an item.
func perCardOr(none finding, look func(*facts, *pciDevice) Item) func(*facts) finding {
	return func(f *facts) finding {
		var items []Item
		for _, d := range f.cards() {
			if i := look(f, d); i.Status != "" {
				i.Name = d.label()
				items = append(items, i)
			}
		}
		return worst(items, none)
	}
}

// perPort returns the finding of a row that examines each port of RDMA devices.
func perPort(look func(*facts, rdmaPort) Item) func(*facts) finding {
	return func(f *facts) finding {
		var items []Item
		for _, d := range f.rdmaDevices() {
			for _, p := range d.ports {
				if i := look(f, p); i.Status != "" {
					i.Name = p.name
					items = append(items, i)
				}
			}
		}
		return worst(items, noCard(f))
	}
}

// label returns a device's name for people: its RDMA or network name and its address.
func (d *pciDevice) label() string {
	switch {
	case len(d.rdma) > 0:
		return d.rdma[0] + " (" + d.address + ")"
	case len(d.net) > 0:
		return d.net[0] + " (" + d.address + ")"
	}
	return d.address
}

func noCard(f *facts) finding { return found(NotApplicable, "no RDMA device") }

// ActiveRDMA returns this host's RDMA devices with a port that is up.
func ActiveRDMA() []string {
	f, err := newFacts(context.Background(), Options{})
	if err != nil {
		return nil
	}
	defer f.close()
	var list []string
	for _, d := range f.rdmaDevices() {
		for _, p := range d.ports {
			if strings.HasSuffix(p.state, "ACTIVE") {
				list = append(list, d.name)
				break
			}
		}
	}
	return list
}
