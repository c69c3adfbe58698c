package plan

import (
	"container/heap"
	"sort"
)

// crowd distributes VMs over hosts: the number of each group per host, then their placement on each host.
type crowd struct {
	m        *maker
	a        *attempt
	shapes   []shape
	cache    map[string]*placed
	capacity []*capacity // one per class
}

func newCrowd(m *maker, a *attempt, shapes []shape) *crowd {
	c := &crowd{m: m, a: a, shapes: shapes, cache: map[string]*placed{}, capacity: make([]*capacity, a.classes)}
	for i, k := range a.class {
		if c.capacity[k] == nil {
			c.capacity[k] = a.capacities[i]
		}
	}
	return c
}

// wants returns the groups to place on a host with the given numbers of VMs, or nil if a device is missing.
func (c *crowd) wants(r *capacity, counts []int) []want {
	var out []want
	for g, n := range counts {
		if n == 0 {
			out = append(out, want{shape: c.shapes[g]})
			continue
		}
		w := want{shape: c.shapes[g], count: n}
		devices := c.m.groups[g].spec.Devices
		for i := range devices {
			pools := r.eligible(&devices[i])
			for k := 0; k < max(1, devices[i].Count); k++ {
				if len(pools) == 0 {
					return nil
				}
				w.units = append(w.units, pools)
			}
		}
		out = append(out, w)
	}
	return out
}

// on places the given numbers of VMs of each group on a class of host, and returns nil if they do not fit.
func (c *crowd) on(class int, counts []int) *placed {
	key := make([]byte, 0, 16)
	key = append(key, byte(class), byte(class>>8), byte(class>>16))
	for _, n := range counts {
		key = append(key, byte(n), byte(n>>8))
	}
	if p, ok := c.cache[string(key)]; ok {
		return p
	}
	var p *placed
	r := c.capacity[class]
	ok := c.within(r, counts)
	for g, n := range counts {
		// A search that cannot succeed is long; counts that are certain not to fit are not searched.
		ok = ok && (n == 0 || n <= c.places(class, g))
	}
	if ok {
		if w := c.wants(r, counts); w != nil {
			p = solve(r, c.m.policy, c.m.wide, c.a.threads, w, c.m.steps)
		}
	}
	c.cache[string(key)] = p
	return p
}

// within reports whether the VMs' ordinary memory is within the cgroup's limit.
func (c *crowd) within(r *capacity, counts []int) bool {
	if r.limit == 0 {
		return true
	}
	var sum uint64
	for g, n := range counts {
		if c.m.pages[c.shapes[g].class] == 0 {
			sum += uint64(n) * c.m.groups[g].memory
		}
	}
	return sum <= r.limit
}

// places returns how many VMs of a group fit on a class of host, regardless of devices and other groups: m VMs of k
// nodes each fit if and only if the nodes' numbers of places, none counted above m, add up to at least m*k.
func (c *crowd) places(class, g int) int {
	r := c.capacity[class]
	s := &c.shapes[g]
	places := make([]int, 0, len(r.nodes))
	for j := range r.nodes {
		n := &r.nodes[j]
		if n.open {
			places = append(places, min(n.count(c.a.threads)/s.cores, int(min(n.free[s.class]/max(1, s.bytes), 1<<20))))
		}
	}
	return sort.Search(c.m.groups[g].count, func(k int) bool {
		sum := 0
		for _, p := range places {
			sum += min(p, k+1)
		}
		return sum < (k+1)*s.hostNodes
	})
}

// most returns how many VMs of one group a class of host can run if it runs no other group.
func (c *crowd) most(class, g int) int {
	r := c.capacity[class]
	n := c.places(class, g)
	counts := make([]int, len(c.shapes))
	for ; n > 0; n-- {
		counts[g] = n
		if len(c.m.groups[g].spec.Devices) == 0 {
			if c.within(r, counts) {
				break
			}
		} else if c.on(class, counts) != nil {
			break
		}
	}
	return n
}

// spreadOut distributes the VMs over all hosts; it returns nil if the shapes do not fit.
func (m *maker) spreadOut(a *attempt, shapes []shape) *solution {
	c := newCrowd(m, a, shapes)
	counts := make([][]int, len(m.hosts))
	// The groups with the largest VMs come first; the small ones fill the gaps.
	order := make([]int, len(m.groups))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(x, y int) bool {
		a, b := &shapes[order[x]], &shapes[order[y]]
		return a.cores*a.hostNodes > b.cores*b.hostNodes
	})
	if len(m.hosts) == 1 {
		counts[0] = make([]int, len(m.groups))
		for g := range m.groups {
			counts[0][g] = m.groups[g].count
		}
	} else {
		for _, g := range order {
			if !c.distribute(g, counts) {
				return nil
			}
		}
	}
	s := &solution{shapes: shapes, counts: counts, placed: make([]*placed, len(m.hosts))}
	for h := range counts {
		if counts[h] == nil {
			continue
		}
		p := c.on(a.class[h], counts[h])
		if p == nil {
			return nil
		}
		s.placed[h] = p
		s.cost.add(&p.cost)
	}
	return s
}

// hostQueue orders hosts by their number of VMs, then by index.
type hostQueue struct{ hosts, load []int }

func (q *hostQueue) Len() int { return len(q.hosts) }
func (q *hostQueue) Less(i, j int) bool {
	a, b := q.hosts[i], q.hosts[j]
	return q.load[a] < q.load[b] || q.load[a] == q.load[b] && a < b
}
func (q *hostQueue) Swap(i, j int) { q.hosts[i], q.hosts[j] = q.hosts[j], q.hosts[i] }
func (q *hostQueue) Push(x any)    { q.hosts = append(q.hosts, x.(int)) }
func (q *hostQueue) Pop() any {
	n := len(q.hosts) - 1
	h := q.hosts[n]
	q.hosts = q.hosts[:n]
	return h
}

// distribute assigns the VMs of one group to hosts, in addition to the VMs in counts.
func (c *crowd) distribute(g int, counts [][]int) bool {
	groups := len(c.m.groups)
	left := c.m.groups[g].count
	caps := make([]int, c.a.classes)
	for k := range caps {
		caps[k] = -1
	}
	// free reports whether one more VM fits on a host.
	free := func(h int) bool {
		class := c.a.class[h]
		if counts[h] == nil || alone(counts[h], g) {
			if caps[class] < 0 {
				caps[class] = c.most(class, g)
			}
			return counts[h] == nil && caps[class] > 0 || counts[h] != nil && counts[h][g] < caps[class]
		}
		more := append([]int(nil), counts[h]...)
		more[g]++
		return c.on(class, more) != nil
	}
	give := func(h int) {
		if counts[h] == nil {
			counts[h] = make([]int, groups)
		}
		counts[h][g]++
		left--
	}
	load := make([]int, len(counts))
	for h := range counts {
		for _, n := range counts[h] {
			load[h] += n
		}
	}
	if c.m.place.HostPolicy == "spread" {
		q := &hostQueue{load: load}
		for h := range counts {
			q.hosts = append(q.hosts, h)
		}
		heap.Init(q)
		for left > 0 && q.Len() > 0 {
			h := q.hosts[0]
			if !free(h) {
				heap.Pop(q)
				continue
			}
			give(h)
			load[h]++
			heap.Fix(q, 0)
		}
		return left == 0
	}
	// Policy pack: hosts that already have VMs come first, then those with room for the most.
	order := make([]int, len(counts))
	for h := range order {
		order[h] = h
		if k := c.a.class[h]; caps[k] < 0 {
			caps[k] = c.most(k, g)
		}
	}
	sort.SliceStable(order, func(x, y int) bool {
		a, b := order[x], order[y]
		if (load[a] > 0) != (load[b] > 0) {
			return load[a] > 0
		}
		return caps[c.a.class[a]] > caps[c.a.class[b]]
	})
	for _, h := range order {
		for left > 0 && free(h) {
			give(h)
		}
		if left == 0 {
			return true
		}
	}
	return false
}

// alone reports whether a host has VMs of group g only.
func alone(counts []int, g int) bool {
	for k, n := range counts {
		if k != g && n > 0 {
			return false
		}
	}
	return true
}
