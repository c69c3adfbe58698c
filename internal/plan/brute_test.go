package plan

import (
	"fmt"
	"io"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// brute finds the cheapest placement on one host by exhaustive search: every page size and number of nodes for each
// group, every set of nodes and every device for each VM, every distribution of cores over caches. It shares with the
// planner only the description of the host (capacity) and the list of terms.
type brute struct {
	m      *maker
	r      *capacity
	t      int
	shapes []shape
	vms    []int
	at     [][]int // nodes of each VM
	dev    [][]int // pools of each VM
	best   *cost
	memo   map[string]int
}

func bruteForce(m *maker, r *capacity, threads int) *cost {
	b := &brute{m: m, r: r, t: threads, memo: map[string]int{}}
	b.shape(0)
	return b.best
}

func (b *brute) shape(g int) {
	if g == len(b.m.groups) {
		b.vms, b.at, b.dev = nil, nil, nil
		for i := range b.m.groups {
			for k := 0; k < b.m.groups[i].count; k++ {
				b.vms = append(b.vms, i)
			}
		}
		b.vm(0)
		return
	}
	for _, s := range b.m.shapes(&b.m.groups[g], len(b.r.nodes), b.t) {
		b.shapes = append(b.shapes, s)
		b.shape(g + 1)
		b.shapes = b.shapes[:g]
	}
}

func (b *brute) vm(i int) {
	if i == len(b.vms) {
		if c := b.cost(); c != nil && (b.best == nil || c.less(b.best)) {
			b.best = c
		}
		return
	}
	s := &b.shapes[b.vms[i]]
	for mask := 1; mask < 1<<len(b.r.nodes); mask++ {
		var nodes []int
		for j := range b.r.nodes {
			if mask>>j&1 == 1 {
				nodes = append(nodes, j)
			}
		}
		if len(nodes) != s.hostNodes {
			continue
		}
		b.at = append(b.at, nodes)
		if b.fits() {
			b.device(i, nil)
		}
		b.at = b.at[:i]
	}
}

func (b *brute) device(i int, have []int) {
	var need [][]int
	for d := range b.m.groups[b.vms[i]].spec.Devices {
		dev := &b.m.groups[b.vms[i]].spec.Devices[d]
		for k := 0; k < max(1, dev.Count); k++ {
			need = append(need, b.r.eligible(dev))
		}
	}
	if len(have) == len(need) {
		b.dev = append(b.dev, append([]int(nil), have...))
		b.vm(i + 1)
		b.dev = b.dev[:i]
		return
	}
	for _, p := range need[len(have)] {
		used := 0
		for _, v := range append(b.dev[:len(b.dev):len(b.dev)], have) {
			for _, q := range v {
				if p == q {
					used++
				}
			}
		}
		if used < len(b.r.pools[p].free) {
			b.device(i, append(have[:len(have):len(have)], p))
		}
	}
}

// fits reports whether the VMs placed so far fit.
func (b *brute) fits() bool {
	for j := range b.r.nodes {
		n := &b.r.nodes[j]
		cores := 0
		mem := make([]uint64, len(n.free))
		for i, nodes := range b.at {
			for _, k := range nodes {
				if k == j {
					cores += b.shapes[b.vms[i]].cores
					mem[b.shapes[b.vms[i]].class] += b.shapes[b.vms[i]].bytes
					if !n.open {
						return false
					}
				}
			}
		}
		if cores > n.count(b.t) {
			return false
		}
		for k := range mem {
			if mem[k] > n.free[k] {
				return false
			}
		}
	}
	return true
}

// cost computes the terms as docs/plan.md defines them.
func (b *brute) cost() *cost {
	var c cost
	pol := b.m.policy
	worstDev, worstApart := map[int]int64{}, map[int]int64{}
	for i, nodes := range b.at {
		s := &b.shapes[b.vms[i]]
		if s.guestNodes > s.hostNodes {
			c[termMismatch] += int64(s.guestNodes - s.hostNodes)
		} else {
			c[termMismatch] += int64(s.hostNodes - s.guestNodes)
		}
		if pol == spread {
			c[termNodes] += int64(len(b.r.nodes) - len(nodes))
		} else {
			c[termNodes] += int64(len(nodes))
		}
		c[termPages] += int64(s.class)
		var dev, apart int64
		for _, p := range b.dev[i] {
			for _, j := range nodes {
				if home := b.r.pools[p].node; home >= 0 {
					dev += int64(b.r.dist[home][j])
				} else {
					dev += unknownDistance
				}
			}
		}
		for x := range nodes {
			for y := 0; y < x; y++ {
				apart += int64(b.r.dist[nodes[x]][nodes[y]])
			}
		}
		c[termDevice] += dev
		c[termApart] += apart
		worstDev[b.vms[i]] = max(worstDev[b.vms[i]], dev)
		worstApart[b.vms[i]] = max(worstApart[b.vms[i]], apart)
	}
	for g := range b.m.groups {
		c[termDeviceWorst] += worstDev[g]
		c[termApartWorst] += worstApart[g]
	}
	for j := range b.r.nodes {
		n := &b.r.nodes[j]
		var items []int
		for i, nodes := range b.at {
			for _, k := range nodes {
				if k == j {
					items = append(items, b.shapes[b.vms[i]].cores)
				}
			}
		}
		all := n.residents + len(items)
		switch pol {
		case consolidate:
			if n.residents == 0 && all > 0 {
				c[termOverlap]++
			}
		case spread:
			c[termOverlapFirst] += int64(all*(all-1)/2 - n.residents*(n.residents-1)/2)
		default:
			c[termOverlap] += int64(all*(all-1)/2 - n.residents*(n.residents-1)/2)
		}
		var bins []int
		for g := range n.groups {
			bins = append(bins, n.groups[g].count(b.t))
		}
		c[termCaches] += int64(b.caches(items, bins))
	}
	return &c
}

// caches tries every distribution of the items' cores over the caches.
func (b *brute) caches(items, bins []int) int {
	if len(items) == 0 {
		return 0
	}
	key := fmt.Sprint(items, bins)
	if v, ok := b.memo[key]; ok {
		return v
	}
	best := 1 << 30
	left := append([]int(nil), bins...)
	var item func(i, cost int)
	var fill func(i, bin, need, spans, cost int)
	fill = func(i, bin, need, spans, cost int) {
		if bin == len(left) {
			if need == 0 {
				if b.m.wide {
					item(i+1, cost+min(items[i], len(left))-spans)
				} else {
					item(i+1, cost+spans-1)
				}
			}
			return
		}
		for k := 0; k <= min(need, left[bin]); k++ {
			left[bin] -= k
			more := spans
			if k > 0 {
				more++
			}
			fill(i, bin+1, need-k, more, cost)
			left[bin] += k
		}
	}
	item = func(i, cost int) {
		if cost >= best {
			return
		}
		if i == len(items) {
			best = cost
			return
		}
		fill(i, 0, items[i], 0, cost)
	}
	item(0, 0)
	b.memo[key] = best
	return best
}

// randomHost returns a host of at most 4 nodes and 16 cores.
func randomHost(r *rand.Rand) topology.Host {
	h := topology.Host{Name: "h", PhysBits: 46}
	nodes := 1 + r.Intn(4)
	threads := 1 + r.Intn(2)
	cores, cpu, l3 := 0, 0, 0
	for n := 0; n < nodes; n++ {
		per := r.Intn(16/nodes+1) | r.Intn(16/nodes+1)
		per = min(per, 16/nodes)
		groups := 1 + r.Intn(3)
		node := topology.Node{ID: n * (1 + r.Intn(2)), Allowed: r.Intn(20) > 0}
		if n > 0 && node.ID <= h.Nodes[n-1].ID {
			node.ID = h.Nodes[n-1].ID + 1
		}
		node.MemoryBytes = uint64(r.Intn(17)) << 30
		node.AvailableBytes = node.MemoryBytes
		if r.Intn(2) == 0 {
			node.Pools = append(node.Pools, topology.Pool{PageBytes: 1 << 30, Total: 8, Free: r.Intn(9)})
		}
		if r.Intn(3) == 0 {
			node.Pools = append(node.Pools, topology.Pool{PageBytes: 2 << 20, Total: 4096, Free: r.Intn(4097)})
		}
		for c := 0; c < per; c++ {
			for t := 0; t < threads; t++ {
				h.CPUs = append(h.CPUs, topology.CPU{ID: cpu, Node: node.ID, Package: n, Die: n, L3: l3 + c*groups/max(per, 1), Core: cores,
					Online: true, Allowed: r.Intn(25) > 0})
				node.CPUs = append(node.CPUs, cpu)
				cpu++
			}
			cores++
		}
		l3 += groups
		h.Nodes = append(h.Nodes, node)
	}
	if cpu == 0 {
		h.CPUs = append(h.CPUs, topology.CPU{Node: h.Nodes[0].ID, Online: true, Allowed: true})
	}
	far := []int{11, 12, 16, 21, 32}
	for i := range h.Nodes {
		h.Nodes[i].Distances = make([]int, nodes)
		for j := range h.Nodes {
			h.Nodes[i].Distances[j] = 10
			if j < i {
				h.Nodes[i].Distances[j] = far[r.Intn(len(far))]
				h.Nodes[j].Distances[i] = h.Nodes[i].Distances[j]
			}
		}
	}
	for k := 0; k < r.Intn(3); k++ {
		pf := fmt.Sprintf("0000:%02x:00.0", 0x10+k)
		d := topology.Device{Address: pf, Class: 0x020700, Node: -1, Group: -1, RDMA: []string{fmt.Sprintf("mlx5_%d", k)}}
		if r.Intn(6) > 0 {
			d.Node = h.Nodes[r.Intn(nodes)].ID
		}
		for v := 0; v < 1+r.Intn(3); v++ {
			vf := fmt.Sprintf("0000:%02x:00.%d", 0x10+k, v+1)
			d.VFs = append(d.VFs, vf)
		}
		h.Devices = append(h.Devices, d)
	}
	sort.Slice(h.Devices, func(i, j int) bool { return h.Devices[i].Address < h.Devices[j].Address })
	return h
}

func randomCluster(r *rand.Rand) *spec.Cluster {
	pick := func(s ...string) string { return s[r.Intn(len(s))] }
	c := &spec.Cluster{Version: 1}
	c.Placement = spec.Placement{
		Policy: pick("auto", "auto", "consolidate", "spread"),
		Hint:   pick("", "", "bandwidth", "latency", "cache"),
		SMT:    pick("isolate", "isolate", "prefer"), Pages: pick("auto", "auto", "auto", "ordinary", "huge"), Pin: "always",
		Reserve: r.Intn(3) / 2 * r.Intn(3),
	}
	if r.Intn(6) == 0 {
		c.Placement.Nodes = 1 + r.Intn(4)
	}
	for g := 0; g < 1+r.Intn(2); g++ {
		v := spec.Group{Name: string(rune('a' + g)), Count: 1 + r.Intn(3), VCPUs: 1 + r.Intn(6), Memory: spec.Size(1+r.Intn(6)) << 29}
		if r.Intn(5) == 0 {
			v.Devices = []spec.Device{{Type: "vf", Class: "infiniband", Count: 1 + r.Intn(2)}}
		}
		c.VMs = append(c.VMs, v)
	}
	return c
}

// TestNeverWorseThanExhaustive: the planner's cost is never above that of the exhaustive search, and the planner
// finds a placement whenever one exists.
func TestNeverWorseThanExhaustive(t *testing.T) {
	n := 3000
	if s := os.Getenv("NEARMETAL_PLAN_CASES"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	placed := 0
	for seed := 0; seed < n; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		h, c := randomHost(r), randomCluster(r)
		l := Ledger{}
		if len(h.CPUs) > 2 && r.Intn(4) == 0 {
			l.Held = []Held{{Host: "h", VM: "old", CPUs: []int{h.CPUs[r.Intn(len(h.CPUs))].ID}}}
		}
		m, err := newMaker(c, []topology.Host{h}, l)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		a := attempt{threads: 1}
		if c.Placement.SMT == "prefer" {
			a.threads = 2
		}
		m.fill(&a)
		want := bruteForce(m, a.capacities[0], a.threads)
		got := m.solve(&a)
		switch {
		case want == nil && got == nil:
		case want == nil:
			t.Fatalf("seed %d: a placement of cost %v where exhaustive search has none\n%+v\n%+v", seed, got.cost, h, c)
		case got == nil:
			t.Fatalf("seed %d: no placement, exhaustive search has one of cost %v\n%+v\n%+v", seed, *want, h, c)
		case want.less(&got.cost):
			t.Fatalf("seed %d: cost %v, exhaustive search has %v\n%+v\n%+v", seed, got.cost, *want, h, c)
		case got.cost.less(want):
			t.Fatalf("seed %d: cost %v is below exhaustive search's %v: one of them counts wrongly\n%+v\n%+v", seed, got.cost, *want, h, c)
		default:
			placed++
			check(t, m, &a, got)
		}
	}
	if placed < n/4 {
		t.Errorf("only %d of %d requests could be placed: the test tests little", placed, n)
	}
	t.Logf("%d of %d requests placed, each at the cost of exhaustive search", placed, n)
}

// TestRandomRequests: for any request and any host the result is a valid plan or a one-line error with the reason.
func TestRandomRequests(t *testing.T) {
	planned := 0
	for seed := 0; seed < 4000; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		c := randomCluster(r)
		c.Accel = []string{"kvm", "tcg"}[r.Intn(2)]
		c.Placement.SMT = []string{"auto", "isolate", "prefer", "require"}[r.Intn(4)]
		c.Placement.Strict, c.Placement.Pin = r.Intn(2) == 0, []string{"auto", "always", "never"}[r.Intn(3)]
		c.Placement.HostPolicy = []string{"pack", "spread"}[r.Intn(2)]
		for g := range c.VMs {
			c.VMs[g].VCPUs *= r.Intn(2)
		}
		if r.Intn(3) == 0 {
			n := spec.Size(1<<20) << r.Intn(14)
			c.Region = spec.Region{Size: &n, Backing: []string{"shm", "hugetlb"}[r.Intn(2)]}
		}
		hosts := []topology.Host{randomHost(r)}
		for k := r.Intn(3); k > 0; k-- {
			h := randomHost(r)
			h.Name = fmt.Sprint("h", k)
			hosts = append(hosts, h)
		}
		p, err := Make(c, hosts, Ledger{})
		if err != nil {
			if strings.Contains(err.Error(), "\n") || len(err.Error()) < 10 {
				t.Fatalf("seed %d: error %q", seed, err)
			}
			continue
		}
		planned++
		if err := p.SVG(io.Discard, hosts, Ledger{}); err != nil {
			t.Fatal(err)
		}
		p.text(true)
		index := map[string]*topology.Host{}
		for i := range hosts {
			index[hosts[i].Name] = &hosts[i]
		}
		for i := range p.VMs {
			if v := &p.VMs[i]; v.Index != i || v.check() != nil || index[v.Host] == nil {
				t.Fatalf("seed %d: %+v: %v", seed, v, v.check())
			}
		}
		holds(t, p, index)
	}
	if planned < 500 {
		t.Errorf("only %d plans", planned)
	}
	t.Logf("%d plans", planned)
}

// TestEven: with a bound on the steps that is too low for the search to find anything, equal VMs are still placed
// whenever counting shows that they fit.
func TestEven(t *testing.T) {
	h := []topology.Host{machine(t, "epyc-nps4")}
	for _, g := range []spec.Group{{Count: 9, VCPUs: 14}, {Count: 21, VCPUs: 6}, {Count: 3, VCPUs: 40}, {Count: 7, VCPUs: 18}} {
		g.Memory = 4 << 30
		m, err := newMaker(clusterOf(spec.Placement{Strict: true, SMT: "isolate"}, g), h, Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		a := attempt{threads: 1}
		m.fill(&a)
		m.steps = 3
		s := m.solve(&a)
		if fits := m.capacityFor(&a); (s != nil) != fits {
			t.Errorf("%d VMs of %d vCPUs: placed %v, room %v", g.Count, g.VCPUs, s != nil, fits)
		}
		if s != nil {
			check(t, m, &a, s)
		}
	}
}

// check verifies the invariants of a realised plan.
func check(t *testing.T, m *maker, a *attempt, s *solution) {
	t.Helper()
	p, err := m.realise(a, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.VMs {
		if err := p.VMs[i].check(); err != nil {
			t.Fatalf("%s: %v", p.VMs[i].Name, err)
		}
		if len(p.VMs[i].Pins) != p.VMs[i].VCPUs {
			t.Fatalf("%s: %d pins for %d vCPUs", p.VMs[i].Name, len(p.VMs[i].Pins), p.VMs[i].VCPUs)
		}
	}
	holds(t, p, map[string]*topology.Host{m.hosts[0].Name: &m.hosts[0]})
}

// holds verifies that each CPU, core and device has one VM, that the memory exists, and that QEMU's threads stay off
// the VMs' cores.
func holds(t *testing.T, p *Plan, hosts map[string]*topology.Host) {
	t.Helper()
	type place struct {
		host string
		id   int
	}
	cores, vcpus, dev := map[place]string{}, map[place]string{}, map[string]string{}
	memory := map[place]map[uint64]uint64{} // by page size
	for i := range p.VMs {
		v := &p.VMs[i]
		h := hosts[v.Host]
		for _, pin := range v.Pins {
			c := h.CPU(pin[0])
			if len(pin) != 1 || c == nil || !c.Usable() || vcpus[place{v.Host, c.ID}] != "" {
				t.Fatalf("%s: pinned to %v", v.Name, pin)
			}
			vcpus[place{v.Host, c.ID}] = v.Name
			at := place{v.Host, c.Core}
			if cores[at] != "" && cores[at] != v.Name {
				t.Fatalf("%s and %s share core %d", cores[at], v.Name, c.Core)
			}
			cores[at] = v.Name
		}
		for _, n := range v.Nodes {
			if n.PageBytes > 0 && n.MemoryBytes%n.PageBytes != 0 {
				t.Fatalf("%s: node of %d bytes in pages of %d", v.Name, n.MemoryBytes, n.PageBytes)
			}
			for _, id := range n.HostNodes {
				at := place{v.Host, id}
				if memory[at] == nil {
					memory[at] = map[uint64]uint64{}
				}
				memory[at][n.PageBytes] += n.MemoryBytes / uint64(len(n.HostNodes))
			}
		}
		for _, d := range v.Devices {
			if who := dev[v.Host+d.Address]; who != "" {
				t.Fatalf("%s and %s both have %s", v.Name, who, d.Address)
			}
			dev[v.Host+d.Address] = v.Name
		}
	}
	for at, sizes := range memory {
		n := &hosts[at.host].Nodes[hosts[at.host].NodeIndex(at.id)]
		for page, bytes := range sizes {
			have := n.AvailableBytes
			for _, pool := range n.Pools {
				if pool.PageBytes == page {
					have = uint64(pool.Free) * page
				}
			}
			// Memory that is not a multiple of a page is rounded within one VM's nodes.
			if bytes > have+2<<20 || !n.Allowed {
				t.Fatalf("node %d of %s: %d bytes in pages of %d, it has %d", at.id, at.host, bytes, page, have)
			}
		}
	}
	for i := range p.VMs {
		v := &p.VMs[i]
		for _, id := range v.EmulatorCPUs {
			if o := cores[place{v.Host, hosts[v.Host].CPU(id).Core}]; o != "" {
				t.Fatalf("%s: emulator on CPU %d, whose core is %s's", v.Name, id, o)
			}
		}
	}
}
