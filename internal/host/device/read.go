package device

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// read returns all that is known of a function. Unreadable properties are omitted.
func (h *Host) read(at string) *Function {
	f := &Function{Address: at, Kind: Plain, Node: -1, Group: -1, Index: -1, Driver: h.target(h.dev(at, "driver"))}
	f.Vendor, _ = h.number(h.dev(at, "vendor"))
	f.Device, _ = h.number(h.dev(at, "device"))
	f.Class, _ = h.number(h.dev(at, "class"))
	if n, ok := h.number(h.dev(at, "numa_node")); ok && n >= 0 {
		f.Node = n
	}
	h.readGroup(f)
	if pf := h.target(h.dev(at, "physfn")); address().MatchString(pf) {
		f.Kind, f.PF = VF, pf
		f.Index = h.index(pf, at)
	} else if n, ok := h.number(h.dev(at, "sriov_totalvfs")); ok && n > 0 && n <= 65535 {
		f.Kind, f.TotalVFs = PF, n
		f.VFs = h.vfs(at)
	}
	f.Net, f.RDMA = h.interfaces(at, "net"), h.interfaces(at, "infiniband")
	h.readLink(f)
	h.readVFIO(f)
	return f
}

// vfs returns a PF's virtual functions by their numbers.
func (h *Host) vfs(pf string) []string {
	made, _ := h.number(h.dev(pf, "sriov_numvfs"))
	var list []string
	for i := 0; i < made && i < 65536; i++ {
		if vf := h.target(h.dev(pf, "virtfn"+strconv.Itoa(i))); address().MatchString(vf) {
			list = append(list, vf)
		}
	}
	return list
}

// index returns the number of a VF, -1 if its PF does not list it.
func (h *Host) index(pf, vf string) int {
	names, _ := h.names(h.dev(pf))
	for _, n := range names {
		if i, ok := strings.CutPrefix(n, "virtfn"); ok && h.target(h.dev(pf, n)) == vf {
			if k, err := strconv.Atoi(i); err == nil {
				return k
			}
		}
	}
	return -1
}

// interfaces returns the names of a function's devices of a class.
func (h *Host) interfaces(at, class string) []string {
	names, _ := h.names(h.dev(at, class))
	var list []string
	for _, n := range names {
		if name().MatchString(n) && len(list) < 64 {
			list = append(list, n)
		}
	}
	return list
}

// ownInterface returns the first network interface of a function that is the function's own; "" if it has none. A
// physical function sets its VFs by it. In switchdev mode it also has representors of VFs, whose phys_port_name is
// pf0vf1, or c1pf0vf1 on a SmartNIC. Its own interface has no such name, or p0.
func (h *Host) ownInterface(at string) string {
	for _, n := range h.interfaces(at, "net") {
		if !strings.Contains(h.attr(h.dev(at, "net", n, "phys_port_name")), "pf") {
			return n
		}
	}
	return ""
}

func (h *Host) readGroup(f *Function) {
	g, err := strconv.Atoi(h.target(h.dev(f.Address, "iommu_group")))
	if err != nil || g < 0 {
		return
	}
	f.Group = g
	names, _ := h.names(h.dev(f.Address, "iommu_group", "devices"))
	for _, n := range names {
		if n == f.Address || !address().MatchString(n) {
			continue
		}
		if class, ok := h.number(h.dev(n, "class")); ok && !bridge(class) {
			f.Others = append(f.Others, n)
		}
	}
}

// readLink fills in the properties of the link from the RDMA device, or from the network interface. Both forms of a
// rate are the kernel's: "100 Gb/sec (4X EDR)" and a number of Mbit/s.
func (h *Host) readLink(f *Function) {
	if len(f.RDMA) > 0 {
		dir := h.dev(f.Address, "infiniband", f.RDMA[0])
		f.GUID = h.attr(filepath.Join(dir, "node_guid"))
		f.Firmware, f.PSID = h.attr(filepath.Join(dir, "fw_ver")), h.attr(filepath.Join(dir, "board_id"))
		f.Link = strings.ToLower(h.attr(filepath.Join(dir, "ports/1/link_layer")))
		f.Mbps = gbps(h.attr(filepath.Join(dir, "ports/1/rate")))
		f.Up = strings.HasSuffix(h.attr(filepath.Join(dir, "ports/1/state")), "ACTIVE")
	}
	if own := h.ownInterface(f.Address); own != "" {
		dir := h.dev(f.Address, "net", own)
		f.MAC = h.attr(filepath.Join(dir, "address"))
		if n, ok := h.number(filepath.Join(dir, "speed")); ok && n > 0 && f.Mbps == 0 {
			f.Mbps = n
		}
		f.Up = f.Up || h.attr(filepath.Join(dir, "carrier")) == "1"
		if f.Link == "" {
			// ARPHRD_ETHER and ARPHRD_INFINIBAND of if_arp.h
			f.Link = map[string]string{"1": "ethernet", "32": "infiniband"}[h.attr(filepath.Join(dir, "type"))]
		}
		if f.Firmware == "" && h.root == "" {
			f.Firmware = driverFirmware(own)
		}
	}
	if f.Link == "" && f.PF != "" {
		pf := &Function{Address: f.PF, Net: h.interfaces(f.PF, "net"), RDMA: h.interfaces(f.PF, "infiniband")}
		pf.Class, _ = h.number(h.dev(f.PF, "class"))
		h.readLink(pf)
		f.Link = pf.Link
	}
	if f.Link == "" {
		switch f.Class >> 8 {
		case 0x0200:
			f.Link = "ethernet"
		case 0x0207, 0x0c06:
			f.Link = "infiniband"
		}
	}
}

// gbps reads "100 Gb/sec (4X EDR)" as Mbit/s.
func gbps(s string) int {
	word, rest, _ := strings.Cut(s, " ")
	n, err := strconv.ParseFloat(word, 64)
	if err != nil || n <= 0 || n > 1e5 || !strings.HasPrefix(rest, "Gb/sec") {
		return 0
	}
	return int(n * 1000)
}

// readVFIO fills in the group's file and its owner.
func (h *Host) readVFIO(f *Function) {
	if f.Driver != vfioDriver || f.Group < 0 {
		return
	}
	f.VFIO = groupFile(f.Group)
	st, err := os.Stat(h.path(f.VFIO))
	if err != nil {
		return
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		f.Owner = userName(int(s.Uid))
	}
}

// groupFile returns the device file of an IOMMU group.
func groupFile(group int) string { return "/dev/vfio/" + strconv.Itoa(group) }

// userName returns a user's name, or the number of a user without a name.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}
