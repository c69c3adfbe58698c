package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nearmetal/internal/traffic"
)

// Test programs: of internal/launch, and one in which every rank sends to every other.
const (
	ranks = "../../internal/launch/testdata/ranks.c"
	pairs = "testdata/pairs.c"
)

// patient keeps a rank from taking another for dead whose VM stands still, as on a machine that does much else.
const patient = "export FI_IVSHMEM_TIMEOUT=200000\n"

// compile compiles a test program by an MPI library's mpicc, or skips.
func compile(t *testing.T, program, mpicc, to string, flags ...string) {
	t.Helper()
	path, err := exec.LookPath(mpicc)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs ", mpicc)
		}
		t.Skip("this test needs ", mpicc)
	}
	if out, err := exec.Command(path, append(flags, "-o", to, program)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", mpicc, err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// pmix compiles a program for the PMIx that Slurm has.
func pmix(t *testing.T, program, to string) {
	t.Helper()
	out, err := exec.Command("pkg-config", "--cflags", "--libs", "pmix").Output()
	if err != nil {
		t.Fatalf("pkg-config pmix: %v", err)
	}
	compile(t, program, "gcc", to, append([]string{"-Wl,--no-as-needed"}, strings.Fields(string(out))...)...)
}

// mpich5 compiles the program for the wheel's MPICH 5, with a copy of its libraries that the user may
// read: Debian's MPICH 4.0 hangs in MPI_Finalize now and then (docs/mpi-troubleshooting.md).
func mpich5(t *testing.T, program, home string) {
	t.Helper()
	venv, err := filepath.Abs("../../build/venv/mpich")
	if err != nil {
		t.Fatal(err)
	}
	compile(t, program, venv+"/bin/mpicc", filepath.Join(home, "mpich"), "-Wl,-rpath,$ORIGIN/lib")
	if err := os.MkdirAll(filepath.Join(home, "lib/mpich"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, lib := range []string{"libmpi.so.12", "mpich/libfabric.so.1"} {
		text, err := os.ReadFile(filepath.Join(venv, "lib", lib))
		if err == nil {
			err = os.WriteFile(filepath.Join(home, "lib", lib), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// intelMPI compiles the program for Intel MPI's run time, a wheel with MPICH's interface, which it copies, too.
func intelMPI(t *testing.T, program, home string) {
	t.Helper()
	venv, err := filepath.Abs("../../build/venv")
	if err != nil {
		t.Fatal(err)
	}
	compile(t, program, venv+"/mpich/bin/mpicc", filepath.Join(home, "intelmpi"))
	if err := os.MkdirAll(filepath.Join(home, "intel"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, lib := range []string{"libmpi.so.12", "libfabric.so.1"} {
		text, err := os.ReadFile(filepath.Join(venv, "intel/lib", lib))
		if err == nil {
			err = os.WriteFile(filepath.Join(home, "intel", lib), text, 0o755)
		} else if os.Getenv("CI") != "true" {
			t.Skip("this test needs Intel MPI (make extras): ", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// MPI programs, started by srun over PMI-2 (MPICH, Intel MPI, and a client that knows PMI_FD alone) and PMIx (Open MPI) and by mpirun in a batch
// script: in two VMs of a node, which MPI takes for two hosts, with two ranks in each.
func TestMPI(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	mpich5(t, ranks, a.home)
	compile(t, ranks, "mpicc.openmpi", filepath.Join(a.home, "openmpi"))
	compile(t, "testdata/pmi1.c", "gcc", filepath.Join(a.home, "client"))
	intelMPI(t, ranks, a.home)
	r := a.run(t, "sbatch", "-W", "-w", "n1", "-n2", "--mem=4000", "--gres=region:64M",
		"--vm=vms=2,vcpus=2,region=64MiB,memory=512MiB", "-o", a.home+"/log", "--wrap", patient+`
srun -n3 --overcommit --mpi=pmi2 ./mpich >pmi2 || echo pmi2: status $?
srun -n3 --overcommit --mpi=pmi2 ./client >pmi1 || echo pmi1: status $?
srun --no-vm -n3 --overcommit --mpi=pmi2 ./client >pmi1.native || echo pmi1 on the host: status $?
I_MPI_FABRICS=ofi LD_LIBRARY_PATH=$PWD/intel srun -n2 --mpi=pmi2 ./intelmpi >intelmpi.out || echo intelmpi: status $?
srun -n2 --mpi=pmix ./openmpi >pmix || echo pmix: status $?
srun -n2 --mpi=pmix --vm-traffic=counts ./openmpi >counted || echo counted: status $?
mpirun.openmpi -n 2 --map-by node ./openmpi >mpirun || echo mpirun: status $?
srun -n4 --overcommit --cpu-bind=map_cpu:0,1,0,1 sh -c 'echo $SLURM_PROCID: $(grep Cpus_allowed_list /proc/self/status)' >bound
srun -n2 --cpu-bind=none sh -c 'echo $SLURM_PROCID: $(grep Cpus_allowed_list /proc/self/status)' >free
`)
	// More vCPUs than CPUs: none is pinned, and each task has its share of its VM's.
	for name, want := range map[string]string{"bound": "0: 0, 1: 1, 2: 0, 3: 1", "free": "0: 0-1, 1: 0-1"} {
		if text, _ := os.ReadFile(filepath.Join(a.home, name)); affinities(string(text)) != want {
			t.Errorf("--cpu-bind, %s: %q", name, text)
		}
	}
	counts, err := traffic.ReadDir(filepath.Join(a.home, "counts"))
	if m := traffic.Of(counts); err != nil || len(m.Ranks) != 2 || len(m.Pairs) == 0 || m.Pairs[0].Channel != "region" || m.Ranks[1].VM != "n1-vm1" {
		t.Errorf("--vm-traffic: %+v, %v", m, err)
	}
	log, _ := os.ReadFile(a.home + "/log")
	if r.code != 0 {
		t.Errorf("%+v", r)
	}
	host, _ := os.Hostname()
	for name, ranks := range map[string][]string{
		"pmi2":         {"rank 0 of 3 on n1-vm0: right", "rank 1 of 3 on n1-vm0: right", "rank 2 of 3 on n1-vm1: right"},
		"pmi1":         {"rank 0 of 3 is on n1-vm0", "rank 1 of 3 is on n1-vm0", "rank 2 of 3 is on n1-vm1"},
		"pmi1.native":  {"rank 0 of 3 is on " + host, "rank 2 of 3 is on " + host},
		"intelmpi.out": {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
		"counted":      {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
		"pmix":         {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
		"mpirun":       {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
	} {
		text, _ := os.ReadFile(filepath.Join(a.home, name))
		for _, want := range ranks {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s\n%s", name, want, text, log)
				break
			}
		}
	}
}

// The same over two nodes with two VMs each: MPICH and Open MPI reach VMs of a node by the region, those of
// other nodes by their one network, whose secret no program of the job's sees.
func TestMPIOverNodes(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 2)
	mpich5(t, pairs, a.home)
	compile(t, pairs, "mpicc.openmpi", filepath.Join(a.home, "openmpi"))
	pmix(t, "testdata/fence.c", filepath.Join(a.home, "fence"))
	r := a.run(t, "sbatch", "-W", "-N2", "-n4", "--mem=2500", "--gres=region:64M", "--vm=vms=2,vcpus=1,region=64MiB,memory=384MiB", "-o", a.home+"/log", "--wrap", patient+`
srun sh -c 'getent hosts n1-vm0 n1-vm1 n2-vm0 n2-vm1; ! env | grep SECRET' >names || echo names: status $?
export FI_LOG_LEVEL=info FI_LOG_PROV=ivshmem FI_LOG_SUBSYS=ep_ctrl
srun --mpi=pmi2 ./mpich >pmi2 2>channels || echo pmi2: status $?
srun --mpi=pmix ./openmpi >pmix 2>channels.pmix || echo pmix: status $?
mpirun.openmpi -x FI_LOG_LEVEL -x FI_LOG_PROV -x FI_LOG_SUBSYS -n 4 --map-by node ./openmpi >mpirun 2>channels.mpirun || echo mpirun: status $?
srun -N2 -n2 --mpi=pmix ./fence >fences || echo fence: status $?
SLURM_PMIX_FENCE=tree srun -N2 -n2 sh -c 'test $SLURM_PROCID = 1 || echo $SLURM_PMIX_FENCE' >>fences
`)
	log, _ := os.ReadFile(a.home + "/log")
	// A word of Open MPI's own mpirun (4: rsh, 5: ssh), whose shell for a host may be too quick for it.
	log = regexp.MustCompile(`(?m)^.*plm:[rs]sh: Warning: setpgid\(.*\n`).ReplaceAll(log, nil)
	if r.code != 0 || said(string(log)) != "" {
		t.Errorf("%+v\n%s", r, log)
	}
	for _, name := range []string{"pmi2", "pmix", "mpirun"} {
		text, _ := os.ReadFile(filepath.Join(a.home, name))
		for _, want := range []string{"on n1-vm0: right", "on n1-vm1: right", "on n2-vm0: right", "on n2-vm1: right"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s\n%s", name, want, text, log)
				break
			}
		}
	}
	for _, name := range []string{"channels", "channels.pmix", "channels.mpirun"} {
		used, _ := os.ReadFile(filepath.Join(a.home, name))
		if n := len(channels.FindAll(used, -1)); n != 4 {
			t.Errorf("%s: %d ranks used the region and the network, want 4:\n%s", name, n, used)
		}
	}
	text, _ := os.ReadFile(filepath.Join(a.home, "fences"))
	if string(text) != "5 of 5 fences waited\ntree\n" {
		t.Errorf("PMIx's fences over nodes, and the user's own choice of them: %q", text)
	}
	text, _ = os.ReadFile(filepath.Join(a.home, "names"))
	for _, vm := range []string{"n1-vm0", "n1-vm1", "n2-vm0", "n2-vm1"} {
		if n := strings.Count(string(text), vm+"\n"); n != 4 {
			t.Errorf("%d VMs know %s: %q", n, vm, text)
		}
	}
}

// channels is what the provider says at the end of a rank (docs/mpi-troubleshooting.md), of one that has sent to one VM of its
// node by the region, and to two of the other by the network.
var channels = regexp.MustCompile(`; 1 ranks of other VMs, [1-9]\d* lines; 2 ranks over the core provider, [1-9]\d* messages`)
