package plan

import "sort"

// policy is the effect of placement.policy and hint.
type policy int

const (
	auto policy = iota
	consolidate
	spread
)

// shape is the layout of each VM of a group on a host, the same for all of them.
type shape struct {
	hostNodes  int    // host nodes under the VM
	guestNodes int    // guest nodes that the guest sees
	threads    int    // vCPUs per core
	class      int    // index of its page size
	cores      int    // on each host node
	bytes      uint64 // on each host node, rounded up to pages
}

// want is a group of equal VMs to be placed on one host.
type want struct {
	shape
	count int
	units [][]int // for each device of a VM, the pools that can serve it
}

// placement is the position of one VM in the search.
type placement struct {
	group int
	nodes []int // dense indices, ascending
	units []int // pool of each device
}

// placed is a solution for one host.
type placed struct {
	cost       cost
	placements []placement // group by group
	proof      bool        // the search was exhaustive
}

// Bounds of the search on one host. Beyond them the best placement so far is used and reported as not proved optimal.
// In the search for requests that would fit, missing one does no harm.
const (
	searchSteps  = 400_000
	nearestSteps = 4_000
	fleetSteps   = 4_000_000 // over all hosts together
	leastSteps   = 1_000
)

// search finds the cheapest placement of groups of VMs on one host by branch and bound, VM by VM, node by node.
type search struct {
	r       *capacity
	p       policy
	wide    bool // hint: cache
	threads int
	wants   []want
	vms     []int // group of each VM, in order
	static  cost  // terms that depend on the shapes only

	free      []int      // cores by node
	mem       [][]uint64 // bytes by node and class
	bins      [][]int    // cores by node and cache
	items     [][]int    // cores of the VMs on each node, in order
	packs     []map[string]int
	residents []int // VMs on each node, including the ledger's
	vfs       []int
	order     [][]int   // nodes in the order tried by each group, the likely ones first
	near      [][]int64 // for each node the sums of its k smallest distances to others
	devWorst  []int64
	distWorst []int64
	minApart  []int64 // for each group a lower bound of the total distance between a VM's nodes
	minReach  []int64 // for each group a lower bound of the distance from a node to the devices

	zero       []int64 // never written
	placements []placement
	best       *placed
	steps      int
	limit      int
	even       bool // no search: each VM on the emptiest nodes
}

// solve returns the cheapest placement, or nil if none exists or the search found none in limit steps.
func solve(r *capacity, p policy, wide bool, threads int, wants []want, limit int) *placed {
	s := &search{r: r, p: p, wide: wide, threads: threads, wants: wants, limit: limit}
	n := len(r.nodes)
	s.free, s.residents, s.items = make([]int, n), make([]int, n), make([][]int, n)
	s.mem, s.bins, s.packs = make([][]uint64, n), make([][]int, n), make([]map[string]int, n)
	for j := range r.nodes {
		node := &r.nodes[j]
		s.residents[j] = node.residents
		s.mem[j] = append([]uint64(nil), node.free...)
		for g := range node.groups {
			c := node.groups[g].count(threads)
			s.bins[j] = append(s.bins[j], c)
			s.free[j] += c
		}
	}
	for i := range r.pools {
		s.vfs = append(s.vfs, len(r.pools[i].free))
	}
	s.zero = make([]int64, n)
	s.devWorst, s.distWorst = make([]int64, len(wants)), make([]int64, len(wants))
	s.prepare()
	s.vm(0, s.static, s.rest(0))
	proof := s.steps < limit
	if s.best == nil && !proof {
		s.even = true
		s.steps = 0
		s.vm(0, s.static, s.rest(0))
	}
	if s.best == nil {
		return nil
	}
	s.best.proof = proof
	return s.best
}

// prepare orders the VMs and nodes and computes the tables of bounds.
func (s *search) prepare() {
	r := s.r
	n := len(r.nodes)
	s.near = make([][]int64, n)
	for i := range s.near {
		d := make([]int, 0, n)
		for j := range r.nodes {
			if i != j {
				d = append(d, int(r.dist[i][j]))
			}
		}
		sort.Ints(d)
		s.near[i] = make([]int64, n)
		for k, v := range d {
			s.near[i][k+1] = s.near[i][k] + int64(v)
		}
	}
	s.minApart, s.minReach = make([]int64, len(s.wants)), make([]int64, len(s.wants))
	s.order = make([][]int, len(s.wants))
	for g := range s.wants {
		w := &s.wants[g]
		if w.count == 0 {
			continue
		}
		for k := 0; k < w.count; k++ {
			s.vms = append(s.vms, g)
		}
		s.static[termMismatch] += int64(w.count * abs(w.hostNodes-w.guestNodes))
		if s.p == spread {
			s.static[termNodes] += int64(w.count * (len(r.nodes) - w.hostNodes))
		} else {
			s.static[termNodes] += int64(w.count * w.hostNodes)
		}
		s.static[termPages] += int64(w.count * w.class)
		var low []int
		for j := range r.nodes {
			s.order[g] = append(s.order[g], j)
			low = append(low, int(s.near[j][min(w.hostNodes, n)-1]))
		}
		sort.Ints(low)
		for k := 0; k < w.hostNodes && k < n; k++ {
			s.minApart[g] += int64(low[k])
		}
		s.minApart[g] = (s.minApart[g] + 1) / 2
		s.minReach[g] = s.reach(w, 0)
		for j := 1; j < n; j++ {
			s.minReach[g] = min(s.minReach[g], s.reach(w, j))
		}
		s.arrange(g)
	}
}

// arrange orders the nodes that group g tries: nearest to its devices, with the fewest VMs, then (policy spread) the
// emptiest or (others) the fullest in which it fits, so that large holes stay whole, then the lowest. If a VM needs
// three nodes or more, a set of near nodes found by exchange comes first, because the bounds cut more if the first
// try is good.
func (s *search) arrange(g int) {
	w := &s.wants[g]
	order := s.order[g]
	sort.SliceStable(order, func(a, b int) bool {
		x, y := order[a], order[b]
		if dx, dy := s.reach(w, x), s.reach(w, y); dx != dy {
			return dx < dy
		}
		if s.residents[x] != s.residents[y] {
			return s.residents[x] < s.residents[y]
		}
		if fx, fy := s.fits(w, x), s.fits(w, y); fx != fy {
			return fx
		}
		if s.p == spread {
			return s.free[x] > s.free[y]
		}
		return s.free[x] < s.free[y]
	})
	if w.hostNodes < 3 {
		return
	}
	first := s.gather(w, order)
	if first == nil {
		return
	}
	in := map[int]bool{}
	for _, j := range first {
		in[j] = true
	}
	out := append(make([]int, 0, len(order)), first...)
	for _, j := range order {
		if !in[j] {
			out = append(out, j)
		}
	}
	s.order[g] = out
}

// gather finds a good set of nodes for one VM: it starts at each node with the nearest ones, then exchanges nodes
// while that reduces the distances. It returns nil if too few nodes have room.
func (s *search) gather(w *want, order []int) []int {
	var able []int
	for _, j := range order {
		if s.fits(w, j) {
			able = append(able, j)
		}
	}
	k := w.hostNodes
	if len(able) < k {
		return nil
	}
	const far = 1 << 20 // above any sum of distances in a VM
	reach := make([]int64, len(s.r.nodes))
	for _, j := range able {
		reach[j] = s.reach(w, j) * far
	}
	var best []int
	var bestCost int64
	for _, start := range able {
		set, rest := []int{start}, []int(nil)
		for _, j := range able {
			if j != start {
				rest = append(rest, j)
			}
		}
		to := make([]int64, len(s.r.nodes)) // distance to the set
		total := reach[start]
		for {
			for _, j := range rest {
				to[j] += int64(s.r.dist[set[len(set)-1]][j])
			}
			if len(set) == k {
				break
			}
			at := 0
			for i, j := range rest {
				if reach[j]+to[j] < reach[rest[at]]+to[rest[at]] {
					at = i
				}
			}
			total += reach[rest[at]] + to[rest[at]]
			set = append(set, rest[at])
			rest = append(rest[:at], rest[at+1:]...)
		}
		for improved := true; improved; {
			improved = false
			for i, out := range set {
				var own int64
				for _, j := range set {
					if j != out {
						own += int64(s.r.dist[out][j])
					}
				}
				for x, in := range rest {
					gain := reach[out] + own - reach[in] - (to[in] - int64(s.r.dist[out][in]))
					if gain <= 0 {
						continue
					}
					for _, j := range rest {
						to[j] += int64(s.r.dist[in][j]) - int64(s.r.dist[out][j])
					}
					to[out] = own + int64(s.r.dist[in][out])
					set[i], rest[x] = in, out
					total -= gain
					improved = true
					break
				}
			}
		}
		if best == nil || total < bestCost {
			best, bestCost = set, total
		}
	}
	sort.Ints(best)
	return best
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// reach returns the least cost of a VM's devices on a node.
func (s *search) reach(w *want, node int) int64 {
	var sum int64
	for _, pools := range w.units {
		best := int64(-1)
		for _, p := range pools {
			if d := s.deviceDistance(p, node); best < 0 || d < best {
				best = d
			}
		}
		sum += max(best, 0)
	}
	return sum
}

func (s *search) deviceDistance(pool, node int) int64 {
	if j := s.r.pools[pool].node; j >= 0 {
		return int64(s.r.dist[j][node])
	}
	return unknownDistance
}

// rest returns a lower bound of the cost that VMs from the i-th on will add.
func (s *search) rest(i int) cost {
	var c cost
	seen := make([]bool, len(s.wants))
	for _, g := range s.vms[i:] {
		w := &s.wants[g]
		c[termApart] += s.minApart[g]
		if !seen[g] {
			seen[g] = true
			if s.minApart[g] > s.distWorst[g] {
				c[termApartWorst] += s.minApart[g] - s.distWorst[g]
			}
		}
		c[termDevice] += s.minReach[g] * int64(w.hostNodes)
	}
	return c
}

// vm places the i-th VM and those after it.
func (s *search) vm(i int, c cost, rest cost) {
	if i == len(s.vms) {
		if s.best == nil || c.less(&s.best.cost) {
			out := &placed{cost: c}
			for _, sp := range s.placements {
				nodes := append([]int(nil), sp.nodes...)
				sort.Ints(nodes)
				out.placements = append(out.placements, placement{sp.group, nodes, append([]int(nil), sp.units...)})
			}
			s.best = out
		}
		return
	}
	g := s.vms[i]
	w := &s.wants[g]
	// This VM's own share of the rest is bounded more tightly, node by node.
	rest[termApart] -= s.minApart[g]
	start := 0
	if s.even {
		s.order[g] = s.emptiest(w)
	} else if i > 0 && s.vms[i-1] == g {
		// Equal VMs are interchangeable: the positions of their first nodes ascend.
		start = s.position(g, s.placements[i-1].nodes[0])
	}
	s.placements = append(s.placements, placement{group: g, nodes: make([]int, 0, w.hostNodes)})
	s.node(i, start, c, rest, s.zero, 0)
	s.placements = s.placements[:i]
}

// emptiest returns the nodes with room for the most VMs of a group, as many as one VM needs. Placing each VM on them
// finds a placement of equal VMs whenever one exists.
func (s *search) emptiest(w *want) []int {
	places := make([]int, len(s.r.nodes))
	var order []int
	for j := range s.r.nodes {
		if s.fits(w, j) {
			places[j] = min(s.free[j]/w.cores, int(min(s.mem[j][w.class]/max(1, w.bytes), 1<<20)))
			order = append(order, j)
		}
	}
	sort.SliceStable(order, func(a, b int) bool { return places[order[a]] > places[order[b]] })
	return order[:min(len(order), w.hostNodes)]
}

func (s *search) position(g, node int) int {
	for k, j := range s.order[g] {
		if j == node {
			return k
		}
	}
	return 0
}

// fits reports whether a node has room for one more VM of the group.
func (s *search) fits(w *want, j int) bool {
	return s.r.nodes[j].open && s.free[j] >= w.cores && s.mem[j][w.class] >= w.bytes
}

// node chooses one more node for VM i, from the k-th of its order on. apart is the distance of each node to the
// chosen ones, sum the total distance among these.
func (s *search) node(i, k int, c, rest cost, apart []int64, sum int64) {
	if s.steps++; s.steps > s.limit && !s.even {
		return
	}
	g := s.vms[i]
	w := &s.wants[g]
	sp := &s.placements[i]
	have := len(sp.nodes)
	if have == w.hostNodes {
		s.devices(i, 0, c, rest, sum)
		return
	}
	need := w.hostNodes - have
	order := s.order[g]
	if s.best != nil && w.hostNodes > 1 {
		bound := c
		bound.add(&rest)
		low, ok := s.bound(w, order[k:], need, apart)
		if !ok {
			return
		}
		bound[termApart] += sum + low
		bound[termApartWorst] += max(0, sum+low-max(s.distWorst[g], s.minApart[g]))
		if !bound.less(&s.best.cost) {
			return
		}
	} else if s.best != nil {
		bound := c
		bound.add(&rest)
		if !bound.less(&s.best.cost) {
			return
		}
	}
	var next []int64
	if w.hostNodes > 1 {
		next = make([]int64, len(apart))
	}
	for ; k+need <= len(order); k++ {
		j := order[k]
		if !s.fits(w, j) {
			continue
		}
		d := c
		add := int64(0)
		if s.p == consolidate {
			if s.residents[j] == 0 {
				add = 1
			}
			d[termOverlap] += add
		} else {
			if s.p == spread {
				d[termOverlapFirst] += int64(s.residents[j])
			} else {
				d[termOverlap] += int64(s.residents[j])
			}
		}
		before := s.pack(j)
		s.items[j] = append(s.items[j], w.cores)
		d[termCaches] += int64(s.pack(j) - before)
		s.free[j] -= w.cores
		s.mem[j][w.class] -= w.bytes
		s.residents[j]++
		sp = &s.placements[i]
		sp.nodes = append(sp.nodes, j)
		for x := range next {
			next[x] = apart[x] + int64(s.r.dist[j][x])
		}
		s.node(i, k+1, d, rest, next, sum+apart[j])
		sp = &s.placements[i]
		sp.nodes = sp.nodes[:have]
		s.residents[j]--
		s.mem[j][w.class] += w.bytes
		s.free[j] += w.cores
		s.items[j] = s.items[j][:len(s.items[j])-1]
	}
}

// bound returns the least that choosing need more nodes of order adds to the distances within the VM: the distances
// to the chosen nodes, and half of the need-1 smallest distances of each new one. ok is false if too few nodes have
// room.
func (s *search) bound(w *want, order []int, need int, apart []int64) (low int64, ok bool) {
	var small [64]int64 // doubled bounds, ascending
	list := small[:0]
	if need > len(small) {
		list = make([]int64, 0, need)
	}
	for _, j := range order {
		if !s.fits(w, j) {
			continue
		}
		v := 2*apart[j] + s.near[j][min(need-1, len(s.near[j])-1)]
		at := len(list)
		if at == need {
			if v >= list[at-1] {
				continue
			}
			at--
		} else {
			list = append(list, 0)
		}
		for at > 0 && list[at-1] > v {
			list[at] = list[at-1]
			at--
		}
		list[at] = v
	}
	if len(list) < need {
		return 0, false
	}
	for _, v := range list {
		low += v
	}
	return (low + 1) / 2, true
}

// pack returns the cost of distributing the items on node j over its caches.
func (s *search) pack(j int) int {
	if len(s.bins[j]) < 2 || len(s.items[j]) == 0 {
		return 0
	}
	key := make([]byte, 0, 32)
	for _, c := range s.items[j] {
		key = append(key, byte(c), byte(c>>8))
	}
	if v, ok := s.packs[j][string(key)]; ok {
		return v
	}
	if s.packs[j] == nil {
		s.packs[j] = map[string]int{}
	}
	v := packFor(s.items[j], s.bins[j], s.p, s.wide).cost
	s.packs[j][string(key)] = v
	return v
}

// packFor packs according to the policy.
func packFor(items, bins []int, p policy, wide bool) packing {
	if wide {
		return packWide(items, bins)
	}
	return packCaches(items, bins, p == consolidate)
}

// devices chooses the pool of device u of VM i, then continues with the next VM.
func (s *search) devices(i, u int, c, rest cost, sum int64) {
	g := s.vms[i]
	w := &s.wants[g]
	sp := &s.placements[i]
	if u < len(w.units) {
		pools := w.units[u]
		if len(pools) > 1 {
			pools = append([]int(nil), pools...)
			sort.SliceStable(pools, func(a, b int) bool {
				x, y := s.unit(sp, pools[a]), s.unit(sp, pools[b])
				if x != y {
					return x < y
				}
				// At equal distance: prefer a card that the VM does not have yet, then the one with the most
				// functions left.
				if ax, ay := s.hasPool(sp, pools[a]), s.hasPool(sp, pools[b]); ax != ay {
					return !ax
				}
				return s.vfs[pools[a]] > s.vfs[pools[b]]
			})
		}
		for _, p := range pools {
			if s.vfs[p] == 0 {
				continue
			}
			s.vfs[p]--
			sp.units = append(sp.units, p)
			s.devices(i, u+1, c, rest, sum)
			sp = &s.placements[i]
			sp.units = sp.units[:u]
			s.vfs[p]++
		}
		return
	}
	var dev int64
	for _, p := range sp.units {
		dev += s.unit(sp, p)
	}
	wasDev, wasDist := s.devWorst[g], s.distWorst[g]
	c[termDevice] += dev
	c[termDeviceWorst] += max(0, dev-wasDev)
	c[termApart] += sum
	c[termApartWorst] += max(0, sum-wasDist)
	s.devWorst[g], s.distWorst[g] = max(dev, wasDev), max(sum, wasDist)
	left := s.rest(i + 1)
	ok := s.best == nil
	if !ok {
		b := c
		b.add(&left)
		ok = b.less(&s.best.cost)
	}
	if ok {
		s.vm(i+1, c, left)
	}
	s.devWorst[g], s.distWorst[g] = wasDev, wasDist
}

func (s *search) hasPool(sp *placement, pool int) bool {
	for _, p := range sp.units {
		if p == pool {
			return true
		}
	}
	return false
}

// unit returns the distance of a VM's nodes to one device of a pool.
func (s *search) unit(sp *placement, pool int) int64 {
	var d int64
	for _, j := range sp.nodes {
		d += s.deviceDistance(pool, j)
	}
	return d
}
