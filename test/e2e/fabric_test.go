package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logChannels make the libfabric provider say at each rank's end which channels it used.
var logChannels = []string{"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl"}

var (
	channelsUsed = regexp.MustCompile(`channels used: (.*)`)
	// What one of those lines says of a channel that carried something.
	overVM     = regexp.MustCompile(`[1-9]\d* ranks of this VM, [1-9]\d* lines`)
	overRegion = regexp.MustCompile(`[1-9]\d* ranks of other VMs, [1-9]\d* lines`)
	overCore   = regexp.MustCompile(`[1-9]\d* ranks over the core provider, [1-9]\d* messages`)
)

// used are the ranks' lines about their channels.
type used []string

func channels(r result) used {
	var u used
	for _, m := range channelsUsed.FindAllStringSubmatch(r.out+r.err, -1) {
		// An endpoint that a library opened beside the one that it uses says zeros.
		if overVM.MatchString(m[1]) || overRegion.MatchString(m[1]) || overCore.MatchString(m[1]) {
			u = append(u, m[1])
		}
	}
	return u
}

// count is how many ranks used a channel.
func (u used) count(channel *regexp.Regexp) int {
	n := 0
	for _, line := range u {
		if channel.MatchString(line) {
			n++
		}
	}
	return n
}

// Three VMs with two ranks each, one of them without the region: every rank sends to its
// neighbour in the VM, and over the region or the network to the others, in one job.
func TestFabricThreeChannels(t *testing.T) {
	c := up(t, "--vms", "3", "--vcpus", "1", "--no-share")
	t.Run("overcommit", func(t *testing.T) { overcommit(t, c, 3) })
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	// vm2 does as if it were on another host.
	away := filepath.Join(dir, "away")
	writeProgram(t, away, "#!/bin/sh\n[ $(hostname) = vm2 ] && export FI_IVSHMEM_REGION=none\nexec \"$@\"\n")
	t.Setenv("FI_IVSHMEM_CORE", "auto")
	// libfabric 1.17's ofi_rxm asks for its own core provider behind the filter.
	t.Setenv("FI_PROVIDER", "ivshmem,tcp,ofi_rxm")
	t.Setenv("OMPI_MCA_opal_common_ofi_provider_include", "ivshmem")
	// MPICH would use its own shared memory within a VM.
	t.Setenv("MPIR_CVAR_NOLOCAL", "1")
	for _, l := range libraries(t) {
		if l.finalizeHangs {
			continue // it is built without libfabric
		}
		t.Run(l.name, func(t *testing.T) {
			needs(t, l.mpirun)
			cg := kernel(t, l.mpicc, "nm_cg")
			// The checksum of this grid, which is the same wherever it runs (test/kernels).
			if l.name != "Open MPI 4" {
				t.Setenv("FI_PROVIDER", "ivshmem")
			}
			args := []string{l.mpirun, "-n", "6"}
			if l.name == "MPICH 5" {
				args = append(args, "-ppn", "2") // neighbours of the solver's in one VM
			}
			r := inVMs(t, c, false, append(args, away, cg, "--grid", "32", "--expect", "56fb381a2d6441dc")...)
			r.places(t)
			if u := channels(r); len(u) != 6 || u.count(overVM) < 4 || u.count(overRegion) != 4 || u.count(overCore) != 6 {
				t.Errorf("channels: %q", u)
			}
		})
	}
}

var ring = regexp.MustCompile(`token (\d+) slept (\d+) round (\S+) us`)

// overcommit checks that waiting ranks sleep where a host has fewer CPUs than its n VMs of a vCPU each, and that they
// receive what they wait for.
func overcommit(t *testing.T, c string, n int) {
	if goruntime.NumCPU() >= n {
		t.Skipf("this machine has a CPU for each of %d vCPUs", n)
	}
	l := libraries(t)[3]
	needs(t, l.mpirun)
	dir := t.TempDir()
	os.Chmod(dir, 0o755)
	program := filepath.Join(dir, "ring")
	if out, err := exec.Command(l.mpicc, "-D_GNU_SOURCE", "-O2", "-o", program, "testdata/ring.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const rounds = 100
	slept := func(env ...string) int {
		r := inVMs(t, c, false, slices.Concat([]string{l.mpirun, "-n", strconv.Itoa(n), "env"}, env, []string{program, strconv.Itoa(rounds)})...)
		m := ring.FindStringSubmatch(r.out)
		if m == nil || m[1] != strconv.Itoa(n*rounds) {
			t.Fatalf("%s%s", r.out, r.err)
		}
		t.Log(env, m[0])
		k, _ := strconv.Atoi(m[2])
		return k
	}
	with, without := slept(), slept("FI_IVSHMEM_OVERCOMMIT=0")
	if with < rounds || without > with/4 {
		t.Errorf("%d ranks slept %d times in %d rounds, and %d times when told that they need not", n, with, rounds, without)
	}
}

// One-sided communication between VMs leaves what it must, over the region.
func TestFabricOneSided(t *testing.T) {
	c := shared(t)
	l := libraries(t)[3]
	needs(t, l.mpirun)
	build := t.TempDir()
	os.Chmod(build, 0o755)
	r := inVMs(t, c, false, l.mpirun, "-n", "2", kernel(t, l.mpicc, "nm_onesided"), "--bytes", "40000", "--rounds", "5")
	if n := strings.Count(r.out, " ok\n"); n != 14 {
		t.Errorf("%d of 14 checks: %s", n, r.out)
	}
	if u := channels(r); u.count(overRegion) != 2 {
		t.Errorf("channels: %q", u)
	}
	// With the library preloaded, windows lie in the region that both VMs have.
	preload, err := filepath.Abs("../../build/c/fabric/mpi/libivshmem-mpi.so")
	if err != nil {
		t.Fatal(err)
	}
	lib := filepath.Join(build, filepath.Base(preload))
	data, err := os.ReadFile(preload)
	if err != nil {
		t.Fatal("run make first: ", err)
	}
	writeProgram(t, lib, string(data))
	program := filepath.Join(build, "memory")
	if out, err := exec.Command(l.mpicc, "-o", program, "../mpi/testdata/memory.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r = inVMs(t, c, false, l.mpirun, "-n", "2", "env", "LD_PRELOAD="+lib, program, "/dev/nearmetal/region", "8192")
	for _, line := range []string{"memory in the region", "a window over it works", "a window in the region", "it works", "what was not freed is as it was"} {
		if !strings.Contains(r.out, "\n"+line+": yes\n") && !strings.HasPrefix(r.out, line+": yes\n") {
			t.Errorf("not %q: %s", line, r.out)
		}
	}
}

// An MPI that has UCX only sends over the region with no flag, and ends, wherever its launcher runs. One that has
// libfabric, too, does so if the user chooses UCX.
func TestFabricUCX(t *testing.T) {
	c := up(t, "--vms", "2", "--vcpus", "1", "--no-share")
	t.Setenv("UCX_LOG_LEVEL", "info") // UCX says which transports it takes for a peer
	for _, test := range []struct {
		library       int
		launcherInVMs []bool
		env           string
	}{{1, []bool{false, true}, ""}, {0, []bool{false}, "OMPI_MCA_pml"}} {
		l := libraries(t)[test.library]
		t.Run(l.name, func(t *testing.T) {
			needs(t, l.mpirun)
			if test.env != "" {
				t.Setenv(test.env, "ucx")
			}
			for _, inVM := range test.launcherInVMs {
				r := inVMs(t, c, inVM, l.mpirun, "-n", "2", kernel(t, l.mpicc, "nm_cg"), "--grid", "32", "--expect", "56fb381a2d6441dc")
				r.places(t)
				if n := strings.Count(r.out+r.err, "(ivshmem/ivshmem0"); n < 2 {
					t.Errorf("launcher in a VM: %v: %d of 2 ranks send over the region: %s%s", inVM, n, r.out, r.err)
				}
			}
		})
	}
}

// With fabric: none, and where there is no region, libraries are left as they are.
func TestFabricNone(t *testing.T) {
	for _, flags := range [][]string{{"--fabric", "none"}, {"--region", "0"}} {
		args := append(append([]string{"run", "--vms", "2", "--vcpus", "1", "--no-share", "-v"}, small...), flags...)
		r := nm(t, append(args, "--", "sh", "-c", "echo provider: $FI_PROVIDER")...).want(t, 0, "over their network")
		if strings.Contains(r.out, "ivshmem") || strings.Count(r.out, "provider:") != 2 {
			t.Errorf("%q: %s", flags, r.out)
		}
	}
}
