package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/backend/qemu"
)

// memory measures what eight VMs cost the host.
func memory(ctx context.Context, s settings, r *report) error {
	const vms = 8
	rec, down, err := up(ctx, s, "--vms", strconv.Itoa(vms), "--memory", "256MiB")
	if err != nil {
		return err
	}
	defer down()
	r.Accel = rec.Accel
	var region uint64
	if rec.Plan.Region != nil {
		region = rec.Plan.Region.SizeBytes
	}
	var rest, guests []float64
	for _, v := range rec.VMs {
		m, err := qemu.MemoryUse(v.PID, []uint64{v.MemoryBytes}, region)
		if err != nil {
			return err
		}
		rest = append(rest, float64(m.RestBytes)/(1<<20))
		guests = append(guests, float64(m.GuestBytes)/(1<<20))
	}
	// The supervisor is all of nearmetal that stays.
	now := value(rec.Owner, "smaps_rollup", "Pss:")
	own := summary(fmt.Sprintf("nearmetal with %d VMs: proportional set size", vms), "MiB", []float64{now})
	own.Bar = 64
	r.add(own)
	r.add(summary("  resident set size", "MiB", []float64{value(rec.Owner, "status", "VmRSS:")}))
	top := summary("  its peak, while it started them", "MiB", []float64{peak(rec.Owner)})
	top.Bar = 64
	r.add(top)
	x := summary("a VM beyond its guest's touched memory", "MiB", rest)
	x.Bar = 120
	r.add(x)
	r.add(summary("  its guest's touched memory (of 256)", "MiB", guests))
	return nil
}

// peak is the most memory that a process has had, in MiB.
func peak(pid int) float64 { return value(pid, "status", "VmHWM:") }

// value reads a line in KiB of a file in /proc/PID, in MiB; 0 where it cannot be read.
func value(pid int, file, key string) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == key {
			kb, _ := strconv.ParseFloat(f[1], 64)
			return kb / 1024
		}
	}
	return 0
}

// cpuTime is the time that a process has computed so far (utime and stime of proc(5), in
// ticks of 10 ms); 0 where it cannot be read.
func cpuTime(pid int) time.Duration {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}
