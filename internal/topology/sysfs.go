package topology

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/text"
)

const (
	cpuDir  = "sys/devices/system/cpu"
	nodeDir = "sys/devices/system/node"
)

// number reads an attribute that is one decimal number.
func number(t tree, name string) (int, bool) {
	s, err := t.read(name, 64)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return n, err == nil
}

// listOf reads an attribute in list format; ok is false if it does not exist.
func listOf(t tree, name string, max int) (ids []int, ok bool, err error) {
	s, err := t.read(name, fileMax)
	if err != nil {
		return nil, false, nil
	}
	if ids, err = ParseList(s, max); err != nil {
		return nil, true, fmt.Errorf("%s: %w", name, err)
	}
	return ids, true, nil
}

// cpuSet reads a set of CPUs from the first of the attributes that exists. Attributes whose names end in _list or list
// are lists, the others masks. Masks are read first, as in hwloc, because the two differ in some captured trees.
func cpuSet(t tree, names ...string) ([]int, bool) {
	for _, name := range names {
		s, err := t.read(name, fileMax)
		if err != nil {
			continue
		}
		var set []int
		if strings.HasSuffix(name, "list") {
			set, err = ParseList(s, MaxCPUs)
		} else {
			set, err = parseMask(s, MaxCPUs)
		}
		if err == nil {
			return set, true
		}
	}
	return nil, false
}

// parseMask parses the kernel's mask format: hexadecimal words of 32 bits, highest first, separated by commas.
func parseMask(s string, max int) ([]int, error) {
	words := strings.Split(strings.TrimSpace(s), ",")
	if len(words) > max/32+1 {
		return nil, fmt.Errorf("mask of more than %d bits", max)
	}
	var out []int
	for i := len(words) - 1; i >= 0; i-- {
		w, err := strconv.ParseUint(words[i], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("mask %q: %q is not hexadecimal", clip(s), clip(words[i]))
		}
		base := (len(words) - 1 - i) * 32
		for w != 0 {
			b := bits.TrailingZeros64(w)
			if base+b >= max {
				return nil, fmt.Errorf("mask of more than %d bits", max)
			}
			out = append(out, base+b)
			w &^= 1 << b
		}
	}
	return out, nil
}

// readModel reads the processor's names and address width from /proc/cpuinfo.
func readModel(t tree, h *Host) {
	s, _ := t.read("proc/cpuinfo", fileMax)
	for _, line := range strings.Split(s, "\n") {
		key, val, ok := strings.Cut(line, ":")
		if !ok {
			if strings.TrimSpace(line) == "" && h.Vendor != "" {
				break // the first processor is enough
			}
			continue
		}
		val = printable(strings.TrimSpace(val))
		switch strings.TrimSpace(key) {
		case "vendor_id":
			h.Vendor, h.Arch = val, "x86_64"
		case "model name":
			h.Model = val
		case "CPU implementer":
			h.Vendor, h.Arch = "ARM", "aarch64"
			if val == "0x4e" {
				h.Vendor = "NVIDIA"
			}
		case "address sizes": // "46 bits physical, 57 bits virtual"
			if n, err := strconv.Atoi(strings.Fields(val + " x")[0]); err == nil && n >= 32 && n <= 64 {
				h.PhysBits = n
			}
		}
	}
}

// printable returns the name of a part of the host: the printable ASCII in s, clipped.
func printable(s string) string { return clip(text.ASCII(s)) }

// readCPUs reads the CPUs, with their packages, dies and cores.
func readCPUs(t tree, h *Host) error {
	online, okOnline, err := listOf(t, cpuDir+"/online", MaxCPUs)
	if err != nil {
		return err
	}
	present, ok, err := listOf(t, cpuDir+"/present", MaxCPUs)
	if err != nil {
		return err
	}
	if !ok {
		// In old or partial captures the directories show which CPUs exist.
		names, err := t.list(cpuDir)
		if err != nil {
			return fmt.Errorf("%s cannot be read (is this the root of a tree with sys/ in it?): %w", cpuDir, err)
		}
		for _, n := range names {
			if id, err := strconv.Atoi(strings.TrimPrefix(n, "cpu")); err == nil && strings.HasPrefix(n, "cpu") && id >= 0 && id < MaxCPUs {
				present = append(present, id)
			}
		}
		sort.Ints(present)
	}
	if len(present) == 0 {
		return fmt.Errorf("%s lists no present CPU", cpuDir)
	}
	on := map[int]bool{}
	for _, id := range online {
		on[id] = true
	}
	isolated := map[int]bool{}
	ids, _, err := listOf(t, cpuDir+"/isolated", MaxCPUs)
	if err != nil {
		return err
	}
	for _, id := range ids {
		isolated[id] = true
	}

	units := bulldozer(t)
	type key struct{ by, n int }
	packages, dies, cores := map[key]int{}, map[key]int{}, map[int]int{}
	for _, id := range present {
		c := CPU{ID: id, Node: -1, Package: -1, Die: -1, L3: -1, Core: -1, Isolated: isolated[id], Allowed: true}
		dir := fmt.Sprintf("%s/cpu%d", cpuDir, id)
		c.Online = on[id]
		if !okOnline {
			v, there := number(t, dir+"/online")
			c.Online = !there || v == 1
		}
		if c.Online {
			// Some Arm and POWER machines number their packages -1, and list the CPUs of each.
			var pkg key
			if set, ok := cpuSet(t, dir+"/topology/package_cpus", dir+"/topology/core_siblings",
				dir+"/topology/package_cpus_list", dir+"/topology/core_siblings_list"); ok && contains(set, id) {
				pkg = key{1, firstOn(set, on, okOnline)}
			} else if n, ok := number(t, dir+"/topology/physical_package_id"); ok && n >= 0 {
				pkg = key{2, n}
			}
			die, okd := number(t, dir+"/topology/die_id")
			if !okd || die < 0 {
				die = 0
			}
			c.Package = dense(packages, pkg)
			c.Die = dense(dies, key{c.Package, die})
			sib, oks := cpuSet(t, dir+"/topology/core_cpus", dir+"/topology/thread_siblings",
				dir+"/topology/core_cpus_list", dir+"/topology/thread_siblings_list")
			first := id
			if units && oks && len(sib) > 1 {
				// Cores of a Bulldozer module are siblings with different core numbers; threads share their core's
				// number.
				own, _ := number(t, dir+"/topology/core_id")
				for _, s := range sib {
					other, ok := number(t, fmt.Sprintf("%s/cpu%d/topology/core_id", cpuDir, s))
					oks = oks && (!ok || other == own)
				}
			}
			if oks && contains(sib, id) {
				first = firstOn(sib, on, okOnline)
			} else if oks {
				h.repair("CPU", id, "not among the thread siblings of its own: taken as a core of its own")
			}
			c.Core = dense(cores, first)
		}
		h.CPUs = append(h.CPUs, c)
	}
	if len(cores) == 0 {
		return fmt.Errorf("%s lists no online CPU", cpuDir)
	}
	return nil
}

// bulldozer reports whether the processor has two cores per module (AMD's families 15h and 16h).
func bulldozer(t tree) bool {
	s, _ := t.read("proc/cpuinfo", 4096)
	words := strings.Fields(strings.NewReplacer(":", " ", "\t", " ").Replace(s))
	text := strings.Join(words, " ") + " "
	return strings.Contains(text, "vendor_id AuthenticAMD ") && (strings.Contains(text, "cpu family 21 ") || strings.Contains(text, "cpu family 22 "))
}

// firstOn returns the CPU that identifies a set: the lowest one that is online, if that is known.
func firstOn(set []int, on map[int]bool, known bool) int {
	for _, id := range set {
		if on[id] || !known {
			return id
		}
	}
	return set[0]
}

// dense numbers keys from 0 in the order in which they are first seen.
func dense[K comparable](m map[K]int, k K) int {
	n, ok := m[k]
	if !ok {
		n = len(m)
		m[k] = n
	}
	return n
}

func contains(sorted []int, n int) bool {
	_, ok := slices.BinarySearch(sorted, n)
	return ok
}

// readNodes reads the NUMA nodes, their memory and distances.
func readNodes(t tree, h *Host) error {
	ids, ok, err := listOf(t, nodeDir+"/online", MaxNodes)
	if err != nil {
		return err
	}
	if names, err := t.list(nodeDir); !ok && err == nil {
		for _, n := range names {
			if id, err := strconv.Atoi(strings.TrimPrefix(n, "node")); err == nil && strings.HasPrefix(n, "node") && id >= 0 && id < MaxNodes {
				ids = append(ids, id)
			}
		}
		sort.Ints(ids)
	}
	if len(ids) == 0 {
		// A kernel without NUMA has no such directory: everything is one node.
		ids = []int{0}
	}
	possible, _, err := listOf(t, nodeDir+"/possible", MaxNodes)
	if err != nil {
		return err
	}
	only := len(ids) == 1 && len(possible) <= 1
	var columns []int // indices in ids of the nodes that are kept
	absent := make([]bool, MaxCPUs)
	for i, id := range ids {
		dir := fmt.Sprintf("%s/node%d", nodeDir, id)
		n := Node{ID: id, Allowed: true}
		cpus, ok := cpuSet(t, dir+"/cpumap", dir+"/cpulist")
		if !ok && len(ids) == 1 {
			for i := range h.CPUs {
				cpus = append(cpus, h.CPUs[i].ID)
			}
		} else if !ok {
			h.repair("node", id, "no cpulist: taken as a node without CPUs")
		}
		if slices.ContainsFunc(cpus, func(c int) bool { cpu := h.CPU(c); return cpu != nil && cpu.Node >= 0 }) {
			h.repair("node", id, "shares CPUs with a node before it: left out, as hwloc does")
			continue
		}
		for _, c := range cpus {
			cpu := h.CPU(c)
			if cpu == nil {
				absent[c] = true
				continue
			}
			cpu.Node = id
			if cpu.Online {
				n.CPUs = append(n.CPUs, c)
			}
		}
		readNodeMemory(t, h, &n, dir, only)
		if v, ok := number(t, dir+"/access0/initiators/read_bandwidth"); ok && v > 0 {
			n.ReadMBps = v
		}
		if v, ok := number(t, dir+"/access0/initiators/read_latency"); ok && v > 0 {
			n.ReadNs = v
		}
		h.Nodes = append(h.Nodes, n)
		columns = append(columns, i)
	}
	for id, is := range absent {
		if is {
			h.repair("CPU", id, "on a node, but not present: left out")
		}
	}
	readGPUs(t, h)
	homeless(h)
	rows := make([][]int, len(h.Nodes))
	for i := range h.Nodes {
		name := fmt.Sprintf("%s/node%d/distance", nodeDir, h.Nodes[i].ID)
		s, err := t.read(name, fileMax)
		if err != nil {
			continue
		}
		var row []int
		for _, f := range strings.Fields(s) {
			v, err := strconv.Atoi(f)
			if err != nil || len(row) >= MaxNodes {
				return fmt.Errorf("%s: %q is not a list of numbers", name, clip(s))
			}
			row = append(row, v)
		}
		if len(row) != len(ids) {
			h.repair("node", h.Nodes[i].ID, "a list of distances of another length than that of the nodes: left out")
			continue
		}
		for _, k := range columns {
			rows[i] = append(rows[i], row[k])
		}
	}
	setDistances(h, rows)
	return nil
}

// readGPUs marks the nodes whose memory is a GPU's (GH200, POWER9 with V100), as reported by the driver.
func readGPUs(t tree, h *Host) {
	const dir = "proc/driver/nvidia/gpus"
	names, _ := t.list(dir)
	for _, gpu := range names {
		s, err := t.read(dir+"/"+gpu+"/numa_status", 4096)
		if err != nil || !ValidAddress(gpu) {
			continue
		}
		id, err := strconv.Atoi(field(s, "Node"))
		if err != nil {
			continue
		}
		if i := h.NodeIndex(id); i >= 0 && len(h.Nodes[i].CPUs) == 0 {
			h.Nodes[i].GPU = gpu
		}
	}
}

// homeless reports the online CPUs that are on no node. It does not guess a node for them.
func homeless(h *Host) {
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Node < 0 && c.Online {
			h.repair("CPU", c.ID, "on no node: no VM is pinned there")
		}
	}
}

// setDistances checks the rows and puts them into the nodes. Missing rows, and values outside 10 to 254, are replaced
// by the other direction's values, or by 10 and 20. Asymmetric distances exist on some machines and are kept.
func setDistances(h *Host, rows [][]int) {
	n := len(h.Nodes)
	for i, r := range rows {
		if r != nil && len(r) != n {
			rows[i] = nil
		}
	}
	valid := func(i, j int) bool {
		return rows[i] != nil && (i == j && rows[i][j] == 10 || i != j && rows[i][j] >= 10 && rows[i][j] <= 254)
	}
	for i := range h.Nodes {
		d := make([]int, n)
		missing := 0
		for j := range d {
			switch {
			case valid(i, j):
				d[j] = rows[i][j]
			case i == j:
				d[j] = 10
			case valid(j, i):
				d[j] = rows[j][i]
				missing++
			default:
				d[j] = 20
				missing++
			}
			if valid(i, j) && valid(j, i) && rows[i][j] != rows[j][i] && i < j {
				const two = "distances that differ by direction: kept; the plan takes the larger"
				h.repair("node", h.Nodes[i].ID, two)
				h.repair("node", h.Nodes[j].ID, two)
			}
		}
		if missing > 0 && n > 1 {
			h.repair("node", h.Nodes[i].ID, "distances missing or out of range: the other direction's, else 20, put in")
		}
		h.Nodes[i].Distances = d
	}
}

// readNodeMemory reads meminfo and the huge-page pools of a node.
func readNodeMemory(t tree, h *Host, n *Node, dir string, only bool) {
	s, err := t.read(dir+"/meminfo", fileMax)
	if only {
		// If there can be only one node, /proc reports the same, give or take a page, or more if memory was added while
		// the machine ran (a VM's node0 reported 5.6 of 24 GiB).
		if p, perr := t.read("proc/meminfo", fileMax); perr == nil && (err != nil || meminfo(p)["MemTotal"] > meminfo(s)["MemTotal"]/8*9) {
			s, err = p, nil
		}
	}
	if err != nil {
		h.repair("node", n.ID, "no meminfo: taken as a node without memory")
	}
	v := meminfo(s)
	n.MemoryBytes = v["MemTotal"]
	// An equivalent of the kernel's MemAvailable, which meminfo of a node lacks: free memory and what can be dropped
	// (mm/page_alloc.c, si_mem_available, without its allowance for watermarks).
	n.AvailableBytes = v["MemFree"] + v["Active(file)"] + v["Inactive(file)"] + v["SReclaimable"]
	if n.AvailableBytes > n.MemoryBytes {
		n.AvailableBytes = n.MemoryBytes
	}
	base := dir + "/hugepages"
	names, err := t.list(base)
	if err != nil && only {
		base = "sys/kernel/mm/hugepages"
		names, _ = t.list(base)
	}
	for _, name := range names {
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(name, "hugepages-"), "kB"), 10, 40)
		if err != nil || kb == 0 || kb&(kb-1) != 0 || len(n.Pools) >= 16 {
			continue
		}
		total, ok1 := number(t, base+"/"+name+"/nr_hugepages")
		free, ok2 := number(t, base+"/"+name+"/free_hugepages")
		if !ok1 || !ok2 || total < 0 || free < 0 || uint64(total) > (1<<56)/(kb<<10) {
			h.repair("node", n.ID, "a pool of huge pages that cannot be read: left out")
			continue
		}
		n.Pools = append(n.Pools, Pool{kb << 10, total, min(free, total)})
	}
	sort.Slice(n.Pools, func(i, j int) bool { return n.Pools[i].PageBytes > n.Pools[j].PageBytes })
}

// meminfo parses "Key: number kB" lines, with or without a leading "Node N ", into bytes.
func meminfo(s string) map[string]uint64 {
	m := map[string]uint64{}
	for _, line := range strings.Split(s, "\n") {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == "Node" {
			f = f[2:]
		}
		if len(f) < 2 {
			continue
		}
		if kb, err := strconv.ParseUint(f[1], 10, 48); err == nil {
			m[strings.TrimSuffix(f[0], ":")] = kb << 10
		}
	}
	return m
}

// readCaches reads the caches and numbers the last-level groups. A cache that covers several nodes (sub-NUMA
// clustering) makes one group in each.
func readCaches(t tree, h *Host) {
	type key struct {
		level int
		kind  string
		first int
	}
	seen := map[key]bool{}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if !c.Online {
			continue
		}
		for x := 0; x < 16; x++ {
			dir := fmt.Sprintf("%s/cpu%d/cache/index%d", cpuDir, c.ID, x)
			level, ok := number(t, dir+"/level")
			if !ok {
				continue // some captures lack the first ones
			}
			if level < 1 || level > 8 {
				h.repair("CPU", c.ID, "a cache of a level that is not 1 to 8: left out")
				continue
			}
			kind, _ := t.read(dir+"/type", 32)
			kind = strings.TrimSpace(kind)
			if kind != "Data" && kind != "Instruction" {
				kind = "Unified"
			}
			shared, ok := cpuSet(t, dir+"/shared_cpu_map", dir+"/shared_cpu_list")
			if ok && len(shared) == 0 { // on Itanium's kernels the threads of the core share it
				for o := range h.CPUs {
					if h.CPUs[o].Core == c.Core {
						shared = append(shared, h.CPUs[o].ID)
					}
				}
			}
			var cpus []int
			for _, id := range shared {
				if o := h.CPU(id); o != nil && o.Online {
					cpus = append(cpus, id)
				}
			}
			if len(cpus) == 0 || cpus[0] != c.ID {
				continue // its first CPU describes it
			}
			k := key{level, kind, c.ID}
			if seen[k] {
				continue
			}
			seen[k] = true
			size, _ := t.read(dir+"/size", 32)
			h.Caches = append(h.Caches, Cache{level, kind, cacheSize(size), cpus})
		}
	}
	groupL3(h)
}

// cacheSize parses a size such as "32768K" into bytes.
func cacheSize(s string) uint64 {
	s = strings.TrimSpace(s)
	shift := 0
	switch {
	case strings.HasSuffix(s, "K"):
		s, shift = s[:len(s)-1], 10
	case strings.HasSuffix(s, "M"):
		s, shift = s[:len(s)-1], 20
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0
	}
	return n << shift
}

// groupL3 numbers the groups of CPUs that share their highest cache (level 3 or above) and a node.
func groupL3(h *Host) {
	best := map[int]int{} // CPU → index of its highest cache
	for i, c := range h.Caches {
		if c.Level < 3 || c.Type != "Unified" {
			continue
		}
		for _, id := range c.CPUs {
			if j, ok := best[id]; !ok || h.Caches[j].Level < c.Level {
				best[id] = i
			}
		}
	}
	groups := map[[2]int]int{}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if j, ok := best[c.ID]; ok && c.Online {
			c.L3 = dense(groups, [2]int{j, c.Node})
		}
	}
}
