package slurm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ranksProgram compiles the test program of internal/launch by an MPI library's mpicc, or skips.
func ranksProgram(t *testing.T, mpicc, to string, flags ...string) {
	t.Helper()
	path, err := exec.LookPath(mpicc)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs ", mpicc)
		}
		t.Skip("this test needs ", mpicc)
	}
	if out, err := exec.Command(path, append(flags, "-o", to, "../../internal/launch/testdata/ranks.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", mpicc, err, out)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// mpich5 compiles the program for the wheel's MPICH 5, with a copy of its libraries that the user may
// read: Debian's MPICH 4.0 hangs in MPI_Finalize now and then (docs/mpi.md).
func mpich5(t *testing.T, home string) {
	t.Helper()
	venv, err := filepath.Abs("../../build/venv/mpich")
	if err != nil {
		t.Fatal(err)
	}
	ranksProgram(t, venv+"/bin/mpicc", filepath.Join(home, "mpich"), "-Wl,-rpath,$ORIGIN/lib")
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

// MPI programs, started by srun over PMI-2 (MPICH) and PMIx (Open MPI) and by mpirun in a batch
// script: in two VMs of a node, which MPI takes for two hosts, with two ranks in each.
func TestMPI(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	mpich5(t, a.home)
	ranksProgram(t, "mpicc.openmpi", filepath.Join(a.home, "openmpi"))
	r := a.run(t, "sbatch", "-W", "-w", "n1", "-n2", "--mem=4000", "--gres=region:64M",
		"--vm=vms=2,vcpus=2,region=64MiB,memory=512MiB", "-o", a.home+"/log", "--wrap", `
srun -n3 --overcommit --mpi=pmi2 ./mpich >pmi2 || echo pmi2: status $?
srun -n2 --mpi=pmix ./openmpi >pmix || echo pmix: status $?
mpirun.openmpi -n 2 --map-by node ./openmpi >mpirun || echo mpirun: status $?
`)
	log, _ := os.ReadFile(a.home + "/log")
	if r.code != 0 {
		t.Errorf("%+v", r)
	}
	for name, ranks := range map[string][]string{
		"pmi2":   {"rank 0 of 3 on n1-vm0: right", "rank 1 of 3 on n1-vm0: right", "rank 2 of 3 on n1-vm1: right"},
		"pmix":   {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
		"mpirun": {"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n1-vm1: right"},
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

// The same over two nodes: their VMs are one network, whose secret no program of the job's sees.
func TestMPIOverNodes(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 2)
	mpich5(t, a.home)
	ranksProgram(t, "mpicc.openmpi", filepath.Join(a.home, "openmpi"))
	r := a.run(t, "sbatch", "-W", "-N2", "-n2", "--mem=2000", "--vm=vcpus=1,memory=512MiB", "-o", a.home+"/log", "--wrap", `
srun sh -c 'getent hosts n1-vm0 n2-vm0; test -z "$NEARMETAL_SLURM_SECRET$SPANK_NEARMETAL_SECRET"' >names || echo names: status $?
srun --mpi=pmi2 ./mpich >pmi2 || echo pmi2: status $?
srun --mpi=pmix ./openmpi >pmix || echo pmix: status $?
mpirun.openmpi -n 2 --map-by node ./openmpi >mpirun || echo mpirun: status $?
`)
	log, _ := os.ReadFile(a.home + "/log")
	if r.code != 0 || len(log) > 0 {
		t.Errorf("%+v\n%s", r, log)
	}
	for _, name := range []string{"pmi2", "pmix", "mpirun"} {
		text, _ := os.ReadFile(filepath.Join(a.home, name))
		for _, want := range []string{"rank 0 of 2 on n1-vm0: right", "rank 1 of 2 on n2-vm0: right"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s\n%s", name, want, text, log)
				break
			}
		}
	}
	text, _ := os.ReadFile(filepath.Join(a.home, "names"))
	if n := strings.Count(string(text), "n1-vm0\n"); n != 2 || strings.Count(string(text), "n2-vm0\n") != 2 {
		t.Errorf("names of all VMs in each: %q", text)
	}
}
