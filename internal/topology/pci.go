package topology

import (
	"path"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

var (
	pciAddress = lazyregexp.New(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
	pciRoot    = lazyregexp.New(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
)

// ValidAddress reports whether s is the address of a PCI function: 0000:41:00.0.
func ValidAddress(s string) bool { return pciAddress().MatchString(s) }

// readPCI reads the PCI functions. A host without PCI is not an error.
func readPCI(t tree, h *Host) {
	const dir = "sys/bus/pci/devices"
	names, err := t.list(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		if !ValidAddress(name) {
			continue
		}
		if len(h.Devices) >= MaxDevices {
			h.note("more than %d PCI functions: the rest left out", MaxDevices)
			break
		}
		h.Devices = append(h.Devices, readDevice(t, h, dir+"/"+name, name))
	}
	sort.Slice(h.Devices, func(i, j int) bool { return h.Devices[i].Address < h.Devices[j].Address })
}

func readDevice(t tree, h *Host, dir, address string) Device {
	d := Device{Address: address, Node: -1, Group: -1}
	hex := func(name string, bits int) int {
		s, _ := t.read(dir+"/"+name, 32)
		n, _ := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(s), "0x"), 16, bits)
		return int(n)
	}
	d.Class, d.VendorID, d.DeviceID = hex("class", 24), hex("vendor", 16), hex("device", 16)
	if n, ok := number(t, dir+"/numa_node"); ok && n >= 0 {
		if h.NodeIndex(n) >= 0 {
			d.Node = n
		} else {
			h.note("%s says node %d, which there is not: taken as of no node", address, n)
		}
	}
	if p, err := t.resolve(dir + "/driver"); err == nil {
		d.Driver = printable(path.Base(p))
	}
	if p, err := t.resolve(dir + "/iommu_group"); err == nil {
		if n, err := strconv.Atoi(path.Base(p)); err == nil && n >= 0 {
			d.Group = n
		}
	}
	if p, err := t.resolve(dir + "/physfn"); err == nil && ValidAddress(path.Base(p)) {
		d.PF = path.Base(p)
	}
	if n, ok := number(t, dir+"/sriov_totalvfs"); ok && n > 0 && n <= 65535 {
		d.TotalVFs = n
		made, _ := number(t, dir+"/sriov_numvfs")
		for i := 0; i < min(made, n); i++ {
			p, err := t.resolve(dir + "/virtfn" + strconv.Itoa(i))
			if err == nil && ValidAddress(path.Base(p)) {
				d.VFs = append(d.VFs, path.Base(p))
			}
		}
	}
	d.Net, d.RDMA = children(t, dir+"/net"), children(t, dir+"/infiniband")
	if p, err := t.resolve(dir); err == nil {
		for _, part := range strings.Split(path.Dir(p), "/") {
			switch {
			case pciRoot().MatchString(part):
				d.Root = part
			case d.Root != "" && ValidAddress(part):
				d.Bridges = append(d.Bridges, part)
			}
		}
	}
	s, _ := t.read(dir+"/resource", 4096)
	d.BARs = bars(s)
	return d
}

// children returns a bounded number of names in a directory, or none if it does not exist.
func children(t tree, dir string) []string {
	names, err := t.list(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		if validName(n) && len(out) < 64 {
			out = append(out, n)
		}
	}
	return out
}

// bars parses the sizes of the memory windows (BAR 0 to 5) in bytes from a "resource" attribute: lines "start end
// flags", with flags as in linux/ioport.h.
func bars(s string) []uint64 {
	const ioresourceMem = 0x200
	var out []uint64
	for i, line := range strings.Split(s, "\n") {
		f := strings.Fields(line)
		if i > 5 || len(f) != 3 {
			break
		}
		start, err1 := strconv.ParseUint(f[0], 0, 64)
		end, err2 := strconv.ParseUint(f[1], 0, 64)
		flags, err3 := strconv.ParseUint(f[2], 0, 64)
		if err1 == nil && err2 == nil && err3 == nil && flags&ioresourceMem != 0 && end > start && end-start < 1<<52 {
			out = append(out, end-start+1)
		}
	}
	return out
}
