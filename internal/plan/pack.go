package plan

import "sort"

// packing is a distribution of the guest nodes on one host node over its last-level caches; alloc[item][cache] is a
// number of cores.
type packing struct {
	alloc [][]int
	// cost is the number of cuts (an item over k caches has k-1); with wide it is how many more caches the items
	// could have had.
	cost int
}

// Bounds of the search: above them packings are good, but not proved optimal.
const (
	packStates = 1 << 16
	packBins   = 16
)

// packCaches distributes items (numbers of cores) over caches with free cores so that as few items as possible
// straddle caches. The items' sum must fit. An item that fits as a whole goes to the cache with the most room, or if
// together is set to the one with the least.
func packCaches(items, free []int, together bool) packing {
	if len(free) == 1 {
		p := packing{alloc: make([][]int, len(items))}
		for i, c := range items {
			p.alloc[i] = []int{c}
		}
		return p
	}
	if p, ok := packWhole(items, free, together); ok {
		return p
	}
	if p, ok := packWhole(items, free, true); ok { // best fit finds more
		return p
	}
	return packSplit(items, free)
}

// byDecreasing returns the indices of v, the largest first.
func byDecreasing(v []int) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return v[order[a]] > v[order[b]] })
	return order
}

// packWhole puts each item, the largest first, into one cache.
func packWhole(items, free []int, together bool) (packing, bool) {
	left := append([]int(nil), free...)
	p := packing{alloc: make([][]int, len(items))}
	for _, i := range byDecreasing(items) {
		best := -1
		for b := range left {
			if left[b] >= items[i] && (best < 0 || together && left[b] < left[best] || !together && left[b] > left[best]) {
				best = b
			}
		}
		if best < 0 {
			return p, false
		}
		left[best] -= items[i]
		p.alloc[i] = make([]int, len(free))
		p.alloc[i][best] = items[i]
	}
	return p, true
}

// packSplit finds the fewest cuts. In an optimal packing the graph of items and caches is a forest, and a tree of n
// items and m caches has m-1 cuts, reached by laying its items end to end over its caches. Therefore dynamic
// programming over subsets divides the items and caches into such sets. With too many subsets, whole items are packed
// first and the rest over the largest remainders.
func packSplit(items, free []int) packing {
	n, m := len(items), len(free)
	if m > packBins || n > 16 || n+m > 20 {
		return packGreedy(items, free)
	}
	sumI, sumB := subsetSums(items), subsetSums(free)
	type choice struct{ cost, items, bins int }
	memo := map[uint32]choice{}
	const none = 1 << 20
	steps := 0
	var best func(im, bm int) choice
	best = func(im, bm int) choice {
		if im == 0 {
			return choice{}
		}
		if sumI[im] > sumB[bm] {
			return choice{cost: none}
		}
		key := uint32(im)<<16 | uint32(bm)
		if c, ok := memo[key]; ok {
			return c
		}
		out := choice{cost: none}
		low := im & -im
		rest := im &^ low
		for s := rest; ; s = (s - 1) & rest {
			set := s | low
			for b := bm; b > 0; b = (b - 1) & bm {
				if steps++; steps > packStates*16 {
					break
				}
				cost := ones(b) - 1
				if cost >= out.cost || sumB[b] < sumI[set] {
					continue
				}
				if c := best(im&^set, bm&^b); c.cost+cost < out.cost {
					out = choice{c.cost + cost, set, b}
				}
			}
			if s == 0 {
				break
			}
		}
		memo[key] = out
		return out
	}
	all := best(1<<n-1, 1<<m-1)
	if all.cost >= none || steps > packStates*16 {
		return packGreedy(items, free)
	}
	p := packing{alloc: make([][]int, n), cost: all.cost}
	for im, bm := 1<<n-1, 1<<m-1; im != 0; {
		c := best(im, bm)
		b, used := 0, 0
		for b < m && c.bins>>b&1 == 0 {
			b++
		}
		for i := 0; i < n; i++ {
			if c.items>>i&1 == 0 {
				continue
			}
			p.alloc[i] = make([]int, m)
			for need := items[i]; need > 0; {
				take := min(need, free[b]-used)
				p.alloc[i][b] += take
				need -= take
				if used += take; used == free[b] {
					for b++; b < m && c.bins>>b&1 == 0; b++ {
					}
					used = 0
				}
			}
		}
		im, bm = im&^c.items, bm&^c.bins
	}
	p.cost = cuts(p.alloc)
	return p
}

func ones(b int) int {
	n := 0
	for ; b != 0; b &= b - 1 {
		n++
	}
	return n
}

func subsetSums(v []int) []int {
	s := make([]int, 1<<len(v))
	for i := 1; i < len(s); i++ {
		low := 0
		for i>>low&1 == 0 {
			low++
		}
		s[i] = s[i&(i-1)] + v[low]
	}
	return s
}

// packGreedy packs items whole if they fit, the others over the largest remainders.
func packGreedy(items, free []int) packing {
	left := append([]int(nil), free...)
	p := packing{alloc: make([][]int, len(items))}
	order := byDecreasing(items)
	for _, whole := range []bool{true, false} {
		for _, i := range order {
			if p.alloc[i] != nil {
				continue
			}
			best := -1
			for b := range left {
				if left[b] >= items[i] && (best < 0 || left[b] < left[best]) {
					best = b
				}
			}
			if best >= 0 {
				p.alloc[i] = make([]int, len(free))
				p.alloc[i][best] = items[i]
				left[best] -= items[i]
			} else if !whole {
				p.alloc[i] = make([]int, len(free))
				for need := items[i]; need > 0; {
					b := byDecreasing(left)[0]
					take := min(need, left[b])
					p.alloc[i][b] += take
					left[b] -= take
					need -= take
				}
			}
		}
	}
	p.cost = cuts(p.alloc)
	return p
}

// cuts returns the number of additional caches that the items span.
func cuts(alloc [][]int) int {
	n := 0
	for _, a := range alloc {
		for _, c := range a {
			if c > 0 {
				n++
			}
		}
		n--
	}
	return n
}

// packWide spreads each item over as many caches as possible (hint: cache). One item after the other gets a core of
// each of the caches with the most left, which is optimal (the greedy algorithm of Gale and Ryser), then fills up
// evenly.
func packWide(items, free []int) packing {
	left := append([]int(nil), free...)
	p := packing{alloc: make([][]int, len(items))}
	order := byDecreasing(items)
	for _, i := range order {
		p.alloc[i] = make([]int, len(free))
		caches := byDecreasing(left)
		for k := 0; k < min(items[i], len(free)) && left[caches[k]] > 0; k++ {
			p.alloc[i][caches[k]] = 1
			left[caches[k]]--
		}
	}
	for _, i := range order {
		have := 0
		for _, c := range p.alloc[i] {
			have += c
		}
		for ; have < items[i]; have++ {
			// Even within the item: the cache that has room and the fewest of the item's cores, caches it already
			// uses first.
			best := -1
			for b, c := range p.alloc[i] {
				if left[b] > 0 && (best < 0 || (c > 0) != (p.alloc[i][best] > 0) && c > 0 ||
					(c > 0) == (p.alloc[i][best] > 0) && (c < p.alloc[i][best] || c == p.alloc[i][best] && left[b] > left[best])) {
					best = b
				}
			}
			p.alloc[i][best]++
			left[best]--
		}
	}
	for i, c := range items {
		p.cost += min(c, len(free))
		for _, a := range p.alloc[i] {
			if a > 0 {
				p.cost--
			}
		}
	}
	return p
}
