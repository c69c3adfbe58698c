package traffic

import (
	"cmp"
	"fmt"
	"slices"

	"nearmetal/internal/words"
)

// Matrix contains what ranks exchanged. Ranks of several programs with the same number are added up.
type Matrix struct {
	ClassBytes []uint64 `json:"classBytes"` // the largest message of each size class but the last
	Ranks      []Rank   `json:"ranks"`
	Pairs      []Pair   `json:"pairs"`
	Advice     string   `json:"advice,omitempty"`
}

// Rank is a rank, or a process without a rank number, which gets a number after the last rank's.
type Rank struct {
	Rank int    `json:"rank"`
	VM   string `json:"vm"` // or the host, without VMs
}

// Pair counts the operations that one rank started with another over one channel: messages, and one-sided and atomic
// operations.
type Pair struct {
	From     int      `json:"from"`
	To       int      `json:"to"` // -1: a rank that left no counts
	Channel  string   `json:"channel"`
	Messages uint64   `json:"messages"`
	Bytes    uint64   `json:"bytes"`
	Classes  []uint64 `json:"classes"` // messages by size class
}

// Of combines counts to a matrix.
func Of(list []Counts) *Matrix {
	m := &Matrix{ClassBytes: Classes[:], Ranks: []Rank{}, Pairs: []Pair{}}
	type process struct {
		vm  string
		pid int
	}
	numbers, next := map[process]int{}, 0
	known := map[int]bool{}
	for _, c := range list {
		next = max(next, c.Rank+1)
	}
	slices.SortStableFunc(list, func(a, b Counts) int { return cmp.Or(cmp.Compare(a.VM, b.VM), cmp.Compare(a.PID, b.PID)) })
	number := make([]int, len(list))
	owner := map[string]int{}
	for i, c := range list {
		n := c.Rank
		if p := (process{c.VM, c.PID}); n < 0 {
			var seen bool
			if n, seen = numbers[p]; !seen {
				n = next
				next++
				numbers[p] = n
			}
		}
		number[i] = n
		if !known[n] {
			known[n] = true
			m.Ranks = append(m.Ranks, Rank{n, c.VM})
		}
		for _, k := range c.keys {
			owner[k] = n
		}
	}
	slices.SortFunc(m.Ranks, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	type way struct{ from, to, channel int }
	pairs := map[way]*Pair{}
	for i, c := range list {
		for _, s := range c.to {
			to, ok := owner[s.key]
			if !ok {
				to = -1
			}
			w := way{number[i], to, s.channel}
			p := pairs[w]
			if p == nil {
				p = &Pair{From: w.from, To: w.to, Channel: Channels[s.channel], Classes: make([]uint64, classes)}
				pairs[w] = p
			}
			p.Bytes = add(p.Bytes, s.bytes)
			for k, n := range s.ops {
				p.Classes[k] = add(p.Classes[k], n)
				p.Messages = add(p.Messages, n)
			}
		}
	}
	for _, p := range pairs {
		m.Pairs = append(m.Pairs, *p)
	}
	slices.SortFunc(m.Pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Channel, b.Channel))
	})
	return m
}

// Upper bounds of a stored matrix.
const (
	MaxRanks = 4096
	MaxPairs = 1 << 16
)

// Check returns an error if a matrix that was read from a file could make its methods fail.
func (m *Matrix) Check() error {
	if len(m.Ranks) > MaxRanks || len(m.Pairs) > MaxPairs {
		return fmt.Errorf("counts of %d ranks and %d pairs: at most %d and %d are shown", len(m.Ranks), len(m.Pairs), MaxRanks, MaxPairs)
	}
	known := map[int]bool{}
	for _, r := range m.Ranks {
		if known[r.Rank] || r.Rank < 0 {
			return fmt.Errorf("counts of messages: rank %d appears twice, or does not exist", r.Rank)
		}
		known[r.Rank] = true
	}
	for _, p := range m.Pairs {
		if len(p.Classes) != classes || !known[p.From] || p.To != -1 && !known[p.To] {
			return fmt.Errorf("counts of messages between ranks %d and %d: no such ranks, or other size classes", p.From, p.To)
		}
	}
	return nil
}

// add returns the sum of two counts, limited to maxCount.
func add(a, b uint64) uint64 { return min(a+b, maxCount) }

// Place is where a VM is.
type Place struct {
	Host string
	Far  bool // one of its devices is at a NUMA node without any of its memory
}

// Advise sets the line of advice; places are the VMs' places, as far as they are known.
func (m *Matrix) Advise(places map[string]Place) {
	var all, network uint64
	between := map[[2]int]uint64{}
	var sizes [classes]uint64
	var messages uint64
	vm := map[int]string{}
	for _, r := range m.Ranks {
		vm[r.Rank] = r.VM
	}
	for _, p := range m.Pairs {
		all = add(all, p.Bytes)
		for k, n := range p.Classes {
			sizes[k] = add(sizes[k], n)
		}
		messages = add(messages, p.Messages)
		if p.Channel == "fabric" && p.To >= 0 {
			network = add(network, p.Bytes)
			k := [2]int{min(p.From, p.To), max(p.From, p.To)}
			between[k] = add(between[k], p.Bytes)
		}
	}
	m.Advice = ""
	if most, n, ok := heaviest(between); ok && network*10 >= all {
		from, to := vm[most[0]], vm[most[1]]
		pair := fmt.Sprintf("%d%% of the bytes go over the network, most of them between ranks %d (%s) and %d (%s)",
			percent(network, all), most[0], from, most[1], to)
		a, b := places[from], places[to]
		switch {
		case from == to || a.Host != "" && a.Host == b.Host:
			m.Advice = pair + ": both are on one host, so a region would carry them (nearmetal ps NAME says which way is taken)"
		case a.Far || b.Far:
			far := most[0]
			if !a.Far {
				far = most[1]
			}
			m.Advice = pair + fmt.Sprintf(": the device of rank %d's VM is on a NUMA node that the VM's memory is not on (nearmetal plan --explain)", far)
		default:
			m.Advice = pair + fmt.Sprintf(", %d%% of these: put them on one host (a rankfile, or another --map-by)", percent(n, network))
		}
		return
	}
	for k, n := range sizes {
		if messages < 1000 || n != messages {
			continue
		}
		switch {
		case k == 0:
			m.Advice = fmt.Sprintf("all messages are of at most %d B: latency decides, and fewer, larger ones would be faster", Classes[0])
		case k >= classes-2:
			m.Advice = "all messages are larger than " + words.Bytes(Classes[k-1]) + ": bandwidth decides; memory in the region saves a copy (docs/run-mpi.md)"
		default:
			m.Advice = "all messages are of " + words.Bytes(Classes[k-1]) + " to " + words.Bytes(Classes[k]) + ": the size to measure with (nearmetal bench)"
		}
	}
}

func heaviest(between map[[2]int]uint64) (most [2]int, n uint64, ok bool) {
	for k, b := range between {
		if !ok || b > n || b == n && slices.Compare(k[:], most[:]) < 0 {
			most, n, ok = k, b, true
		}
	}
	return most, n, ok
}

func percent(part, all uint64) uint64 {
	if all == 0 {
		return 0
	}
	return uint64(float64(part)/float64(all)*100 + 0.5)
}
