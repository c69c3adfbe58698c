package host

import (
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// rdtsc reads the time-stamp counter, after all earlier loads.
func rdtsc() uint64

const (
	tscInterval  = 15 * time.Millisecond // 100 ns of error at each end make 13 ppm
	tscTolerance = 50e-6                 // maximum difference of two intervals
	tscTries     = 3
)

var tsc struct {
	once sync.Once
	khz  int
	ok   bool
}

// TSCKHz measures the rate of this machine's time-stamp counter in kHz, once; the first call lasts some 30 ms. ok is
// false if the counter does not run at a constant rate, or if the measurements did not agree to 50 ppm, because a
// wrong rate would skew a VM's clock.
func TSCKHz() (khz int, ok bool) {
	tsc.once.Do(func() { tsc.khz, tsc.ok = Host{}.measureTSC() })
	return tsc.khz, tsc.ok
}

func (h Host) measureTSC() (int, bool) {
	flags, err := h.cpuFlags()
	if err != nil || !flags["constant_tsc"] || !flags["nonstop_tsc"] {
		return 0, false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t0, c0 := clockAndTSC()
	last := 0.0
	for i := 0; i < 1+tscTries; i++ {
		time.Sleep(tscInterval)
		t1, c1 := clockAndTSC()
		khz := float64(c1-c0) / float64(t1-t0) * 1e6
		if last > 0 && math.Abs(khz-last) < tscTolerance*khz {
			return int(math.Round((khz + last) / 2)), true
		}
		last, t0, c0 = khz, t1, c1
	}
	return 0, false
}

// clockAndTSC reads CLOCK_MONOTONIC_RAW (ns; no NTP slewing in it) and the counter at the same moment: the tightest
// of several readings, the clock between two counters.
func clockAndTSC() (ns int64, count uint64) {
	best := uint64(math.MaxUint64)
	for i := 0; i < 16; i++ {
		var ts unix.Timespec
		a := rdtsc()
		unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts)
		b := rdtsc()
		if b-a < best {
			best, ns, count = b-a, ts.Nano(), a+(b-a)/2
		}
	}
	return ns, count
}
