package measure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/stats"
	"nearmetal/internal/topology"
)

const (
	calls      = 2000 // per batch
	faultBytes = 2 << 20
	sleeps     = 20
	sleepFor   = 100 * time.Microsecond
)

// measureCPUs times system calls, page faults and timers on each CPU.
func measureCPUs(ctx context.Context, o Options, cpus []*topology.CPU, r *Result) error {
	end := time.Now().Add(cpuBudget)
	step := stride(len(cpus))
	for i, k := 0, 0; i < len(cpus); i, k = i+1, (k+step)%len(cpus) {
		if ctx.Err() != nil {
			return nil
		}
		if time.Now().After(end) {
			r.Sampled = true
			r.Notes = append(r.Notes, fmt.Sprintf("%d of %d CPUs were measured", i, len(cpus)))
			break
		}
		if i%16 == 0 {
			o.Detail(fmt.Sprintf("system calls, page faults and timers, CPU %d of %d", i, len(cpus)))
		}
		x := CPU{CPU: cpus[k].ID}
		var bad error
		if err := on(x.CPU, func() { bad = x.measure() }); err != nil {
			return err
		}
		if bad != nil {
			return bad
		}
		r.CPUs = append(r.CPUs, x)
	}
	return nil
}

func (x *CPU) measure() error {
	var times []float64
	for n := 0; n < batches; n++ {
		start := time.Now()
		for i := 0; i < calls; i++ {
			unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
		times = append(times, float64(time.Since(start))/calls)
	}
	x.Syscall = stats.Median(times)

	times = times[:0]
	for n := 0; n < 3; n++ {
		b, err := unix.Mmap(-1, 0, faultBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return fmt.Errorf("measure: %w", err)
		}
		unix.Madvise(b, unix.MADV_NOHUGEPAGE)
		start := time.Now()
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		times = append(times, float64(time.Since(start))/(faultBytes/4096))
		unix.Munmap(b)
	}
	x.Fault = stats.Median(times)

	times = times[:0]
	for n := 0; n < sleeps; n++ {
		ts := unix.NsecToTimespec(int64(sleepFor))
		start := time.Now()
		// The plain system call is used, because Go's own sleep measures the scheduler instead of the kernel.
		if err := unix.Nanosleep(&ts, nil); err != nil {
			continue // a signal of Go's runtime
		}
		times = append(times, float64(time.Since(start)-sleepFor))
	}
	if len(times) > 0 {
		x.TimerMid, x.TimerMax = stats.Median(times), slices.Max(times)
	}
	return nil
}
