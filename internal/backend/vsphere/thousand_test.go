package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/vcsim"
)

// This test measures a vCenter with many hosts and VMs. `make bench-vsphere` runs it: the simulator is this process,
// and the measured program is a process of its own.
const (
	varThousand = "NEARMETAL_BENCH_VSPHERE" // the number of VMs
	varRole     = "NEARMETAL_BENCH_ROLE"    // role of the measured process
	benchHosts  = 64
	benchDelay  = 50 // of every call, in milliseconds
)

// figures are the results of that process.
type figures struct {
	VMs                                 int
	PlanS, StartS, EndS, PeakMB, IdleMB float64
	Started                             int
}

func TestThousand(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(varThousand))
	if err != nil || n < 1 {
		t.Skip("make bench-vsphere runs it")
	}
	s := vcsim.Start(t, vcsim.Options{Hosts: benchHosts, Delay: benchDelay})
	before := names()
	measure := func(role string, n int) (figures, []string) {
		t.Helper()
		s.Fail(nil)
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestThousandRole$")
		cmd.Env = append(os.Environ(), varRole+"="+role, varThousand+"="+strconv.Itoa(n))
		cmd.Stderr = os.Stderr
		fmt.Fprintf(os.Stderr, "%s: %s, %d VMs\n", time.Now().Format(time.TimeOnly), role, n)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s, %d VMs: %v\n%s", role, n, err, out)
		}
		var f figures
		line, _, _ := strings.Cut(string(out), "\n")
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		same(t, role, before)
		return f, s.Calls()
	}
	count := func(calls []string) map[string]int {
		m := map[string]int{}
		for _, c := range calls {
			m[c]++
		}
		return m
	}
	few := max(2, n/250)
	serial, _ := measure("serial", few)
	quarter, _ := measure("all", max(1, n/4))
	all, calls := measure("all", n)
	half, _ := measure("interrupted", n)
	each := serial.StartS / float64(few)
	fmt.Printf("%d VMs on %d hosts, %d ms a call\n", n, benchHosts, benchDelay)
	fmt.Printf("  hosts read and planned          %8.1f s\n", all.PlanS)
	fmt.Printf("  cloned, set, powered on         %8.1f s\n", all.StartS)
	fmt.Printf("  one after the other             %8.1f s  (%d times %.2f s, measured with %d)\n", each*float64(n), n, each, few)
	fmt.Printf("  removed                         %8.1f s\n", all.EndS)
	fmt.Printf("  calls per VM                    %8.1f    %v\n", float64(len(calls))/float64(n), count(calls))
	fmt.Printf("  peak memory                     %8.0f MB (%.0f MB with %d VMs, %.0f MB before any)\n", all.PeakMB, quarter.PeakMB, quarter.VMs, all.IdleMB)
	fmt.Printf("  interrupted with %4d started    %8.1f s  until nothing was left\n", half.Started, half.EndS)
}

// TestThousandRole is the measured process.
func TestThousandRole(t *testing.T) {
	role := os.Getenv(varRole)
	n, err := strconv.Atoi(os.Getenv(varThousand))
	if role == "" || err != nil {
		t.Skip("TestThousand starts it")
	}
	f := figures{VMs: n}
	began := time.Now()
	l, err := begin(t, fmt.Sprintf(`
name: thousand
backend: vsphere
root: backend
vms: [{name: vm, count: %d, vcpus: 2, memory: 8GiB}]
vsphere: {template: %s, portGroup: DC0_DVPG0}
`, n, vcsim.Template))
	if err != nil {
		t.Fatal(err)
	}
	f.PlanS, f.IdleMB = time.Since(began).Seconds(), peakMB()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	cause := errors.New("interrupted")
	var started atomic.Int32
	l.vms = make([]backend.Instance, n)
	var all []func() error
	for i := range l.p.VMs {
		all = append(all, func() (err error) {
			l.vms[i], err = l.d.Start(ctx, backend.Request{Cluster: l.c.Name, VM: l.p.VMs[i], Record: l.j.record})
			if err == nil && int(started.Add(1)) == max(1, n/4) && role == "interrupted" {
				cancel(cause)
				began = time.Now()
			}
			return err
		})
	}
	began = time.Now()
	most := n
	if role == "serial" {
		most = 1
	}
	err = side(all, most)
	if role == "interrupted" {
		if !errors.Is(err, cause) {
			t.Fatal(err)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	f.Started = int(started.Load())
	if role != "interrupted" {
		f.StartS = time.Since(began).Seconds()
		began = time.Now()
	}
	var ends []func() error
	for _, v := range l.vms {
		if v != nil {
			ends = append(ends, func() error { return v.Kill(context.Background()) })
		}
	}
	if err := side(ends, max(1, len(ends))); err != nil {
		t.Fatal(err)
	}
	l.j.undo(t)
	f.EndS, f.PeakMB = time.Since(began).Seconds(), peakMB()
	json.NewEncoder(os.Stdout).Encode(f)
}

// peakMB returns the peak memory of this process in MB.
func peakMB() float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, line := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return float64(kb) / 1024
		}
	}
	return 0
}
