package mpi

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// twoHosts are two regions, for ranks of even and of odd numbers, as ranks on two hosts have them: each reaches one
// half of the others by its region and the other half by the provider beneath.
func twoHosts(t *testing.T, l *library) (env []string, wrapper string) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "nm-hosts-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	wrapper = filepath.Join(dir, "host")
	text := fmt.Sprintf("#!/bin/sh\nr=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexport FI_IVSHMEM_REGION=%s/$((r %% 2))\nexec \"$@\"\n", dir)
	if err := os.WriteFile(wrapper, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	// As internal/launch sets them. The network interface is the loopback: a machine may have no other.
	env = []string{"FI_PROVIDER=ivshmem,tcp,ofi_rxm", "FI_IVSHMEM_CORE=auto", "FI_TCP_IFACE=lo", "FI_IVSHMEM_REGION_SIZE=67108864",
		"OMPI_MCA_opal_common_ofi_provider_include=ivshmem", "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl"}
	return env, wrapper
}

// mixed fails unless each of n ranks sent by the region, and by the provider beneath.
func mixed(t *testing.T, log string, n int) {
	t.Helper()
	ranks := 0
	for _, line := range strings.Split(log, "\n") {
		if !strings.Contains(line, useLine) {
			continue
		}
		if u := uses(t, line); u.ranks == 1 && u.near+u.others > 0 && u.nearLines+u.otherLines+u.direct > 0 && u.innerMessages > 0 {
			ranks++
		}
	}
	if ranks < n {
		t.Errorf("%d of %d ranks used the region and the provider beneath:\n%s", ranks, n, log)
	}
}

// A receive that takes what comes first gets it from a rank of the same host, by the region, and from one of another,
// by TCP, whichever comes: every message arrives once, and whole. A solver finds the same bits.
func TestTwoHosts(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		pairs := filepath.Join(t.TempDir(), "pairs")
		if out, err := exec.Command(l.mpicc, "-O1", "-o", pairs, "../slurm/testdata/pairs.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		env, host := twoHosts(t, l)
		for _, n := range []int{3, 6} {
			out, log := l.start(t, n, env, host, pairs)
			if got := strings.Count(out, ": right\n"); got != n {
				t.Errorf("%d of %d ranks are right:\n%s", got, n, out)
			}
			if n == 6 { // of three, one is alone on its host
				mixed(t, log, n)
			}
		}
		out, log := l.start(t, 4, env, host, bin+"/nm_cg", "--grid", "64")
		if !strings.Contains(out, checksum) {
			t.Errorf("%s", out)
		}
		mixed(t, log, 4)
	})
}

// One-sided communication between ranks of two hosts leaves what it must.
func TestTwoHostsOneSided(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		env, host := twoHosts(t, l)
		out, _ := l.start(t, 4, append(env, l.onesided...), host, bin+"/nm_onesided", "--bytes", "40000", "--rounds", "5")
		if n := strings.Count(out, " ok\n"); n != 14 {
			t.Errorf("%d of 14 checks: %s", n, out)
		}
	})
}

// Threads that send and receive at once, under MPI_THREAD_MULTIPLE, between ranks of which one half is reached by the
// region and the other by the provider beneath.
func TestTwoHostsThreads(t *testing.T) {
	each(t, func(t *testing.T, l *library, _ string) {
		threads := filepath.Join(t.TempDir(), "threads")
		if out, err := exec.Command(l.mpicc, "-O1", "-pthread", "-o", threads, "testdata/threads.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		env, host := twoHosts(t, l)
		out, log := l.start(t, 4, env, host, threads)
		if n := strings.Count(out, ": right\n"); n != 4 {
			t.Errorf("%d of 4 ranks are right:\n%s", n, out)
		}
		mixed(t, log, 4)
	})
}
