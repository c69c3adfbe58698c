package topology

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// Bounds of an XML file. hwloc's file for a machine with 1,000 CPUs has 3 MiB.
const (
	xmlBytes = 64 << 20
	xmlDepth = 64
)

// ReadHwloc reads a host from hwloc's XML, version 1 or 2 (`lstopo host.xml`). Such a file does not contain the free
// memory and huge pages, isolated CPUs, IOMMU groups, or the parents of virtual functions. Therefore all memory counts
// as available, and VFs are recognized by their own entries only.
func ReadHwloc(name string) (*Host, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	defer f.Close()
	h, err := readXML(f)
	if err != nil {
		return nil, fmt.Errorf("topology: %s: %w", name, err)
	}
	if h.Name == "" {
		if h.Name = strings.TrimSuffix(filepath.Base(name), ".xml"); !validName(h.Name) {
			h.Name = "host"
		}
	}
	return h, nil
}

// xmlObject is an open <object> with its own and its inherited attributes.
type xmlObject struct {
	kind           string
	pkg, die, core int
	cpus, nodes    []int // of the nearest object with a cpuset, a nodeset
	complete       []int // nodes, including those that the job may not use
	node           int   // index in the nodes being built, for page_type; -1
	device         int   // index in the devices, for OS devices; -1
	root           string
	bridges        []string
}

// xmlReader builds a host from the elements in their order.
type xmlReader struct {
	h          *Host
	stack      []xmlObject
	pkgs, dies int
	cores      int
	nodeCPUs   map[int][]int // node ID → cpuset
	home       map[int]int   // CPU → its only node, whether or not that node is in the topology
	kinds      map[string][]int
	capacity   map[int]int // CPU → capacity in the units of Linux's scheduler
	kind       xmlKind
	allowed    []int
	allowedN   []int
	limited    bool
	rows       map[int]map[int]int // distances by node ID
	matrix     xmlMatrix
	elements   int
}

// xmlMatrix is a <distances2> element being read, or a <distances> of version 1.
type xmlMatrix struct {
	open    bool
	n       int
	index   []int
	values  []float64
	base    float64
	text    string // the child whose text is being read
	version int
}

// xmlKind is a <cpukind> element being read.
type xmlKind struct {
	open     bool
	cpus     []int
	name     string
	capacity int
}

// readXML reads and checks hwloc's XML.
func readXML(r io.Reader) (*Host, error) {
	in := &io.LimitedReader{R: r, N: xmlBytes + 1}
	d := xml.NewDecoder(in)
	x := &xmlReader{h: &Host{}, nodeCPUs: map[int][]int{}, home: map[int]int{}, kinds: map[string][]int{}, capacity: map[int]int{}, rows: map[int]map[int]int{}}
	depth, seen := 0, false
	for {
		tok, err := d.RawToken()
		if in.N <= 0 {
			return nil, fmt.Errorf("larger than %d MiB: no hwloc file is", xmlBytes>>20)
		}
		if err == io.EOF {
			break
		}
		line, _ := d.InputPos()
		if err != nil {
			// The error repeats a name of the file, of any length.
			return nil, fmt.Errorf("line %d: not well-formed XML: %.200s", line, err)
		}
		switch t := tok.(type) {
		case xml.StartElement:
			if depth++; depth > xmlDepth {
				return nil, fmt.Errorf("line %d: elements nested more than %d deep", line, xmlDepth)
			}
			if depth == 1 && t.Name.Local != "topology" && t.Name.Local != "root" {
				return nil, fmt.Errorf("line %d: <%s> is not hwloc's <topology>", line, clip(t.Name.Local))
			}
			seen = true
			if err := x.start(t); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		case xml.EndElement:
			depth--
			if depth < 0 {
				return nil, fmt.Errorf("line %d: </%s> without a beginning", line, clip(t.Name.Local))
			}
			if err := x.end(t.Name.Local); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		case xml.CharData:
			if err := x.chars(string(t)); err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
		}
	}
	if !seen {
		return nil, errors.New("empty: not hwloc's XML")
	}
	if depth != 0 {
		return nil, errors.New("cut off: the last element is not closed")
	}
	return x.finish()
}

func attrs(t xml.StartElement) map[string]string {
	m := make(map[string]string, len(t.Attr))
	for _, a := range t.Attr {
		m[a.Name.Local] = a.Value
	}
	return m
}

// small reads a number of an attribute, 0 to max. It returns def if the attribute is missing.
func small(a map[string]string, key string, def, max int) (int, error) {
	s, ok := a[key]
	if !ok {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > max {
		return 0, fmt.Errorf("%s=%q: not a number from 0 to %d", key, clip(s), max)
	}
	return n, nil
}

// xmlSet parses hwloc's set format: "0x0000000f", "0xf...f,0x0,0x3"; highest word first.
func xmlSet(s string, max int) ([]int, error) {
	if s == "" {
		return nil, nil
	}
	if strings.HasPrefix(s, "0xf...f") {
		return nil, fmt.Errorf("infinite set %q", clip(s))
	}
	words := strings.Split(s, ",")
	for i, w := range words {
		words[i] = strings.TrimPrefix(w, "0x")
		if words[i] == "" {
			words[i] = "0" // hwloc writes a zero word as an empty string
		}
	}
	return parseMask(strings.Join(words, ","), max)
}

func (x *xmlReader) start(t xml.StartElement) error {
	if x.elements++; x.elements > 4<<20 {
		return errors.New("more than four million elements")
	}
	a := attrs(t)
	switch t.Name.Local {
	case "object":
		return x.object(a)
	case "page_type":
		return x.pages(a)
	case "info":
		x.info(a)
	case "cpukind":
		cpus, err := xmlSet(a["cpuset"], MaxCPUs)
		x.kind = xmlKind{open: true, cpus: cpus}
		return err
	case "distances2":
		x.matrix = xmlMatrix{}
		if a["type"] == "NUMANode" && (a["name"] == "" || a["name"] == "NUMALatency") && a["indexing"] != "gp" {
			n, err := small(a, "nbobjs", 0, MaxNodes)
			x.matrix = xmlMatrix{open: true, n: n, version: 2}
			return err
		}
	case "indexes", "u64values":
		x.matrix.text = t.Name.Local
	case "distances":
		// In version 1 a matrix covers the objects at a depth. Only one that covers all nodes is useful.
		n, err := small(a, "nbobjs", 0, MaxNodes)
		base, _ := strconv.ParseFloat(a["latency_base"], 64)
		x.matrix = xmlMatrix{open: true, n: n, version: 1, base: base}
		return err
	case "latency":
		if x.matrix.open && len(x.matrix.values) < x.matrix.n*x.matrix.n {
			v, err := strconv.ParseFloat(a["value"], 64)
			if err != nil {
				return fmt.Errorf("latency %q is not a number", clip(a["value"]))
			}
			x.matrix.values = append(x.matrix.values, v*x.matrix.base)
		}
	}
	return nil
}

// object opens an <object>.
func (x *xmlReader) object(a map[string]string) error {
	o := xmlObject{pkg: -1, die: -1, core: -1, node: -1, device: -1}
	if len(x.stack) > 0 {
		o = x.stack[len(x.stack)-1]
		o.node = -1
	}
	o.kind = a["type"]
	if s, ok := a["cpuset"]; ok {
		var err error
		if o.cpus, err = xmlSet(s, MaxCPUs); err != nil {
			return err
		}
	}
	if s, ok := a["nodeset"]; ok {
		var err error
		if o.nodes, err = xmlSet(s, MaxNodes); err != nil {
			return err
		}
	}
	if s, ok := a["complete_nodeset"]; ok {
		var err error
		if o.complete, err = xmlSet(s, MaxNodes); err != nil {
			return err
		}
	}
	var id int
	var err error
	switch o.kind {
	case "PU", "NUMANode", "Node": // cores and packages may have any number
		if id, err = small(a, "os_index", -1, MaxCPUs-1); err != nil {
			return err
		}
	}
	switch o.kind {
	case "Machine", "System":
		if s := a["allowed_cpuset"]; s != "" {
			if x.allowed, err = xmlSet(s, MaxCPUs); err != nil {
				return err
			}
			x.limited = true
		}
		if s := a["allowed_nodeset"]; s != "" {
			if x.allowedN, err = xmlSet(s, MaxNodes); err != nil {
				return err
			}
		}
	case "Package", "Socket":
		o.pkg = x.pkgs
		x.pkgs++
		o.die = -1
	case "Die":
		o.die = x.dies
		x.dies++
	case "Core":
		o.core = x.cores
		x.cores++
	case "Cache", "L1Cache", "L2Cache", "L3Cache", "L4Cache", "L5Cache", "L1iCache", "L2iCache", "L3iCache":
		level, err := small(a, "depth", 0, 8)
		if err != nil {
			return err
		}
		if level == 0 && len(o.kind) > 1 {
			level = int(o.kind[1] - '0')
		}
		kind := map[string]string{"0": "Unified", "1": "Data", "2": "Instruction"}[a["cache_type"]]
		if kind == "" {
			kind = "Unified"
		}
		size, _ := strconv.ParseUint(a["cache_size"], 10, 48)
		if level > 0 {
			x.h.Caches = append(x.h.Caches, Cache{level, kind, size, o.cpus})
		}
	case "PU":
		if id < 0 {
			return errors.New("a PU without os_index")
		}
		if len(x.h.CPUs) >= MaxCPUs {
			return fmt.Errorf("more than %d PUs", MaxCPUs)
		}
		if len(o.complete) == 1 {
			x.home[id] = o.complete[0]
		}
		x.h.CPUs = append(x.h.CPUs, CPU{ID: id, Node: -1, Package: o.pkg, Die: o.die, L3: -1, Core: o.core, Online: true, Allowed: true})
	case "NUMANode", "Node":
		if id < 0 || id >= MaxNodes {
			return fmt.Errorf("a NUMA node with os_index %q", clip(a["os_index"]))
		}
		if len(x.h.Nodes) >= MaxNodes {
			return fmt.Errorf("more than %d nodes", MaxNodes)
		}
		mem, _ := strconv.ParseUint(a["local_memory"], 10, 56)
		x.h.Nodes = append(x.h.Nodes, Node{ID: id, MemoryBytes: mem, AvailableBytes: mem, Allowed: true})
		x.nodeCPUs[id] = o.cpus
		if a["subtype"] == "GPUMemory" {
			x.h.Nodes[len(x.h.Nodes)-1].GPU = "of unknown address"
			x.nodeCPUs[id] = nil // the CPUs near the GPU
		}
		o.node = len(x.h.Nodes) - 1
	case "Bridge":
		if b := a["pci_busid"]; ValidAddress(b) {
			o.bridges = append(o.bridges[:len(o.bridges):len(o.bridges)], b)
		} else if r := a["bridge_pci"]; r != "" { // host bridge: "0000:[3a-3b]"
			if dom, rest, ok := strings.Cut(r, ":["); ok && len(rest) >= 2 {
				if root := "pci" + dom + ":" + rest[:2]; pciRoot().MatchString(root) {
					o.root = root
				}
			}
		}
	case "PCIDev":
		if err := x.pci(a, &o); err != nil {
			return err
		}
	case "OSDev":
		if o.device >= 0 && validName(a["name"]) {
			d := &x.h.Devices[o.device]
			switch a["osdev_type"] {
			case "2":
				d.Net = append(d.Net, a["name"])
			case "3":
				d.RDMA = append(d.RDMA, a["name"])
			}
		}
	}
	x.stack = append(x.stack, o)
	return nil
}

// pci adds a PCI function.
func (x *xmlReader) pci(a map[string]string, o *xmlObject) error {
	b := a["pci_busid"]
	if !ValidAddress(b) {
		return fmt.Errorf("a PCIDev with pci_busid %q", clip(b))
	}
	if len(x.h.Devices) >= MaxDevices {
		return fmt.Errorf("more than %d PCI functions", MaxDevices)
	}
	d := Device{Address: b, Node: -1, Group: -1, Root: o.root, Bridges: o.bridges}
	if len(o.nodes) == 1 {
		d.Node = o.nodes[0]
	}
	// pci_type="0207 [15b3:1017] [15b3:0007] 00"
	f := strings.Fields(a["pci_type"])
	if len(f) >= 2 {
		c, _ := strconv.ParseUint(f[0], 16, 16)
		d.Class = int(c) << 8
		v, dev, _ := strings.Cut(strings.Trim(f[1], "[]"), ":")
		n, _ := strconv.ParseUint(v, 16, 16)
		d.VendorID = int(n)
		n, _ = strconv.ParseUint(dev, 16, 16)
		d.DeviceID = int(n)
	}
	x.h.Devices = append(x.h.Devices, d)
	o.device = len(x.h.Devices) - 1
	return nil
}

// pages reads the pools of the open node (or machine).
func (x *xmlReader) pages(a map[string]string) error {
	if len(x.stack) == 0 {
		return nil
	}
	o := &x.stack[len(x.stack)-1]
	if o.node < 0 {
		return nil
	}
	size, err1 := strconv.ParseUint(a["size"], 10, 48)
	n := &x.h.Nodes[o.node]
	if err1 == nil && size > 0 && (size < 1<<20 || len(n.Pools) >= 16 || size&(size-1) != 0) {
		return nil // ordinary pages: hwloc subtracts huge pages from memory, and the count wraps if a node has less
	}
	count, err2 := strconv.ParseUint(a["count"], 10, 48)
	if err1 != nil || err2 != nil || size == 0 {
		return fmt.Errorf("page_type size=%q count=%q", clip(a["size"]), clip(a["count"]))
	}
	if count > (1<<56)/size {
		return fmt.Errorf("page_type count=%d of %d bytes: no machine has that", count, size)
	}
	n.Pools = append(n.Pools, Pool{size, int(count), int(count)})
	return nil
}

// info handles <info name= value=/>, which describes the machine.
func (x *xmlReader) info(a map[string]string) {
	v := printable(a["value"])
	if x.kind.open {
		for _, k := range kindNames {
			if a["name"] == "CoreType" && v == k.coreType {
				x.kind.name = k.name
			}
		}
		if n, err := strconv.Atoi(v); err == nil && a["name"] == "LinuxCapacity" {
			x.kind.capacity = n
		}
		return
	}
	if n := len(x.stack); n > 0 && x.stack[n-1].node >= 0 {
		if node := &x.h.Nodes[x.stack[n-1].node]; a["name"] == "PCIBusID" && node.GPU != "" && ValidAddress(v) {
			node.GPU = v
		}
	}
	switch a["name"] {
	case "HostName":
		if validName(v) {
			x.h.Name = v
		}
	case "Architecture":
		x.h.Arch = v
	case "CPUVendor":
		x.h.Vendor = v
	case "CPUModel":
		x.h.Model = v
	}
}

func (x *xmlReader) chars(s string) error {
	m := &x.matrix
	if !m.open || m.text == "" {
		return nil
	}
	for _, f := range strings.Fields(s) {
		switch m.text {
		case "indexes":
			n, err := strconv.Atoi(f)
			if err != nil || n < 0 || n >= MaxNodes || len(m.index) >= m.n {
				return fmt.Errorf("distances: index %q", clip(f))
			}
			m.index = append(m.index, n)
		case "u64values":
			v, err := strconv.ParseUint(f, 10, 32)
			if err != nil || len(m.values) >= m.n*m.n {
				return fmt.Errorf("distances: value %q", clip(f))
			}
			m.values = append(m.values, float64(v))
		}
	}
	return nil
}

func (x *xmlReader) end(name string) error {
	switch name {
	case "object":
		if len(x.stack) == 0 {
			return errors.New("</object> without a beginning")
		}
		x.stack = x.stack[:len(x.stack)-1]
	case "cpukind":
		x.kinds[x.kind.name] = append(x.kinds[x.kind.name], x.kind.cpus...)
		if x.kind.name == "" && x.kind.capacity > 0 {
			for _, id := range x.kind.cpus {
				x.capacity[id] = x.kind.capacity
			}
		}
		x.kind = xmlKind{}
	case "indexes", "u64values":
		x.matrix.text = ""
	case "distances", "distances2":
		m := &x.matrix
		if m.open && m.version == 1 && m.n == len(x.h.Nodes) || m.open && m.version == 2 {
			x.take(m)
		}
		*m = xmlMatrix{}
	}
	return nil
}

// take keeps a complete matrix of latencies. A partial one is later reported as missing.
func (x *xmlReader) take(m *xmlMatrix) {
	if len(m.values) != m.n*m.n || m.version == 2 && len(m.index) != m.n {
		x.h.note("a distance matrix has %d values for %d nodes: left out", len(m.values), m.n)
		return
	}
	for i := 0; i < m.n; i++ {
		from := i
		if m.version == 2 {
			from = m.index[i]
		}
		if x.rows[from] == nil {
			x.rows[from] = map[int]int{}
		}
		for j := 0; j < m.n; j++ {
			to := j
			if m.version == 2 {
				to = m.index[j]
			}
			x.rows[from][to] = int(min(max(m.values[i*m.n+j], 0), 1000) + 0.5)
		}
	}
}

// finish sorts, numbers and checks what was read.
func (x *xmlReader) finish() (*Host, error) {
	h := x.h
	if len(h.CPUs) == 0 {
		return nil, errors.New("no PU in it: not a topology")
	}
	sort.SliceStable(h.CPUs, func(i, j int) bool { return h.CPUs[i].ID < h.CPUs[j].ID })
	for i := 1; i < len(h.CPUs); i++ {
		if h.CPUs[i].ID == h.CPUs[i-1].ID {
			return nil, fmt.Errorf("PU %d is there twice", h.CPUs[i].ID)
		}
	}
	if len(h.Nodes) == 0 {
		h.Nodes = []Node{{Allowed: true}}
		for i := range h.CPUs {
			x.nodeCPUs[0] = append(x.nodeCPUs[0], h.CPUs[i].ID)
		}
		h.note("no NUMA node in it: taken as one node of unknown memory")
	}
	sort.SliceStable(h.Nodes, func(i, j int) bool { return h.Nodes[i].ID < h.Nodes[j].ID })
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if i > 0 && n.ID == h.Nodes[i-1].ID {
			return nil, fmt.Errorf("node %d is there twice", n.ID)
		}
		var huge uint64
		for _, p := range n.Pools {
			huge += p.PageBytes * uint64(p.Total)
		}
		n.AvailableBytes = n.MemoryBytes - min(huge, n.MemoryBytes)
		sort.Slice(n.Pools, func(i, j int) bool { return n.Pools[i].PageBytes > n.Pools[j].PageBytes })
	}
	x.cpusOfNodes()
	hidden := x.hiddenNodes()
	homeless(h)
	x.setKinds()
	pkgs, dies, cores := map[int]int{}, map[[2]int]int{}, map[int]int{}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		key := c.Core
		if key < 0 {
			key = -2 - c.ID // a PU without a core counts as a core
		}
		c.Die = dense(dies, [2]int{c.Package, c.Die})
		c.Package = dense(pkgs, c.Package)
		c.Core = dense(cores, key)
		c.Allowed = !x.limited || contains(x.allowed, c.ID)
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		n.Allowed = !hidden[n.ID] && (len(x.allowedN) == 0 || contains(x.allowedN, n.ID))
	}
	x.checkCaches()
	groupL3(h)
	rows := make([][]int, len(h.Nodes))
	for i := range h.Nodes {
		r := x.rows[h.Nodes[i].ID]
		if r == nil {
			continue
		}
		rows[i] = make([]int, len(h.Nodes))
		for j := range h.Nodes {
			rows[i][j] = r[h.Nodes[j].ID]
		}
	}
	setDistances(h, rows)
	sort.SliceStable(h.Devices, func(i, j int) bool { return h.Devices[i].Address < h.Devices[j].Address })
	for i := range h.Devices {
		if d := &h.Devices[i]; d.Node >= 0 && h.NodeIndex(d.Node) < 0 {
			d.Node = -1
		}
	}
	h.writeRepairs()
	return h, nil
}

// hiddenNodes adds the nodes of CPUs that the job may use although it may not use the node's memory. hwloc omits such
// nodes, and only their CPUs are known.
func (x *xmlReader) hiddenNodes() map[int]bool {
	h, hidden := x.h, map[int]bool{}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		home, ok := x.home[c.ID]
		if c.Node >= 0 || !ok || !hidden[home] && h.NodeIndex(home) >= 0 {
			continue
		}
		if !hidden[home] {
			hidden[home] = true
			h.Nodes = append(h.Nodes, Node{ID: home})
			sort.SliceStable(h.Nodes, func(i, j int) bool { return h.Nodes[i].ID < h.Nodes[j].ID })
			h.repair("node", home, "not in the topology although its CPUs are: its memory is not for this job")
		}
		c.Node = home
		n := &h.Nodes[h.NodeIndex(home)]
		n.CPUs = append(n.CPUs, c.ID)
	}
	return hidden
}

// setKinds marks the kinds of cores.
func (x *xmlReader) setKinds() {
	var names []string
	for _, k := range kindNames {
		names = append(names, k.name)
		sort.Ints(x.kinds[k.name])
	}
	kinds := x.kinds
	if len(x.capacity) > 0 {
		kinds, names = byCapacity(x.capacity)
	}
	x.h.setKinds(kinds, names)
}

// cpusOfNodes assigns CPUs to their nodes. A memory-only node has the cpuset of its parent in hwloc's tree. If several
// nodes share a cpuset, the first of them gets the CPUs.
func (x *xmlReader) cpusOfNodes() {
	h := x.h
	order := make([]int, len(h.Nodes))
	for i := range order {
		order[i] = i
	}
	// Smaller sets come first, so that a node attached to the machine gets no CPU of a package's node.
	sort.SliceStable(order, func(a, b int) bool {
		return len(x.nodeCPUs[h.Nodes[order[a]].ID]) < len(x.nodeCPUs[h.Nodes[order[b]].ID])
	})
	for _, i := range order {
		n := &h.Nodes[i]
		for _, id := range x.nodeCPUs[n.ID] {
			if c := h.CPU(id); c != nil && c.Node < 0 {
				c.Node = n.ID
				n.CPUs = append(n.CPUs, id)
			}
		}
	}
}

// checkCaches removes caches whose CPUs do not exist.
func (x *xmlReader) checkCaches() {
	h := x.h
	kept := h.Caches[:0]
	for _, c := range h.Caches {
		var cpus []int
		for _, id := range c.CPUs {
			if h.CPU(id) != nil {
				cpus = append(cpus, id)
			}
		}
		if len(cpus) > 0 {
			c.CPUs = cpus
			kept = append(kept, c)
		}
	}
	h.Caches = kept
}
