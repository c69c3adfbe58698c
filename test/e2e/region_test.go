package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// pair runs a program of kernels/ over the region of a cluster, its side b in vm1 and its
// side a in vm0, and returns what side a ended with.
func pair(t *testing.T, c, program string, args ...string) result {
	t.Helper()
	path := filepath.Join(kernels, program)
	b := command(t, "exec", "-c", c, "--vm", "vm1", "-n", "--", path, "--role", "b")
	a := command(t, append([]string{"exec", "-c", c, "--vm", "vm0", "-n", "--", path, "--role", "a", "--json"}, args...)...)
	var wg sync.WaitGroup
	var sideB []byte
	wg.Add(1)
	go func() { defer wg.Done(); sideB, _ = b.CombinedOutput() }()
	r := finish(t, a, "")
	wg.Wait()
	if r.code == 0 && b.ProcessState.ExitCode() != 0 {
		t.Errorf("side b: exit status %d: %s", b.ProcessState.ExitCode(), sideB)
	}
	return r
}

// Two VMs exchange messages over the region that they share.
func TestRegionPingpong(t *testing.T) {
	c := shared(t)
	r := pair(t, c, "region_pingpong", "--iterations", "200:2", "--warmup", "20:1", "--latency", "0:1KiB", "--bandwidth", "64KiB:256KiB").want(t, 0)
	var doc struct {
		LatencyUs    []struct{ Bytes, Median float64 }
		BandwidthMBs []struct{ Bytes, Median float64 }
	}
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	if len(doc.LatencyUs) != 12 || len(doc.BandwidthMBs) != 3 {
		t.Fatalf("%+v", doc)
	}
	for _, row := range append(doc.LatencyUs, doc.BandwidthMBs...) {
		if row.Median <= 0 {
			t.Errorf("%+v", row)
		}
	}
	t.Logf("half a round trip of 8 B: %.2f us; 256 KiB: %.0f MB/s (timings of emulated VMs are not meaningful)",
		doc.LatencyUs[1].Median, doc.BandwidthMBs[2].Median)
}

// counts are region_atomics' results.
type counts map[string]struct{ Lost, Of, Met float64 }

func atomics(t *testing.T, c string) (result, counts) {
	t.Helper()
	r := pair(t, c, "region_atomics", "--operations", "300000", "--rounds", "5000")
	var doc map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.out), &doc); err != nil {
		t.Fatalf("exit status %d, %v\n%s%s", r.code, err, r.out, r.err)
	}
	n := counts{}
	for _, test := range []string{"add", "cas", "fence"} {
		v := n[test]
		if err := json.Unmarshal(doc[test], &v); err != nil {
			t.Fatalf("%s: %v\n%s", test, err, r.out)
		}
		n[test] = v
	}
	return r, n
}

// Locked instructions and fences are right between two VMs with one vCPU each. They are
// only because QEMU expects that more vCPUs may come (maxcpus): the second half shows the
// loss without, on the same machine, where it can be seen.
func TestRegionAtomics(t *testing.T) {
	r, n := atomics(t, shared(t))
	for test, v := range n {
		if v.Lost != 0 {
			t.Errorf("%s: %v of %v lost", test, v.Lost, v.Of)
		}
		t.Logf("%-5s %8.0f of %8.0f lost, %8.0f met", test, v.Lost, v.Of, v.Met)
	}
	r.want(t, 0)

	needs(t, "qemu-system-x86_64")
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(t.TempDir(), "qemu")
	writeProgram(t, wrapper, fmt.Sprintf(`#!/bin/bash
args=()
for a; do
	case $a in *maxcpus=*) a=1;; esac
	args+=("$a")
done
exec %s "${args[@]}"
`, path))
	c := up(t, "--vms", "2", "--vcpus", "1", "--accel", "tcg", "--no-share", "--qemu", wrapper)
	_, n = atomics(t, c)
	for test, v := range n {
		t.Logf("with -smp 1: %-5s %8.0f of %8.0f lost, %8.0f met", test, v.Lost, v.Of, v.Met)
	}
}

// Under TCG `rep movsb` is slower than any other copy: programs that ask the CPU must not
// see that it is fast.
func TestSlowCopyHidden(t *testing.T) {
	c := shared(t)
	if !strings.Contains(nm(t, "ps", c, "--json").want(t, 0).out, `"accel": "tcg"`) {
		t.Log("KVM: the VMs have the host's own CPU")
		return
	}
	r := nm(t, "exec", "-c", c, "grep", "-m1", "^flags", "/proc/cpuinfo").want(t, 0)
	flags := " " + strings.Join(strings.Fields(r.out), " ") + " "
	for _, f := range []string{"erms", "fsrm"} {
		if strings.Contains(flags, " "+f+" ") {
			t.Errorf("the VMs' CPUs have %s", f)
		}
	}
	if !strings.Contains(flags, " sse2 ") {
		t.Errorf("no flags: %q", r.out)
	}
}

// The region is the caller's in the VMs, and has no name on the host by which others could
// open it.
func TestRegionAccess(t *testing.T) {
	c := shared(t)
	nm(t, "exec", "-c", c, "--all", "--", "sh", "-c", `test "$(stat -Lc %u:%a /dev/nearmetal/region)" = $(id -u):600`).want(t, 0)
	var rec struct{ VMs []struct{ PID int } }
	if err := json.Unmarshal([]byte(nm(t, "ps", c, "--json").want(t, 0).out), &rec); err != nil {
		t.Fatal(err)
	}
	for _, v := range rec.VMs {
		mapped := 0
		for _, line := range strings.Split(read(fmt.Sprintf("/proc/%d/maps", v.PID)), "\n") {
			if !strings.Contains(line, " /dev/shm/") {
				continue
			}
			mapped++
			if !strings.HasSuffix(line, " (deleted)") {
				t.Errorf("the region has a name: %s", line)
			}
		}
		if mapped == 0 {
			t.Errorf("QEMU %d has no region mapped", v.PID)
		}
	}
}
