package job

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/session"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// record returns a cluster of two VMs as read by a client.
func record(t *testing.T) *state.Record {
	t.Helper()
	t.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(t.TempDir(), "run"))
	s := &spec.Cluster{}
	spec.Defaults(s)
	return &state.Record{Name: "demo", Spec: s, VMs: []state.VMRecord{
		{Name: "vm0", VCPUs: 2, IP: "10.77.0.1", Subnet: "10.77.0.0/16", Uplink: true},
		{Name: "vm1", VCPUs: 2, IP: "10.77.0.2", Subnet: "10.77.0.0/16", Uplink: true},
	}}
}

func TestShellQuote(t *testing.T) {
	for _, s := range []string{"plain", "", "a b", "it's", "$HOME `id` \"x\"", "^slurm,tm", "a;b"} {
		out, err := exec.Command("/bin/sh", "-c", "printf %s "+text.Shell(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q came back as %q, %v", s, out, err)
		}
	}
}

// TestEnvCommandsSurviveEval: `eval $(nearmetal env)`, without quotes, sets every variable.
func TestEnvCommandsSurviveEval(t *testing.T) {
	r := record(t)
	vars, err := LaunchVariables(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars {
		if strings.ContainsAny(v, " \t\n*?[") {
			t.Errorf("%q would not survive eval $(…)", v)
		}
	}
}

func TestLauncherSide(t *testing.T) {
	r := record(t)
	for _, c := range []struct {
		launcher, root string
		uplink, want   bool
	}{
		{"auto", "host", true, true},
		{"auto", "/srv/rocky9", true, false}, // its MPI is not the host's
		{"auto", "host", false, false},       // no way back to the host
		{"vm", "host", true, false},
		{"host", "/srv/rocky9", true, true},
	} {
		r.Spec.Launcher, r.Spec.Root, r.VMs[0].Uplink = c.launcher, c.root, c.uplink
		if got := onHost(r); got != c.want {
			t.Errorf("launcher %s, root %s, uplink %v: on the host %v, want %v", c.launcher, c.root, c.uplink, got, c.want)
		}
	}
	// Hosts reached by ssh have files of their own, so a launcher runs here only if the user requests it.
	r.Remote = []state.RemoteHost{{Name: "n1"}, {Name: "n2"}}
	for launcher, want := range map[string]bool{"auto": false, "host": true, "vm": false} {
		r.Spec.Launcher, r.Spec.Root, r.VMs[0].Uplink = launcher, "host", true
		if got := onHost(r); got != want {
			t.Errorf("over ssh, launcher %s: on the host %v, want %v", launcher, got, want)
		}
	}
	if _, err := LaunchVariables(r, nil); err != nil {
		t.Error(err)
	}
}

// TestTranslation: a daemon in a VM gets the VM's own remote shell and host files.
func TestTranslation(t *testing.T) {
	r := record(t)
	tr, err := inVM(r)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := r.Dir()
	got := tr.words([]string{"orted", "-mca", "plm_rsh_agent", dir + "/nearmetal-rsh", "A=" + dir + "/hosts/openmpi"})
	want := "orted -mca plm_rsh_agent /run/nearmetal/bin/nearmetal-rsh A=/run/nearmetal/hosts/openmpi"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestParsePlace(t *testing.T) {
	for in, want := range map[string]Place{
		"vm0:/tmp/a": {"", "vm0", "/tmp/a"}, "a": {"", "", "a"}, "./a:b": {"", "", "./a:b"},
		"/x/a:b": {"", "", "/x/a:b"}, ":a": {"", "", ":a"}, "vm1:": {"", "vm1", ""},
		"demo/vm1:/a:b": {"demo", "vm1", "/a:b"}, "../x/a:b": {"", "", "../x/a:b"}, "a/b/c:d": {"", "", "a/b/c:d"},
		"demo/:x": {"", "", "demo/:x"},
	} {
		if got := ParsePlace(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// TestLook: where a command runs depends on its kind and the user's option.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"mpirun": "#!/bin/sh\necho 'mpirun (Open MPI) 4.1.6'\n",
		"job.sh": "#!/bin/sh\nmpirun -n 2 ./app\n", "plain.sh": "#!/bin/sh\n./app\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		where        Where
		root, args   string
		once, script bool
		library      string
	}{
		{Fitting, "host", "mpirun -n 2 ./app", true, false, "4.1.6"},
		{Fitting, "host", "job.sh", true, true, "4.1.6"},
		{Fitting, "host", "sh plain.sh", false, false, ""},
		{Fitting, "host", "hostname", false, false, ""},
		{Fitting, "/srv/rocky", "mpirun -n 2 ./app", true, false, ""},
		{Fitting, "/srv/rocky", "job.sh", true, true, ""},
		{Each, "host", "mpirun -n 2 ./app", false, false, ""},
		{Each, "host", "job.sh", false, false, ""},
		{OnHost, "host", "hostname", true, false, ""},
		{OnHost, "host", "job.sh", true, false, "4.1.6"}, // no warning: the user chose it
	} {
		got, err := look(RunOptions{Where: c.where, Args: strings.Fields(c.args), Cluster: cluster.Start{Spec: &spec.Cluster{Root: c.root}}})
		if err != nil || got.once != c.once || (got.script != "") != c.script || got.launcher.Version != c.library {
			t.Errorf("%s, root %s, where %d: %+v, %v", c.args, c.root, c.where, got, err)
		}
	}
}

func TestRunHere(t *testing.T) {
	ctx := context.Background()
	run := func(args ...string) int {
		code, err := runHere(ctx, nil, args, os.Environ(), session.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	if code := run("sh", "-c", "exit 5"); code != 5 {
		t.Errorf("exit status %d, want 5", code)
	}
	if code := run("sh", "-c", "kill -KILL $$"); code != 128+9 {
		t.Errorf("exit status %d, want 137", code)
	}
	if _, err := runHere(ctx, nil, []string{"/no/such"}, nil, session.Discard); err == nil || strings.Count(err.Error(), "/no/such") != 1 {
		t.Errorf("a program that is not there: %v", err)
	}
	// A cancelled command gets SIGTERM first, which ends a shell that waits for a builtin read.
	ctx2, cancel := context.WithCancel(ctx)
	cancel()
	code, err := runHere(ctx2, nil, []string{"sleep", "1000"}, os.Environ(), session.Discard)
	if err != nil || code != 128+int(syscall.SIGTERM) {
		t.Errorf("given up: %d, %v", code, err)
	}
}

// TestOpenFiles: a launcher may open many files, at most its hard limit: see openFiles.
func TestOpenFiles(t *testing.T) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		t.Fatal(err)
	}
	want := min(l.Max, openFiles)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// For a moment it has the previous limit.
	code, err := runHere(ctx, nil, []string{"sh", "-c", fmt.Sprintf("until [ $(ulimit -n) -ge %d ]; do :; done", want)}, os.Environ(), session.Discard)
	if err != nil || code != 0 {
		t.Errorf("the limit never was %d: %d, %v", want, code, err)
	}
}

// TestOpenFilesSetpgid: Open MPI 4's mpirun warns of setpgid if its forked child executes the remote shell before
// mpirun runs again. Here mpirun always runs again when the child has closed 5000 descriptors: too late for a child
// with 1024 of them, in time for one with openFiles.
func TestOpenFilesSetpgid(t *testing.T) {
	const mpirun = "mpirun.openmpi"
	if out, _ := exec.Command(mpirun, "--version").Output(); !bytes.Contains(out, []byte(") 4.")) {
		t.Skip("there is no mpirun of Open MPI 4")
	}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Max < openFiles {
		t.Skipf("the hard limit of open files is %d: %v", l.Max, err)
	}
	usual := syscall.Rlimit{Cur: 1024, Max: l.Max} // limits with which children begin
	if err := syscall.Setrlimit(unix.RLIMIT_NOFILE, &usual); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: l.Cur, Max: l.Max}) })
	order := filepath.Join(t.TempDir(), "forked.so")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wall", "-o", order, "testdata/forked.c", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for first, warns := range map[string]bool{
		fmt.Sprintf("until [ $(ulimit -n) -ge %d ]; do :; done", openFiles): false,
		"ulimit -n 1024": true, // also sets the hard limit
	} {
		var errs bytes.Buffer
		script := first + `; LD_PRELOAD=$0 FORKED_CLOSES=5000 exec "$@"`
		if _, err := runHere(ctx, nil, []string{"sh", "-c", script, order, mpirun, "--allow-run-as-root", "--mca", "plm_rsh_agent", "/bin/false", "--host", "nowhere", "-n", "1", "true"},
			os.Environ(), session.Streams{Out: &errs, Err: &errs}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(errs.String(), "setpgid("); got != warns {
			t.Errorf("after %s: mpirun warns of setpgid: %v, want %v\n%s", first, got, warns, errs.String())
		}
		if !strings.Contains(errs.String(), "ORTE was unable to reliably start one or more daemons") {
			t.Errorf("after %s: mpirun started no remote shell:\n%s", first, errs.String())
		}
	}
}

// TestMissing: a program that does not exist on this host is reported before VMs boot, unless they may have it.
func TestMissing(t *testing.T) {
	old, _ := os.Getwd()
	t.Cleanup(func() { os.Chdir(old) })
	os.Chdir(t.TempDir())
	if err := os.WriteFile("here", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(s *spec.Cluster)
		want   bool
	}{
		{"./nope", nil, true},
		{"no-such-program", nil, true},
		{"/no/such", nil, true},
		{"./here", nil, false},
		{"sh", nil, false},
		{"/run/nearmetal/bin/nearmetal-rsh", nil, false},
		{"nearmetal-rsh", nil, false},
		{"./nope", func(s *spec.Cluster) { s.Root = "/srv/rocky9" }, false},
		{"./nope", func(s *spec.Cluster) { s.Placement.Hosts = []string{"n1"} }, false},
		{"nope", func(s *spec.Cluster) { s.Env = map[string]string{"PATH": "/opt/bin"} }, false},
		{"/opt/nope", func(s *spec.Cluster) { s.Shares = []spec.Share{{Path: "/srv/bin", Target: "/opt"}} }, false},
	} {
		s := &spec.Cluster{}
		spec.Defaults(s)
		if c.change != nil {
			c.change(s)
		}
		if got := missing(RunOptions{Args: []string{c.name}, Cluster: cluster.Start{Spec: s}}); got != c.want {
			t.Errorf("%s: missing %v, want %v", c.name, got, c.want)
		}
	}
}

// TestProvidersOfNamedLauncher: the providers of a launcher that is named by a path precede those of the mpirun in
// PATH, because verbs of its own libfabric reaches other hosts.
func TestProvidersOfNamedLauncher(t *testing.T) {
	prefix := t.TempDir()
	launcher := filepath.Join(prefix, "bin/mpiexec.hydra")
	for _, d := range []string{"bin", "lib/libfabric"} {
		if err := os.MkdirAll(filepath.Join(prefix, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(launcher, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := record(t)
	r.Fabric = "/x/libivshmem-fi.so"
	for program, want := range map[string]bool{launcher: true, "mpiexec.hydra": false, filepath.Join(prefix, "bin/other"): false} {
		e, err := command(r, ExecOptions{Args: []string{program}})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(e.Env, func(v string) bool { return strings.HasPrefix(v, "FI_PROVIDER_PATH=") })
		if i < 0 || strings.HasPrefix(e.Env[i], "FI_PROVIDER_PATH="+prefix+"/lib/libfabric:") != want {
			t.Errorf("%s: %d, %q", program, i, e.Env[max(i, 0)])
		}
	}
}
