package check

import (
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/topology"
)

const pciDir = "/sys/bus/pci/devices/"

// pciDevice is a PCI function with the properties that the rows use.
type pciDevice struct {
	address  string // 0000:41:00.0
	class    uint64 // 24 bits
	vendor   string // 0x15b3
	driver   string // bound, or ""
	resource string
	vf       bool // an SR-IOV virtual function
	total    int  // number of VFs that it supports; 0: none
	net      []string
	rdma     []string
}

// dir returns the device's directory.
func (d *pciDevice) dir() string { return pciDir + d.address + "/" }

func (d *pciDevice) bridge() bool { return d.class>>16 == 0x06 }

// network reports whether it is a network card or an InfiniBand adapter, the devices that MPI may use (PCI class
// codes 02 and 0c06).
func (d *pciDevice) network() bool { return d.class>>16 == 0x02 || d.class>>8 == 0x0c06 }

// virtual reports whether QEMU emulates the device (Red Hat's vendor IDs).
func (d *pciDevice) virtual() bool { return d.vendor == "0x1af4" || d.vendor == "0x1b36" }

// devices returns the PCI functions by address.
func (f *facts) devices() []*pciDevice {
	if f.pciDone {
		return f.pci
	}
	f.pciDone = true
	for _, name := range f.list(pciDir) {
		if !topology.ValidAddress(name) || len(f.pci) >= topology.MaxDevices {
			continue
		}
		d := &pciDevice{address: name}
		dir := d.dir()
		d.class, _ = hex(f.line(dir + "class"))
		d.vendor = f.line(dir + "vendor")
		d.resource, _ = f.read(dir + "resource")
		for _, entry := range f.list(dir) {
			switch entry {
			case "driver":
				d.driver = printable(f.link(dir + "driver"))
			case "physfn":
				d.vf = true
			case "sriov_totalvfs":
				if n, ok := f.number(dir + entry); ok && n > 0 && n < 65536 {
					d.total = int(n)
				}
			case "net":
				d.net = names(f.list(dir + "net"))
			case "infiniband":
				d.rdma = names(f.list(dir + "infiniband"))
			}
		}
		f.pci = append(f.pci, d)
	}
	return f.pci
}

var deviceName = lazyregexp.New(`^[A-Za-z0-9_.:@-]{1,64}$`)

// names keeps the valid names of devices, because they become parts of paths and commands.
func names(list []string) []string {
	var good []string
	for _, n := range list {
		if deviceName().MatchString(n) && n != "." && n != ".." && n[0] != '-' {
			good = append(good, n)
		}
	}
	return good
}
