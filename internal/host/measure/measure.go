// Package measure measures the basic speeds of a host: a cache line between two cores, memory from each node, system
// calls, page faults, timers, and an RDMA device sending to itself. Outliers are judged by the machine's own median,
// because the right speed of a machine is not known.
//
// It is plain Go on threads that are bound to their CPUs: a cache line is passed by atomic loads and stores, which
// compile to single instructions; memory is read by the runtime's memmove, which uses the widest available
// instructions, and by dependent loads.
package measure

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/topology"
)

// Time limits of the parts; including parts without a limit a run stays under a minute.
const (
	pairBudget   = 15 * time.Second
	memoryBudget = 20 * time.Second
	cpuBudget    = 10 * time.Second
)

// Pair is the transfer of a cache line between two CPUs.
type Pair struct {
	A    int     `json:"a"`
	B    int     `json:"b"`
	Kind string  `json:"kind"` // what the CPUs share: core, cache, node, package, machine
	Ns   float64 `json:"ns"`   // one way, median
	Odd  bool    `json:"odd,omitempty"`
}

// Memory is memory of one node, used from the CPUs of another.
type Memory struct {
	CPUNode int     `json:"cpuNode"`
	Node    int     `json:"node"`
	MBps    float64 `json:"mbps"` // copied by all cores of CPUNode, read plus written, 10^6 bytes/s
	Ns      float64 `json:"ns"`   // one dependent load
	Odd     bool    `json:"odd,omitempty"`
}

// CPU has the measurements of a single CPU.
type CPU struct {
	CPU      int     `json:"cpu"`
	Syscall  float64 `json:"syscallNs"`  // getppid, median
	Fault    float64 `json:"faultNs"`    // first touch of a 4 KiB page, mean
	TimerMid float64 `json:"timerMidNs"` // delay of the end of a sleep of 100 µs, median
	TimerMax float64 `json:"timerMaxNs"` // the longest
	Odd      bool    `json:"odd,omitempty"`
}

// RDMA is an RDMA device sending 8 bytes to itself.
type RDMA struct {
	Device string  `json:"device"`
	Us     float64 `json:"us,omitempty"` // typical, half a round trip
	Error  string  `json:"error,omitempty"`
	Odd    bool    `json:"odd,omitempty"`
}

// Result has all measurements.
type Result struct {
	Pairs   []Pair   `json:"pairs"`
	Sampled bool     `json:"sampled,omitempty"` // not all pairs, because there are too many
	Memory  []Memory `json:"memory"`
	CPUs    []CPU    `json:"cpus"`
	RDMA    []RDMA   `json:"rdma"`
	Seconds float64  `json:"seconds"`
	Notes   []string `json:"notes,omitempty"`
}

// Options select the measurements.
type Options struct {
	Host *topology.Host
	// RDMA are names of RDMA devices with a port that is up.
	RDMA []string
	// Detail is called with the current measurement as the work progresses; it may be nil.
	Detail func(string)
}

// Run measures. It fails with the context's error, or if a CPU cannot be bound to.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Detail == nil {
		o.Detail = func(string) {}
	}
	began := time.Now()
	// A garbage collection would stop all threads during an exchange.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	r := &Result{Pairs: []Pair{}, Memory: []Memory{}, CPUs: []CPU{}, RDMA: []RDMA{}}
	cpus := usable(o.Host)
	if len(cpus) == 0 {
		return nil, fmt.Errorf("measure: no CPU that this process may use")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), 4)))
	for _, part := range []func(context.Context, Options, []*topology.CPU, *Result) error{measurePairs, measureMemory, measureCPUs, measureRDMA} {
		if err := part(ctx, o, cpus, r); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
	}
	judge(r)
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// usable returns the CPUs that this process may run on, by number.
func usable(h *topology.Host) []*topology.CPU {
	var set unix.CPUSet
	err := unix.SchedGetaffinity(0, &set)
	var list []*topology.CPU
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Usable() && (err != nil || set.IsSet(c.ID)) {
			list = append(list, c)
		}
	}
	return list
}

// bind binds the calling goroutine's thread to a CPU. The thread is not unlocked: it ends with the goroutine
// (runtime.LockOSThread), so that no other work is bound by it.
func bind(cpu int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("measure: cannot run on CPU %d: %w", cpu, err)
	}
	return nil
}

// on runs f on a thread of its own that is bound to cpu.
func on(cpu int, f func()) error {
	done := make(chan error, 1)
	go func() {
		err := bind(cpu)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}
