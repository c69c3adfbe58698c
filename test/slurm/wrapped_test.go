package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wrapped says how srun starts the ranks: ./PROGRAM stands behind a process that is not Slurm's.
var wrapped = map[string]string{
	"timeout": "timeout 60 ./%s",
	"shell":   "bash -c './%s; true'",
}

// Ranks that srun starts behind a wrapper find each other, over PMI-2 and PMIx: those of a host, and those of a VM.
// Nothing else would reach them on the host, where there is no core provider.
func TestWrapped(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	mpich5(t, ranks, a.home)
	compile(t, ranks, "mpicc.openmpi", filepath.Join(a.home, "openmpi"))
	intelMPI(t, ranks, a.home)
	script := patient + "export FI_LOG_LEVEL=info FI_LOG_PROV=ivshmem FI_LOG_SUBSYS=ep_ctrl\n"
	programs := map[string][2]string{ // what srun has of each, and its own variables
		"mpich":    {"--mpi=pmi2", "MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1"},
		"intelmpi": {"--mpi=pmi2", "I_MPI_FABRICS=ofi LD_LIBRARY_PATH=$PWD/intel"},
		"openmpi":  {"--mpi=pmix", "OMPI_MCA_mtl=^psm OMPI_MCA_mtl_ofi_priority=100"},
	}
	native := fmt.Sprintf("FI_PROVIDER=ivshmem FI_IVSHMEM_CORE=none FI_PROVIDER_PATH=+%[1]s/libivshmem-fi.so:%[1]s", filepath.Join(bin, "c/fabric"))
	for program, p := range programs {
		for wrapper, words := range wrapped {
			name := program + "." + wrapper
			words = fmt.Sprintf(words, program)
			script += fmt.Sprintf("env %s %s srun --no-vm -n2 --overcommit %s %s >%s.host 2>&1 || echo %s on the host: status $?\n", native, p[1], p[0], words, name, name)
			script += fmt.Sprintf("env %s srun -n4 --overcommit %s %s >%s.vm 2>&1 || echo %s in VMs: status $?\n", p[1], p[0], words, name, name)
		}
	}
	r := a.run(t, "sbatch", "-W", "-w", "n1", "-n2", "--mem=4000", "--gres=region:64M",
		"--vm=vms=2,vcpus=2,region=64MiB,memory=512MiB", "-o", a.home+"/log", "--wrap", script)
	log, _ := os.ReadFile(a.home + "/log")
	if r.code != 0 || len(log) > 0 {
		t.Errorf("%+v\n%s", r, log)
	}
	for program := range programs {
		for wrapper := range wrapped {
			for where, want := range map[string]struct {
				ranks int
				used  string
			}{
				"host": {2, `channels used: 1 ranks of this VM, [1-9]\d* lines, \d+ direct copies; 0 ranks of other VMs, `},
				"vm":   {4, `channels used: 1 ranks of this VM, [1-9]\d* lines, \d+ direct copies; 2 ranks of other VMs, `},
			} {
				text, _ := os.ReadFile(filepath.Join(a.home, program+"."+wrapper+"."+where))
				right, used := strings.Count(string(text), ": right\n"), len(regexp.MustCompile(want.used).FindAll(text, -1))
				if right != want.ranks || used != want.ranks {
					t.Errorf("%s behind %s, %s: %d ranks are right, %d have found the others, want %d:\n%s", program, wrapper, where, right, used, want.ranks, text)
				}
			}
		}
	}
}
