package machine

import (
	"fmt"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// writer collects files.
type writer struct{ files []File }

func (w *writer) put(name, format string, a ...any) {
	w.files = append(w.files, File{Path: name, Content: fmt.Sprintf(format, a...) + "\n"})
}

func (w *writer) link(name, target string) {
	w.files = append(w.files, File{Path: name, Link: target})
}

// set writes a set of CPUs as mask and as list.
func (w *writer) set(mask, list string, ids []int, width int) {
	w.put(mask, "%s", formatMask(ids, width))
	w.put(list, "%s", FormatList(ids))
}

func formatMask(ids []int, width int) string {
	words := make([]uint32, (width+31)/32)
	for _, id := range ids {
		words[id/32] |= 1 << (id % 32)
	}
	s := make([]string, len(words))
	for i, w := range words {
		s[len(words)-1-i] = fmt.Sprintf("%08x", w)
	}
	return strings.Join(s, ",")
}

// FormatList writes ascending numbers in the kernel's list format.
func FormatList(n []int) string {
	var b strings.Builder
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(n[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(n[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Files returns the machine's files, sorted by path.
func (m *Machine) Files() []File {
	w := &writer{}
	all := m.cpus()
	var online []int
	for _, c := range all {
		if !slices.Contains(m.Offline, c.id) {
			online = append(online, c.id)
		}
	}
	// with returns the online CPUs for which f is true.
	with := func(f func(cpu) bool) []int {
		var ids []int
		for _, id := range online {
			if f(all[id]) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	n := len(all)
	const dir = "sys/devices/system/cpu"
	last := strconv.Itoa(n - 1)
	w.put(dir+"/online", "%s", FormatList(online))
	w.put(dir+"/offline", "%s", FormatList(m.Offline))
	w.put(dir+"/present", "0-%s", last)
	w.put(dir+"/possible", "0-%s", last)
	w.put(dir+"/isolated", "%s", FormatList(m.Isolated))
	for _, c := range all {
		d := fmt.Sprintf("%s/cpu%d", dir, c.id)
		on := slices.Contains(online, c.id)
		if !on {
			w.put(d+"/online", "0")
			continue
		}
		core := with(func(o cpu) bool { return o.core == c.core })
		pkg := with(func(o cpu) bool { return o.pkg == c.pkg })
		w.put(d+"/topology/core_cpus", "%s", formatMask(core, n))
		w.put(d+"/topology/package_cpus", "%s", formatMask(pkg, n))
		if m.DiesPer > 1 {
			w.put(d+"/topology/die_cpus", "%s", formatMask(with(func(o cpu) bool { return o.pkg == c.pkg && o.die == c.die }), n))
			w.put(d+"/topology/die_id", "%d", c.die)
		}
		w.put(d+"/topology/core_id", "%d", c.coreInPkg)
		w.put(d+"/topology/physical_package_id", "%d", c.pkg)
		index := 0
		cache := func(level int, kind string, kib int, ids []int) {
			if kib == 0 {
				return
			}
			x := fmt.Sprintf("%s/cache/index%d", d, index)
			index++
			w.put(x+"/level", "%d", level)
			w.put(x+"/type", "%s", kind)
			w.put(x+"/size", "%dK", kib)
			w.put(x+"/shared_cpu_map", "%s", formatMask(ids, n))
		}
		cache(1, "Data", m.L1, core)
		cache(1, "Instruction", m.L1, core)
		cache(2, "Unified", m.L2, core)
		if c.l3 >= 0 {
			cache(3, "Unified", m.L3Size, with(func(o cpu) bool { return o.l3 == c.l3 }))
		}
	}
	m.nodes(w, n, with)
	m.devices(w, n, with)
	m.proc(w, n, online, all)
	sort.Slice(w.files, func(i, j int) bool { return w.files[i].Path < w.files[j].Path })
	return w.files
}

// nodes writes sys/devices/system/node.
func (m *Machine) nodes(w *writer, width int, with func(func(cpu) bool) []int) {
	const dir = "sys/devices/system/node"
	cpuNodes := m.Packages * m.NodesPer
	count := cpuNodes + len(m.MemoryOnly)
	ids := make([]int, count)
	var withCPU, withMemory []int
	for i := range ids {
		ids[i] = i
		if i < cpuNodes {
			withCPU = append(withCPU, i)
		}
		if i >= cpuNodes || !slices.Contains(m.NoMemory, i) {
			withMemory = append(withMemory, i)
		}
	}
	w.put(dir+"/online", "%s", FormatList(ids))
	w.put(dir+"/possible", "%s", FormatList(ids))
	w.put(dir+"/has_cpu", "%s", FormatList(withCPU))
	w.put(dir+"/has_memory", "%s", FormatList(withMemory))
	for i := range ids {
		d := fmt.Sprintf("%s/node%d", dir, i)
		var cpus []int
		if i < cpuNodes {
			cpus = with(func(c cpu) bool { return c.node == i })
		}
		w.set(d+"/cpumap", d+"/cpulist", cpus, width)
		for _, c := range cpus {
			w.link(fmt.Sprintf("%s/cpu%d", d, c), fmt.Sprintf("../../cpu/cpu%d", c))
		}
		var row []string
		for j := range ids {
			row = append(row, strconv.Itoa(m.distance(i, j)))
		}
		w.put(d+"/distance", "%s", strings.Join(row, " "))
		total := m.MemoryMiB
		free := m.FreeMiB
		if i >= cpuNodes {
			x := m.MemoryOnly[i-cpuNodes]
			total, free = x.MemoryMiB, 0
			if x.BandwidthMBps > 0 {
				w.put(d+"/access0/initiators/read_bandwidth", "%d", x.BandwidthMBps)
				w.put(d+"/access0/initiators/read_latency", "%d", x.LatencyNs)
			}
		} else if slices.Contains(m.NoMemory, i) {
			total, free = 0, 0
		}
		if free == 0 {
			free = total * 96 / 100
		}
		huge := 0 // MiB
		for _, p := range m.Pools {
			pages, avail := p.Pages, p.Pages
			if p.Free != nil {
				avail = *p.Free
			}
			if len(p.Nodes) > 0 && !slices.Contains(p.Nodes, i) || total == 0 {
				pages, avail = 0, 0
			}
			h := fmt.Sprintf("%s/hugepages/hugepages-%dkB", d, p.PageKiB)
			w.put(h+"/nr_hugepages", "%d", pages)
			w.put(h+"/free_hugepages", "%d", avail)
			w.put(h+"/surplus_hugepages", "0")
			huge += pages * p.PageKiB / 1024
		}
		free = max(0, min(free, total-huge))
		var b strings.Builder
		for _, kv := range []struct {
			key string
			mib int
		}{{"MemTotal", total}, {"MemFree", free}, {"MemUsed", total - free}, {"Active(file)", 0}, {"Inactive(file)", 0}, {"SReclaimable", 0}} {
			fmt.Fprintf(&b, "Node %d %s: %d kB\n", i, kv.key, kv.mib*1024)
		}
		w.files = append(w.files, File{Path: d + "/meminfo", Content: b.String()})
	}
}

// distance returns one entry of the SLIT.
func (m *Machine) distance(i, j int) int {
	if i < len(m.Distances) && j < len(m.Distances[i]) {
		return m.Distances[i][j]
	}
	if i == j {
		return 10
	}
	if len(m.DistanceLevels) != 3 {
		return 20
	}
	p, q := i/m.NodesPer, j/m.NodesPer
	switch {
	case p == q:
		return m.DistanceLevels[0]
	case p/m.GroupPackages == q/m.GroupPackages:
		return m.DistanceLevels[1]
	}
	return m.DistanceLevels[2]
}

// devices writes sys/devices/pci*, sys/bus/pci and sys/class.
func (m *Machine) devices(w *writer, width int, with func(func(cpu) bool) []int) {
	ports := map[string]bool{}
	function := func(d *Device, at string, device int, driver string, group *int) {
		up := strings.Repeat("../", strings.Count(at, "/")+1)
		local := with(func(c cpu) bool { return c.node == d.Node })
		w.put(at+"/class", "%#06x", d.Class)
		w.put(at+"/vendor", "%#04x", d.Vendor)
		w.put(at+"/device", "%#04x", device)
		w.put(at+"/subsystem_vendor", "%#04x", d.Vendor)
		w.put(at+"/subsystem_device", "0x0001")
		w.put(at+"/revision", "0x00")
		w.put(at+"/numa_node", "%d", d.Node)
		w.set(at+"/local_cpus", at+"/local_cpulist", local, width)
		if driver != "" {
			w.put("sys/bus/pci/drivers/"+driver+"/uevent", "")
			w.link(at+"/driver", up+"sys/bus/pci/drivers/"+driver)
		}
		if group != nil {
			g := fmt.Sprintf("sys/kernel/iommu_groups/%d", *group)
			w.put(g+"/type", "DMA-FQ")
			w.link(at+"/iommu_group", up+g)
			w.link(g+"/devices/"+path.Base(at), "../../../../../"+at)
		}
		var b strings.Builder
		start := uint64(0x380000000000)
		for i := 0; i < 6; i++ {
			if i < len(d.BARKiB) {
				size := uint64(d.BARKiB[i]) << 10
				fmt.Fprintf(&b, "%#016x %#016x %#016x\n", start, start+size-1, 0x14220c)
				start += size
			} else {
				fmt.Fprintf(&b, "%#016x %#016x %#016x\n", 0, 0, 0)
			}
		}
		w.files = append(w.files, File{Path: at + "/resource", Content: b.String()})
		w.link("sys/bus/pci/devices/"+path.Base(at), "../../../../"+at)
	}
	for i := range m.Devices {
		d := &m.Devices[i]
		port := "sys/devices/" + d.Root + "/" + d.Port
		if !ports[port] {
			ports[port] = true
			bridge := Device{Class: 0x060400, Vendor: 0x8086, Node: d.Node}
			function(&bridge, port, 0x2030, "pcieport", nil)
		}
		at := port + "/" + d.Address
		function(d, at, d.Device, d.Driver, d.Group)
		for _, n := range d.Net {
			w.put(at+"/net/"+n+"/mtu", "1500")
			w.link("sys/class/net/"+n, "../../../"+at+"/net/"+n)
		}
		for _, n := range d.RDMA {
			w.put(at+"/infiniband/"+n+"/node_type", "1: CA")
			w.link("sys/class/infiniband/"+n, "../../../"+at+"/infiniband/"+n)
		}
		if d.TotalVFs > 0 {
			w.put(at+"/sriov_totalvfs", "%d", d.TotalVFs)
			w.put(at+"/sriov_numvfs", "%d", len(d.VFs))
		}
		for j, vf := range d.VFs {
			f := *d
			var g *int
			if d.Group != nil {
				n := *d.Group + 1 + j
				g = &n
			}
			function(&f, port+"/"+vf, d.VFDevice, d.VFDriver, g)
			w.link(port+"/"+vf+"/physfn", "../"+d.Address)
			w.link(fmt.Sprintf("%s/virtfn%d", at, j), "../"+vf)
		}
	}
}

// proc writes the files below proc.
func (m *Machine) proc(w *writer, width int, online []int, all []cpu) {
	w.put("proc/sys/kernel/hostname", "%s", m.Name)
	w.put("proc/mounts", "sysfs /sys sysfs rw 0 0")
	var b strings.Builder
	for _, id := range online {
		if m.Arch == "aarch64" {
			implementer := "0x41"
			if m.Vendor == "NVIDIA" {
				implementer = "0x4e"
			}
			fmt.Fprintf(&b, "processor\t: %d\nCPU implementer\t: %s\nCPU architecture: 8\n\n", id, implementer)
			continue
		}
		fmt.Fprintf(&b, "processor\t: %d\nvendor_id\t: %s\nmodel name\t: %s\nphysical id\t: %d\ncore id\t\t: %d\naddress sizes\t: %d bits physical, 48 bits virtual\n\n",
			id, m.Vendor, m.Model, all[id].pkg, all[id].coreInPkg, m.PhysBits)
	}
	w.files = append(w.files, File{Path: "proc/cpuinfo", Content: b.String()})
	cpus, nodes := m.AllowedCPUs, m.AllowedNodes
	if cpus == "" {
		cpus = FormatList(online)
	}
	if nodes == "" {
		nodes = "0-1023"
	}
	w.put("proc/self/status", "Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s", cpus, nodes)
}
