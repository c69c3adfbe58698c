package plan

import (
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// Make decides where the VMs of a cluster file run. c has its defaults filled in, and its accel is the accelerator
// that was detected (kvm or tcg; with auto, vCPUs are pinned only if placement.pin is always). hosts has at least one
// host, each with a unique name; l lists the running VMs. Make reads nothing else and changes nothing; the same input
// produces the same plan. The error reports which resource is short, where and by how much, and the nearest request
// that would fit.
//
// VMs that cannot have CPUs of their own share the existing ones, with a warning; with placement.strict or pin:
// always that is an error.
func Make(c *spec.Cluster, hosts []topology.Host, l Ledger) (*Plan, error) {
	m, err := newMaker(c, hosts, l)
	if err != nil {
		return nil, err
	}
	p, err := m.make()
	if err == nil {
		err = tooWide(c.Backend, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// mostVCPUs is the largest number of vCPUs that machine q35 supports in every supported version of QEMU.
const mostVCPUs = 288

// tooWide returns an error for a VM with more vCPUs than QEMU supports, so that the fault is found in the plan
// instead of at the start.
func tooWide(backend string, p *Plan) error {
	if backend != "" && backend != "qemu" && backend != "libvirt" && !strings.HasPrefix(backend, "libvirt:") {
		return nil
	}
	for i := range p.VMs {
		if vm := &p.VMs[i]; vm.VCPUs > mostVCPUs {
			return fmt.Errorf("%s would have %d vCPUs, and QEMU starts a VM with at most %d: write vcpus, or more VMs", vm.Name, vm.VCPUs, mostVCPUs)
		}
	}
	return nil
}

// group is a group of equal VMs of the cluster file.
type group struct {
	spec   *spec.Group
	name   string
	count  int
	vcpus  int
	memory uint64 // bytes
	first  int    // index of its first VM in the cluster
}

// maker holds the state of Make.
type maker struct {
	c        *spec.Cluster
	place    *spec.Placement
	hosts    []topology.Host
	held     [][]Held // by host
	groups   []group
	pages    []uint64 // page sizes by class
	policy   policy
	wide     bool // hint: cache
	pin      bool
	steps    int      // bound of each search, in steps
	notes    []string // reasons that concern all VMs
	warnings []string
}

func newMaker(c *spec.Cluster, hosts []topology.Host, l Ledger) (*maker, error) {
	if len(hosts) == 0 {
		return nil, errors.New("no host to put VMs on")
	}
	m := &maker{c: c, place: &c.Placement, hosts: hosts, pages: classes(hosts)}
	m.steps = m.budget()
	index := make(map[string]int, len(hosts))
	for i := range hosts {
		if _, ok := index[hosts[i].Name]; ok {
			return nil, fmt.Errorf("two hosts are named %s", hosts[i].Name)
		}
		index[hosts[i].Name] = i
		if len(hosts[i].Nodes) == 0 || len(hosts[i].CPUs) == 0 {
			return nil, fmt.Errorf("host %s has no CPUs or no nodes", hosts[i].Name)
		}
	}
	m.held = make([][]Held, len(hosts))
	for _, h := range l.Held {
		if i, ok := index[h.Host]; ok {
			m.held[i] = append(m.held[i], h)
		}
	}
	n := 0
	for i := range c.VMs {
		g := &c.VMs[i]
		name := g.Name
		if name == "" {
			name = "vm"
		}
		if g.Count < 0 || g.VCPUs < 0 {
			return nil, fmt.Errorf("group %s: a count of %d and %d vCPUs", name, g.Count, g.VCPUs)
		}
		if g.Count == 0 {
			continue
		}
		if g.Memory == 0 {
			return nil, fmt.Errorf("group %s: VMs without memory: give `memory`, such as 2GiB", name)
		}
		m.groups = append(m.groups, group{g, name, g.Count, g.VCPUs, uint64(g.Memory), n})
		n += g.Count
	}
	if n == 0 {
		return nil, errors.New("the cluster file asks for no VM: give `vms` a group with a count")
	}
	switch m.place.Policy {
	case "consolidate":
		m.policy = consolidate
	case "spread":
		m.policy = spread
	default:
		switch m.place.Hint {
		case "bandwidth":
			m.policy = spread
		case "latency":
			m.policy = consolidate
		}
	}
	m.wide = m.place.Hint == "cache"
	m.pin = m.place.Pin == "always" || m.place.Pin != "never" && c.Accel == "kvm"
	return m, m.checkNodes()
}

// budget is the bound of the search on each host, in steps.
func (m *maker) budget() int { return min(searchSteps, max(leastSteps, fleetSteps/len(m.hosts))) }

// checkNodes reports nodes that the file names and no host has.
func (m *maker) checkNodes() error {
	for what, ids := range map[string][]int{"hostNodes": m.place.HostNodes, "memoryNodes": m.place.MemoryNodes} {
		for _, id := range ids {
			for i := range m.hosts {
				h := &m.hosts[i]
				n := h.NodeIndex(id)
				if n < 0 {
					return fmt.Errorf("placement.%s: host %s has no node %d; it has %s", what, h.Name, id, nodeList(h))
				}
				if gpu := h.Nodes[n].GPU; gpu != "" {
					return fmt.Errorf("placement.%s: node %d of %s is the memory of GPU %s: leave it out, VMs get none of it", what, id, h.Name, gpu)
				}
				if what == "memoryNodes" && len(h.Nodes[n].CPUs) > 0 {
					return fmt.Errorf("placement.memoryNodes: node %d of %s has CPUs: name nodes with memory only", id, h.Name)
				}
			}
		}
	}
	if len(m.place.MemoryNodes) > 0 && m.place.MemoryNodeSize == 0 {
		return errors.New("placement.memoryNodes: give memoryNodeSize, what each VM gets of them")
	}
	return nil
}

func nodeList(h *topology.Host) string {
	ids := make([]int, len(h.Nodes))
	for i := range h.Nodes {
		ids[i] = h.Nodes[i].ID
	}
	return words.Plural(len(ids), "node", "nodes") + " " + topology.FormatList(ids)
}

// attempt is one way of selecting CPUs: the threads per core, whether hosts with isolated CPUs provide only those,
// the kind of core on hybrid hosts, and whether cores of nodes without memory are used, with the memory of another
// node.
type attempt struct {
	threads    int
	isolated   bool
	kind       int // 0: any; 1: the fastest
	remote     bool
	capacities []*capacity
	class      []int // hosts of one class have equal capacities
	classes    int
}

// attempts returns the ways to try, the preferred one first.
func (m *maker) attempts() ([]attempt, error) {
	smt, isolated, kinds, bare := 1<<30, false, 0, false
	for i := range m.hosts {
		kinds = max(kinds, len(m.hosts[i].Kinds))
		for k := range m.hosts[i].Nodes {
			n := &m.hosts[i].Nodes[k]
			bare = bare || n.MemoryBytes == 0 && len(n.CPUs) > 0
		}
		per := map[int]int{}
		most := 1
		for k := range m.hosts[i].CPUs {
			c := &m.hosts[i].CPUs[k]
			if c.Usable() {
				per[c.Core]++
				most = max(most, per[c.Core])
				isolated = isolated || c.Isolated
			}
		}
		smt = min(smt, most)
	}
	var threads []int
	switch m.place.SMT {
	case "isolate":
		threads = []int{1}
	case "prefer":
		threads = []int{smt, 1}
	case "require":
		if smt < 2 {
			return nil, errors.New("placement.smt: require, and a host has no core with two usable threads: leave it out, or switch SMT on in the firmware")
		}
		threads = []int{smt}
	default:
		threads = []int{1, smt}
	}
	if smt == 1 {
		threads = threads[:1]
	}
	first, last := 0, 0 // kinds
	if kinds > 1 && m.place.Cores != "any" {
		first, last = 1, kinds
	}
	var out []attempt
	for _, remote := range []bool{false, true} {
		if remote && !bare {
			break
		}
		for _, t := range threads {
			for k := first; k <= last; k++ {
				if isolated {
					out = append(out, attempt{threads: t, isolated: true, kind: k, remote: remote})
				}
				out = append(out, attempt{threads: t, kind: k, remote: remote})
			}
		}
	}
	return out, nil
}

// fill computes the capacities of an attempt.
func (m *maker) fill(a *attempt) {
	a.capacities = make([]*capacity, len(m.hosts))
	a.class = make([]int, len(m.hosts))
	seen := map[string]int{}
	for i := range m.hosts {
		h := &m.hosts[i]
		a.capacities[i] = newCapacity(h, m.place, m.pages, m.held[i], a)
		for g := range m.groups {
			for d := range m.groups[g].spec.Devices {
				a.capacities[i].eligible(&m.groups[g].spec.Devices[d]) // functions by address become pools of their own
			}
		}
		key := a.capacities[i].key(a.threads)
		id, ok := seen[key]
		if !ok {
			id = len(seen)
			seen[key] = id
		}
		a.class[i] = id
	}
	a.classes = len(seen)
}

func hasIsolated(h *topology.Host) bool {
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Usable() && c.Isolated {
			return true
		}
	}
	return false
}

// key encodes all of a capacity that affects a search.
func (r *capacity) key(threads int) string {
	b := make([]byte, 0, 64*len(r.nodes))
	put := func(v uint64) { b = strconv.AppendUint(append(b, ' '), v, 36) }
	put(r.limit)
	for j := range r.nodes {
		n := &r.nodes[j]
		b = append(b, '|')
		if n.open {
			put(uint64(n.residents)<<1 | 1)
		} else {
			put(0)
		}
		put(uint64(n.total))
		for k := range n.free {
			put(n.free[k])
		}
		for g := range n.groups {
			put(uint64(n.groups[g].count(threads)))
		}
		b = append(b, '/')
		for _, d := range r.dist[j] {
			put(uint64(d))
		}
	}
	for i := range r.pools {
		p := &r.pools[i]
		b = append(b, '&')
		put(uint64(p.node + 1))
		put(uint64(p.class))
		put(uint64(len(p.free)))
		b = append(append(b, ' '), p.pf...)
		for _, n := range p.names {
			b = append(append(b, ' '), n...)
		}
	}
	return string(b)
}

// make tries the attempts in order, then plans without cores of the VMs' own.
func (m *maker) make() (*Plan, error) {
	region, err := regionOf(m.c, m.total(), len(m.hosts))
	if err != nil {
		return nil, err
	}
	attempts, err := m.attempts()
	if err != nil {
		return nil, err
	}
	asked := make([]int, len(m.groups))
	for g := range m.groups {
		asked[g] = m.groups[g].vcpus
	}
	for i := range attempts {
		a := &attempts[i]
		m.fill(a)
		if s := m.sized(a, asked); s != nil {
			m.growRegion(region)
			return m.realise(a, s, region)
		}
	}
	// Find the resource that is short: with an unlimited number of cores the request either fits, and cores are
	// short, or another resource is.
	a := widest(attempts)
	for g := range m.groups {
		m.groups[g].vcpus = asked[g]
	}
	m.share(a)
	m.growRegion(region)
	short := m.diagnose(a, region)
	if short.cpusOnly && !m.place.Strict && m.place.Pin != "always" {
		return m.unpinned(a, region, short)
	}
	return nil, errors.New(short.text)
}

// widest returns the attempt whose cores serve the most vCPUs, the last one if several do.
func widest(attempts []attempt) *attempt {
	best, most := 0, -1
	for i := range attempts {
		a := &attempts[i]
		n := 0
		for _, r := range a.capacities {
			for j := range r.nodes {
				if r.nodes[j].open && r.nodes[j].memory() > 0 {
					n += r.nodes[j].count(a.threads) * a.threads
				}
			}
		}
		if n >= most {
			best, most = i, n
		}
	}
	return &attempts[best]
}

func (m *maker) total() int {
	n := 0
	for i := range m.groups {
		n += m.groups[i].count
	}
	return n
}

// sized solves with the requested vCPUs. A group that leaves them open gets its share of the cores, or the next
// smaller number for which a plan exists.
func (m *maker) sized(a *attempt, asked []int) *solution {
	open := false
	for g := range m.groups {
		m.groups[g].vcpus = asked[g]
		open = open || asked[g] == 0
	}
	if !open {
		return m.solve(a)
	}
	fair := m.share(a)
	for v := fair; v >= 1 && v >= fair/2; v-- {
		for g := range m.groups {
			if asked[g] == 0 {
				m.groups[g].vcpus = v
			}
		}
		if s := m.solve(a); s != nil {
			if v < fair {
				m.notes = append(m.notes, fmt.Sprintf("%d vCPUs a VM, not the %d that its share of the cores comes to: %d cannot be laid out equally", v, fair, fair))
			}
			return s
		}
	}
	return nil
}

// share assigns VMs without a number of vCPUs in the file the fair share of a host's cores, at least 1, and returns
// it.
func (m *maker) share(a *attempt) int {
	cores := 1 << 30
	for _, r := range a.capacities {
		n := 0
		for j := range r.nodes {
			if r.nodes[j].open && r.nodes[j].memory() > 0 {
				n += r.nodes[j].count(1)
			}
		}
		cores = min(cores, n)
	}
	count, fixed := 0, 0
	for i := range m.groups {
		g := &m.groups[i]
		if g.spec.VCPUs == 0 {
			count += g.count
		} else {
			fixed += g.count * g.vcpus
		}
	}
	if count == 0 {
		return 0
	}
	per := (count + len(m.hosts) - 1) / len(m.hosts)
	v := max(1, (cores-(fixed+len(m.hosts)-1)/len(m.hosts))/per)
	for i := range m.groups {
		if m.groups[i].spec.VCPUs == 0 {
			m.groups[i].vcpus = v
		}
	}
	return v
}

// align returns the unit in bytes of which a node's memory is a multiple: its page size, or 2 MiB for transparent
// huge pages.
func align(page uint64) uint64 {
	if page == 0 {
		return 2 << 20
	}
	return page
}

// shapes returns the possible shapes of a group's VMs on a host of n nodes.
func (m *maker) shapes(g *group, n, threads int) []shape {
	var out []shape
	for h := 1; h <= n; h++ {
		if g.vcpus%h != 0 {
			continue
		}
		guest := h
		if k := m.place.Nodes; k > 0 {
			if g.vcpus%k != 0 || k%h != 0 && h%k != 0 {
				continue
			}
			guest = k
		}
		for class, page := range m.pages {
			if !m.pageAllowed(page) || page > 0 && g.memory%page != 0 {
				continue
			}
			if page > 0 && g.memory/page < uint64(guest) {
				continue
			}
			unit := align(page)
			units := (g.memory + unit - 1) / unit
			perGuest := (units + uint64(guest) - 1) / uint64(guest)
			bytes := perGuest * unit
			if h < guest {
				bytes *= uint64(guest / h)
			} else if h > guest {
				k := uint64(h / guest)
				bytes = (perGuest + k - 1) / k * unit
			}
			if page == 0 && h == 1 {
				bytes = g.memory
			}
			out = append(out, shape{h, guest, threads, class, (g.vcpus/h + threads - 1) / threads, bytes})
		}
	}
	return out
}

func (m *maker) pageAllowed(page uint64) bool {
	switch m.place.Pages {
	case "huge":
		return page > 0
	case "1GiB":
		return page == 1<<30
	case "512MiB":
		return page == 512<<20
	case "2MiB":
		return page == 2<<20
	case "ordinary":
		return page == 0
	}
	return true
}

// solution is the placement on all hosts.
type solution struct {
	cost   cost
	shapes []shape // by group
	counts [][]int // by host, by group; nil: none
	placed []*placed
}

// combination is one shape for each group.
type combination struct {
	shapes []shape
	low    cost // lower bound of its cost
}

// combinations returns the combinations of all groups' shapes, those with the lowest bound first.
func (m *maker) combinations(threads int) []combination {
	most, least := 0, 1<<30
	for i := range m.hosts {
		most, least = max(most, len(m.hosts[i].Nodes)), min(least, len(m.hosts[i].Nodes))
	}
	out := []combination{{}}
	const limit = 5000
	for g := range m.groups {
		list := m.shapes(&m.groups[g], most, threads)
		for len(out)*len(list) > limit && len(list) > 1 {
			list = list[:len(list)-1]
		}
		var next []combination
		for _, c := range out {
			for _, s := range list {
				d := combination{append(append([]shape(nil), c.shapes...), s), c.low}
				n := int64(m.groups[g].count)
				d.low[termMismatch] += n * int64(abs(s.hostNodes-s.guestNodes))
				if m.policy == spread {
					d.low[termNodes] += n * int64(max(0, least-s.hostNodes))
				} else {
					d.low[termNodes] += n * int64(s.hostNodes)
				}
				d.low[termPages] += n * int64(s.class)
				next = append(next, d)
			}
		}
		out = next
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].low.less(&out[j].low) })
	return out
}

// solve returns the cheapest placement with an attempt's capacities, or nil.
func (m *maker) solve(a *attempt) *solution {
	var best *solution
	for _, c := range m.combinations(a.threads) {
		if best != nil && !c.low.less(&best.cost) {
			if m.policy == spread {
				continue // the combinations are not ordered by the whole cost: overlap precedes it
			}
			break
		}
		if s := m.spreadOut(a, c.shapes); s != nil && (best == nil || s.cost.less(&best.cost)) {
			best = s
		}
	}
	return best
}

// Bounds in bytes of a region whose size the cluster file leaves open.
const (
	regionLeast = 64 << 20
	regionMost  = 4 << 30
	// Twice as many ranks as vCPUs have the 8 MiB each whose buffers are as fast as larger ones
	// (measurements/fabric.md).
	regionVCPU = 16 << 20
)

// growRegion sizes a region whose size the cluster file leaves open, by the vCPUs of the plan.
func (m *maker) growRegion(r *Region) {
	if r == nil || m.c.Region.Size != nil {
		return
	}
	vcpus := 0
	for i := range m.groups {
		vcpus += m.groups[i].count * m.groups[i].vcpus
	}
	r.SizeBytes = DefaultRegion(vcpus)
}

// DefaultRegion returns the size in bytes of a region whose size the cluster file leaves open: a power of two, for
// VMs that have vcpus vCPUs together.
func DefaultRegion(vcpus int) uint64 {
	size := uint64(regionLeast)
	for size < regionMost && size < uint64(max(vcpus, 0))*regionVCPU {
		size *= 2
	}
	return size
}

// regionOf returns the region that a cluster file asks for, or nil if it asks for none. count is the number of VMs in
// the cluster.
func regionOf(c *spec.Cluster, count, hosts int) (*Region, error) {
	r := &Region{SizeBytes: regionLeast, Backing: c.Region.Backing, Device: c.Region.Device, HostNode: -1}
	switch {
	case c.Region.Size != nil:
		r.SizeBytes = uint64(*c.Region.Size)
	case count < 2:
		r.SizeBytes = 0
	}
	if r.SizeBytes == 0 {
		return nil, nil
	}
	if r.SizeBytes < 1<<20 || r.SizeBytes&(r.SizeBytes-1) != 0 {
		return nil, fmt.Errorf("region.size %s: a PCI memory window is a power of two of at least 1MiB", words.Bytes(r.SizeBytes))
	}
	if r.Backing == "" {
		r.Backing = "shm"
	}
	if r.Device == "" || r.Device == "auto" {
		r.Device = "ivshmem"
	}
	return r, nil
}
