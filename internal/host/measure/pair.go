package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"nearmetal/internal/stats"
	"nearmetal/internal/topology"
)

const (
	batches = 7
	rounds  = 1000                  // round trips per batch
	slow    = 20 * time.Millisecond // per pair: after it no further batch is begun
)

// measurePairs measures a cache line between each two cores' first threads, and between the threads of each core. Its
// loop resembles that of measureCPUs, with another time limit and other texts: a common function would have four
// functions as parameters.
func measurePairs(ctx context.Context, o Options, cpus []*topology.CPU, r *Result) error {
	pairs := choosePairs(cpus)
	end := time.Now().Add(pairBudget)
	// Strides through the list visit all its parts even if time runs out.
	step := stride(len(pairs))
	for i, k := 0, 0; i < len(pairs); i, k = i+1, (k+step)%len(pairs) {
		if ctx.Err() != nil {
			return nil
		}
		if time.Now().After(end) {
			r.Sampled = true
			r.Notes = append(r.Notes, fmt.Sprintf("%d of %d pairs of CPUs were measured", i, len(pairs)))
			break
		}
		if i%64 == 0 {
			o.Detail(fmt.Sprintf("pairs of CPUs, %d of %d", i, len(pairs)))
		}
		p := pairs[k]
		ns, err := PingPong(p.A, p.B)
		if err != nil {
			return err
		}
		p.Ns = ns
		r.Pairs = append(r.Pairs, p)
	}
	return nil
}

// stride returns a step of about 0.618 n that has no factor in common with n.
func stride(n int) int {
	if n < 3 {
		return 1
	}
	for s := n * 618 / 1000; s > 1; s-- {
		a, b := s, n
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return s
		}
	}
	return 1
}

// choosePairs returns all pairs of the cores' first threads, and each core's first thread with its others.
func choosePairs(cpus []*topology.CPU) []Pair {
	first := map[int]*topology.CPU{}
	var firsts []*topology.CPU
	var pairs []Pair
	for _, c := range cpus {
		if f := first[c.Core]; f != nil {
			pairs = append(pairs, Pair{A: f.ID, B: c.ID, Kind: "core"})
			continue
		}
		first[c.Core] = c
		firsts = append(firsts, c)
	}
	for i, a := range firsts {
		for _, b := range firsts[i+1:] {
			pairs = append(pairs, Pair{A: a.ID, B: b.ID, Kind: kind(a, b)})
		}
	}
	return pairs
}

// kind returns the closest level that two CPUs share.
func kind(a, b *topology.CPU) string {
	switch {
	case a.Core == b.Core:
		return "core"
	case a.L3 == b.L3 && a.L3 >= 0:
		return "cache"
	case a.Node == b.Node:
		return "node"
	case a.Package == b.Package:
		return "package"
	}
	return "machine"
}

// line is a word with a cache line of its own, and the neighbour that prefetchers fetch with it.
type line struct {
	_ [128]byte
	v atomic.Uint32
	_ [124]byte
}

// PingPong passes a cache line back and forth between two CPUs for some ms, and returns the nanoseconds of one way.
// It fails if this process may not run on them.
func PingPong(a, b int) (float64, error) {
	var l line
	const last = ^uint32(0)
	errs := make(chan error, 2)
	var ready atomic.Bool
	times := make([]float64, 0, batches)
	go func() { // answers each odd number with the next even one
		if err := bind(b); err != nil {
			ready.Store(true)
			l.v.Store(last)
			errs <- err
			return
		}
		ready.Store(true)
		for {
			switch v := l.v.Load(); {
			case v == last:
				errs <- nil
				return
			case v&1 == 1:
				l.v.Store(v + 1)
			}
		}
	}()
	go func() {
		err := bind(a)
		for !ready.Load() {
			time.Sleep(10 * time.Microsecond)
		}
		v := uint32(0)
		began := time.Now()
		for n := 0; err == nil && n < batches && (n < 3 || time.Since(began) < slow); n++ {
			start := time.Now()
			for k := 0; k < rounds; k++ {
				l.v.Store(v + 1)
				v += 2
				for w := l.v.Load(); w != v; w = l.v.Load() {
					if w == last {
						errs <- nil
						return
					}
				}
			}
			times = append(times, float64(time.Since(start))/(2*rounds))
		}
		l.v.Store(last)
		errs <- err
	}()
	for i := 0; i < 2; i++ {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return stats.Median(times), nil
}
