package measure

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nearmetal/internal/stats"
	"nearmetal/internal/topology"
)

const (
	lineBytes  = 64
	copyBytes  = 32 << 20 // size of each of a core's two buffers
	chaseLeast = 64 << 20 // least size of the buffer for dependent loads
	chaseMost  = 512 << 20
	mostCores  = 64 // maximum number of cores that copy concurrently
)

// measureMemory measures each pair of a node with CPUs and a node with memory.
func measureMemory(ctx context.Context, o Options, cpus []*topology.CPU, r *Result) error {
	cores := map[int][]int{} // first threads of a node's cores
	seen := map[int]bool{}
	for _, c := range cpus {
		if !seen[c.Core] {
			seen[c.Core] = true
			cores[c.Node] = append(cores[c.Node], c.ID)
		}
	}
	var from, to []int
	for _, n := range o.Host.Nodes {
		if len(cores[n.ID]) > 0 {
			from = append(from, n.ID)
		}
		if n.MemoryBytes > 0 && n.Usable() {
			to = append(to, n.ID)
		}
	}
	if len(from)*len(to) == 0 {
		return nil
	}
	each := memoryBudget / time.Duration(len(from)*len(to)) / 2
	for _, m := range to {
		node := &o.Host.Nodes[o.Host.NodeIndex(m)]
		chase, err := newChase(node, o.Host)
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("memory of node %d was not measured: %v", m, err))
			continue
		}
		for _, c := range from {
			if ctx.Err() != nil {
				break
			}
			o.Detail(fmt.Sprintf("memory of node %d from node %d", m, c))
			x := Memory{CPUNode: c, Node: m}
			if err = on(cores[c][0], func() { x.Ns = chase.run(min(each, time.Second)) }); err != nil {
				break
			}
			if x.MBps, err = copyRate(cores[c][:min(mostCores, len(cores[c]))], node, min(each, time.Second)); err != nil {
				break
			}
			r.Memory = append(r.Memory, x)
		}
		chase.free()
		if err != nil {
			r.Notes = append(r.Notes, fmt.Sprintf("memory of node %d: %v", m, err))
		}
	}
	return nil
}

// onNode returns memory of a node, which the caller touches. If binding is not permitted, as in some containers, the
// kernel chooses the node.
func onNode(bytes int, node int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("%d MiB: %w", bytes>>20, err)
	}
	const bindPolicy = 2 // MPOL_BIND (linux/mempolicy.h)
	var mask [topology.MaxNodes / 64]uint64
	mask[node/64] = 1 << (node % 64)
	unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), bindPolicy,
		uintptr(unsafe.Pointer(&mask[0])), uintptr(len(mask)*64), 0)
	unix.Madvise(b, unix.MADV_HUGEPAGE) // small pages would measure the TLB
	return b, nil
}

// chase is a buffer whose cache lines are linked in one random cycle.
type chase struct {
	b     []byte
	lines []uint32 // the next line's number, in the first four bytes of each line
}

func newChase(node *topology.Node, h *topology.Host) (*chase, error) {
	want := uint64(chaseLeast)
	for _, c := range h.Caches {
		want = max(want, 2*c.SizeBytes)
	}
	want = min(want, chaseMost, node.AvailableBytes/4) &^ (1<<21 - 1)
	if want < 1<<21 {
		return nil, fmt.Errorf("it has %d MiB available", node.AvailableBytes>>20)
	}
	b, err := onNode(int(want), node.ID)
	if err != nil {
		return nil, err
	}
	c := &chase{b: b, lines: unsafe.Slice((*uint32)(unsafe.Pointer(&b[0])), len(b)/4)}
	n := uint32(len(b) / lineBytes)
	const step = lineBytes / 4
	for i := uint32(0); i < n; i++ {
		c.lines[i*step] = i
	}
	// Sattolo's algorithm produces a permutation that is one cycle.
	x := uint64(88172645463325252)
	for i := n - 1; i > 0; i-- {
		x ^= x << 13 // xorshift64 (Marsaglia 2003)
		x ^= x >> 7
		x ^= x << 17
		j := uint32(x % uint64(i))
		c.lines[i*step], c.lines[j*step] = c.lines[j*step], c.lines[i*step]
	}
	return c, nil
}

// run follows the cycle for about limit, and returns the nanoseconds per load, the median of several parts.
func (c *chase) run(limit time.Duration) float64 {
	const loads = 50000
	var times []float64
	at := uint32(0)
	for end := time.Now().Add(limit); len(times) < 3 || len(times) < 15 && time.Now().Before(end); {
		start := time.Now()
		for i := 0; i < loads; i++ {
			at = c.lines[at*(lineBytes/4)]
		}
		times = append(times, float64(time.Since(start))/loads)
	}
	sink = at
	return stats.Median(times)
}

// sink keeps the compiler from removing loops.
//
// lint:ignore U1000 it is only written
var sink uint32

func (c *chase) free() { unix.Munmap(c.b) }

// copyRate copies memory of a node on all cores concurrently, and returns 10^6 bytes read or written per second.
func copyRate(cores []int, node *topology.Node, limit time.Duration) (float64, error) {
	size := min(copyBytes, int(node.AvailableBytes/8)/len(cores)) &^ 4095
	if size < 1<<20 {
		return 0, fmt.Errorf("it has %d MiB available", node.AvailableBytes>>20)
	}
	var wg sync.WaitGroup
	start := make(chan time.Time)
	ready := make(chan error, len(cores))
	rates := make([]float64, len(cores))
	for i, cpu := range cores {
		wg.Add(1)
		go func(i, cpu int) {
			defer wg.Done()
			err := bind(cpu)
			var b []byte
			if err == nil {
				b, err = onNode(2*size, node.ID)
			}
			if err != nil {
				ready <- err
				return
			}
			defer unix.Munmap(b)
			from, to := b[:size], b[size:]
			for k := range b[:size/4096] {
				from[k*4096] = 1
			}
			copy(to, from)
			ready <- nil
			end, ok := <-start
			if !ok {
				return
			}
			n, began := 0, time.Now()
			for n == 0 || time.Now().Before(end) {
				copy(to, from)
				n++
			}
			rates[i] = float64(n) * 2 * float64(size) / time.Since(began).Seconds() / 1e6
		}(i, cpu)
	}
	var bad error
	for range cores {
		if err := <-ready; err != nil {
			bad = err
		}
	}
	if bad == nil {
		end := time.Now().Add(min(limit, 300*time.Millisecond))
		for range cores {
			start <- end
		}
	}
	close(start)
	wg.Wait()
	sum := 0.0
	for _, v := range rates {
		sum += v
	}
	return sum, bad
}
