package topology

import (
	"fmt"
	"sort"
	"strings"

	"nearmetal/internal/words"
)

// Text describes a host for people, in ASCII, with one line for each part.
func (h *Host) Text() string {
	var b strings.Builder
	pkgs, cores, cpus := h.Counts()
	fmt.Fprintf(&b, "%s", h.Name)
	if h.Model != "" {
		fmt.Fprintf(&b, ": %s", h.Model)
	}
	var mem uint64
	for i := range h.Nodes {
		mem += h.Nodes[i].MemoryBytes
	}
	fmt.Fprintf(&b, "\n%d %s, %d NUMA %s, %d cores, %d CPUs, %s", pkgs, words.Plural(pkgs, "package", "packages"), len(h.Nodes), words.Plural(len(h.Nodes), "node", "nodes"), cores, cpus, words.Bytes(mem))
	if h.PhysBits > 0 {
		fmt.Fprintf(&b, ", %d-bit physical addresses", h.PhysBits)
	}
	b.WriteByte('\n')
	for _, s := range h.System {
		fmt.Fprintf(&b, "%s\n", s)
	}
	for k, name := range h.Kinds {
		fmt.Fprintf(&b, "%s: CPUs %s\n", name, FormatList(h.KindCPUs(k)))
	}
	if n := h.HugePageBytes; n > 0 && n != 2<<20 {
		fmt.Fprintf(&b, "default huge page: %s\n", words.Bytes(n))
	}
	var offline, isolated, barred, nodeless []int
	for i := range h.CPUs {
		switch c := &h.CPUs[i]; {
		case !c.Online:
			offline = append(offline, c.ID)
		case !c.Allowed:
			barred = append(barred, c.ID)
		case c.Isolated:
			isolated = append(isolated, c.ID)
		}
		if c := &h.CPUs[i]; c.Online && c.Node < 0 {
			nodeless = append(nodeless, c.ID)
		}
	}
	for _, s := range []struct {
		what string
		ids  []int
	}{{"offline CPUs", offline}, {"isolated CPUs", isolated}, {"CPUs that this job does not have", barred}, {"CPUs on no node", nodeless}} {
		if len(s.ids) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", s.what, FormatList(s.ids))
		}
	}
	for _, s := range h.Limits.From {
		fmt.Fprintf(&b, "limit: %s\n", s)
	}
	for i := range h.Nodes {
		h.nodeText(&b, &h.Nodes[i])
	}
	if len(h.Nodes) > 1 {
		b.WriteString("\ndistances:\n      ")
		for j := range h.Nodes {
			fmt.Fprintf(&b, "%4d", h.Nodes[j].ID)
		}
		b.WriteByte('\n')
		for i := range h.Nodes {
			fmt.Fprintf(&b, "  %4d", h.Nodes[i].ID)
			for _, d := range h.Nodes[i].Distances {
				fmt.Fprintf(&b, "%4d", d)
			}
			b.WriteByte('\n')
		}
	}
	if devices := h.shown(); len(devices) > 0 {
		b.WriteString("\ndevices:\n")
		for _, d := range devices {
			fmt.Fprintf(&b, "  %s\n", d.Text())
		}
	}
	if len(h.Repairs) > 0 {
		b.WriteString("\nrepaired:\n")
		for _, s := range h.Repairs {
			fmt.Fprintf(&b, "  %s\n", s)
		}
	}
	return b.String()
}

// nodeText writes a node, its packages, caches and cores.
func (h *Host) nodeText(b *strings.Builder, n *Node) {
	if n.MemoryBytes > 0 {
		fmt.Fprintf(b, "\nnode %d: %s, %s available", n.ID, words.Bytes(n.MemoryBytes), words.Bytes(n.AvailableBytes))
		if n.GPU != "" {
			fmt.Fprintf(b, ", memory of GPU %s: VMs get none of it", n.GPU)
		}
	} else {
		fmt.Fprintf(b, "\nnode %d: no memory", n.ID)
	}
	for _, p := range n.Pools {
		if p.Total > 0 {
			fmt.Fprintf(b, ", %d of %d pages of %s free", p.Free, p.Total, words.Bytes(p.PageBytes))
		}
	}
	if n.ReadMBps > 0 {
		fmt.Fprintf(b, ", reads %d MB/s", n.ReadMBps)
	}
	if n.ReadNs > 0 {
		fmt.Fprintf(b, " in %d ns", n.ReadNs)
	}
	if !n.Allowed {
		b.WriteString(", not for this job")
	}
	if len(n.CPUs) == 0 {
		b.WriteString(", no CPUs")
	}
	b.WriteByte('\n')
	type place struct{ pkg, die, l3 int }
	cores := map[place]map[int]bool{}
	cpus := map[place][]int{}
	var order []place
	for _, id := range n.CPUs {
		c := h.CPU(id)
		p := place{c.Package, c.Die, c.L3}
		if cores[p] == nil {
			cores[p] = map[int]bool{}
			order = append(order, p)
		}
		cores[p][c.Core] = true
		cpus[p] = append(cpus[p], id)
	}
	sort.Slice(order, func(i, j int) bool {
		a, b := order[i], order[j]
		return a.pkg < b.pkg || a.pkg == b.pkg && (a.die < b.die || a.die == b.die && a.l3 < b.l3)
	})
	for _, p := range order {
		fmt.Fprintf(b, "  package %d", p.pkg)
		if h.dies() > 1 {
			fmt.Fprintf(b, ", die %d", p.die)
		}
		if p.l3 >= 0 {
			fmt.Fprintf(b, ", L3 %d (%s", p.l3, words.Bytes(h.l3Size(cpus[p][0])))
			if h.l3Wide(cpus[p][0]) {
				b.WriteString(", one with other nodes")
			}
			b.WriteByte(')')
		}
		fmt.Fprintf(b, ": %d %s, CPUs %s\n", len(cores[p]), words.Plural(len(cores[p]), "core", "cores"), FormatList(cpus[p]))
	}
}

// dies returns the largest number of dies in one package.
func (h *Host) dies() int {
	per := map[int]map[int]bool{}
	most := 0
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if !c.Online {
			continue
		}
		if per[c.Package] == nil {
			per[c.Package] = map[int]bool{}
		}
		per[c.Package][c.Die] = true
		most = max(most, len(per[c.Package]))
	}
	return most
}

// l3Size returns the size of a CPU's last-level cache.
func (h *Host) l3Size(cpu int) uint64 {
	if i := h.LastCache(cpu); i >= 0 {
		return h.Caches[i].SizeBytes
	}
	return 0
}

// LastCache returns the index in h.Caches of a CPU's last-level cache (level 3 or above), or -1.
func (h *Host) LastCache(cpu int) int {
	best := -1
	for i := range h.Caches {
		c := &h.Caches[i]
		if c.Level >= 3 && (best < 0 || c.Level > h.Caches[best].Level) && contains(c.CPUs, cpu) {
			best = i
		}
	}
	return best
}

// l3Wide reports whether a CPU's last-level cache covers several nodes.
func (h *Host) l3Wide(cpu int) bool {
	i := h.LastCache(cpu)
	if i < 0 {
		return false
	}
	for _, id := range h.Caches[i].CPUs {
		if h.CPU(id).Node != h.CPU(cpu).Node {
			return true
		}
	}
	return false
}

// shown returns the devices of interest: those with a network or RDMA name, those with VFs, VFs that are free for VMs,
// and accelerators.
func (h *Host) shown() []*Device {
	var out []*Device
	for i := range h.Devices {
		d := &h.Devices[i]
		base := d.Class >> 16
		if len(d.Net)+len(d.RDMA) > 0 || d.TotalVFs > 0 || d.IsVF() || base == 0x02 || base == 0x0c && d.Class>>8 == 0x0c06 || d.Class>>8 == 0x0302 || base == 0x12 {
			out = append(out, d)
		}
	}
	return out
}

// Text describes a device on one line.
func (d *Device) Text() string {
	s := d.Address
	if d.IsVF() {
		s += " VF of " + d.PF
	}
	for _, n := range append(append([]string(nil), d.RDMA...), d.Net...) {
		s += " " + n
	}
	s += fmt.Sprintf(" [%04x:%04x]", d.VendorID, d.DeviceID)
	if d.Node >= 0 {
		s += fmt.Sprintf(" on node %d", d.Node)
	} else {
		s += " on a node that the firmware does not say"
	}
	if d.Root != "" {
		s += ", root " + strings.TrimPrefix(d.Root, "pci")
	}
	if d.Group >= 0 {
		s += fmt.Sprintf(", IOMMU group %d", d.Group)
	}
	if d.Driver != "" {
		s += ", driver " + d.Driver
	}
	if d.TotalVFs > 0 {
		s += fmt.Sprintf(", %d of %d VFs", len(d.VFs), d.TotalVFs)
	}
	return s
}
