// Package slurm runs `srun --vm` on a real Slurm: munged, slurmctld and two slurmds on this
// machine (package bed), with real VMs, as root and as two ordinary users. `make test-slurm`
// builds and installs what it needs first.
package slurm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host"
	"nearmetal/test/slurm/bed"
)

var (
	cluster *bed.Bed
	build   string // the directory build
	state   string // root's directory of jobs, an argument of the plugin
	bin     string // nearmetal and its links, for every user
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	what := ""
	if os.Geteuid() != 0 {
		what = "root"
	} else if p := bed.Missing(); p != "" {
		what = p + " (scripts/install.sh slurm installs it)"
	}
	if what != "" {
		fmt.Println("these tests need", what)
		if os.Getenv("CI") == "true" {
			return 1
		}
		return 0
	}
	var err error
	if build, err = filepath.Abs("../../build"); err != nil {
		panic(err)
	}
	for _, f := range []string{"nearmetal", "c/slurm/spank_nearmetal.so"} {
		if _, err := os.Stat(filepath.Join(build, f)); err != nil {
			fmt.Fprintln(os.Stderr, err, "- run make slurm first (make test-slurm does)")
			return 1
		}
	}
	top, err := bed.Own("nmt")
	if err != nil {
		panic(err)
	}
	defer bed.Remove(top)
	if err := install(top); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if accel, _, err := host.DetectAccel("auto"); err == nil && accel == host.TCG {
		emulated = []string{"accel=tcg"}
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		if cluster != nil {
			cluster.Stop()
		}
		removeUsers()
		bed.Remove(top)
		os.Exit(1)
	}()
	cluster, err = bed.Start(bed.Options{Nodes: 2, CPUs: 2, MemoryMB: 6000, RegionBytes: "1G", Plugstack: plugstack(), Networks: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer removeUsers() // once nothing of theirs runs any more
	defer cluster.Stop()
	return m.Run()
}

// install puts the program and the plugin where every user may use them, and nobody else's build
// changes them meanwhile.
func install(top string) error {
	bin, state = filepath.Join(top, "bin"), filepath.Join(top, "s")
	if err := errors.Join(os.Chmod(top, 0o711), os.MkdirAll(filepath.Join(bin, "c/slurm"), 0o755),
		os.MkdirAll(filepath.Join(bin, "c/fabric"), 0o755), os.MkdirAll(filepath.Join(bin, "c/ucx"), 0o755)); err != nil {
		return err
	}
	for _, f := range []string{"nearmetal", "nearmetal-task", "c/slurm/spank_nearmetal.so", "c/fabric/libivshmem-fi.so", "c/ucx/libnearmetal-ucx.so"} {
		text, err := os.ReadFile(filepath.Join(build, f))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, f), text, 0o755)
		}
		if err != nil {
			return err
		}
	}
	return os.Symlink("nearmetal", filepath.Join(bin, "nearmetal-rsh"))
}

// plugstack is the site's plugstack.conf. Where the host has no KVM the site has chosen emulation: no job warns of it.
func plugstack(more ...string) string {
	return sitePlugstack(append(emulated, more...)...)
}

// sitePlugstack is plugstack of a site that leaves the choice to the hosts.
func sitePlugstack(more ...string) string {
	return bed.Plugstack(bin, state, append([]string{"region_gres=region", "boot_timeout=200"}, more...)...)
}

// emulated is accel=tcg where this host has no KVM.
var emulated []string

// result is how a command ended.
type result struct {
	out, err string
	code     int
}

// command prepares a command of Slurm's, or another beside it, as root in a directory of its own.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	if !slices.Contains(since, t.Name()) {
		since = append(since, t.Name())
	}
	ctx, cancel := context.WithTimeout(context.Background(), bed.Bound)
	t.Cleanup(cancel)
	base := cluster.Command(name, args...)
	cmd := exec.CommandContext(ctx, base.Path, args...)
	cmd.Env, cmd.WaitDelay = base.Env, bed.Bound
	cmd.Dir = scratch(t)
	return cmd
}

// scratch is a directory that the VMs share: below /tmp as t.TempDir, but with a short name.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "nmd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// finish runs cmd with input and returns how it ended.
func finish(t *testing.T, cmd *exec.Cmd, input string) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if errors.Is(err, context.DeadlineExceeded) || cmd.ProcessState.ExitCode() == -1 {
		t.Logf("%v: %v\n%s", cmd.Args, err, doing())
	}
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, errs.String(), cluster.Logs())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// slurm runs a command as root and returns how it ended.
func slurm(t *testing.T, name string, args ...string) result {
	t.Helper()
	return finish(t, command(t, name, args...), "")
}

// must runs a command that has to succeed, and returns its output.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	r := slurm(t, name, args...)
	if r.code != 0 {
		t.Fatalf("%s %q: status %d\n%s%s\n%s", name, args, r.code, r.out, r.err, cluster.Logs())
	}
	return r.out
}

// await polls until f holds.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	if err := bed.Await(what, f); err != nil {
		t.Fatalf("%v\n%s", err, cluster.Logs())
	}
}

// leftovers are processes and files of VMs, of any job.
func leftovers() string { return leftoversOf("*") }

// leftoversOf are those of one job.
func leftoversOf(job string) string {
	var left []string
	dirs, _ := filepath.Glob(filepath.Join(state, job+".*"))
	left = append(left, dirs...)
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range procs {
		env, _ := os.ReadFile(p)
		for _, v := range bytes.Split(env, []byte{0}) {
			if bytes.HasPrefix(v, []byte("NEARMETAL_RUNTIME_DIR="+state)) && (job == "*" || bytes.HasPrefix(v, []byte("NEARMETAL_RUNTIME_DIR="+state+"/"+job+"."))) {
				name, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline"))
				left = append(left, fmt.Sprintf("%s %.80s", filepath.Dir(p), bytes.ReplaceAll(name, []byte{0}, []byte(" "))))
				break
			}
		}
	}
	return strings.Join(left, "\n")
}

// clean asserts that nothing is left of any job's VMs. The epilog runs after srun has returned. What is left
// is said, with the tests that may have left it, and removed: the next test begins with nothing.
func clean(t *testing.T) {
	t.Helper()
	if err := bed.Await("the end of everything", func() bool { return leftovers() == "" }); err != nil {
		t.Errorf("%v: %s left\n%s\n%s\n%s", err, strings.Join(since, " or "), leftovers(), doing(), cluster.Logs())
		remove("*")
	}
	since = nil
	if err := cluster.AwaitIdle(); err != nil {
		t.Errorf("%v\n%s%s", err, must(t, "sinfo", "-R", "-N"), cluster.Logs())
		for _, n := range cluster.Names() {
			slurm(t, "scontrol", "update", "nodename="+n, "state=resume") // refused where it is not drained
		}
	}
}

// since are the tests that ran commands since all was clean.
var since []string

// remove ends what is left of a job's VMs, or of all's, and removes it.
func remove(job string) {
	of := state + "/"
	if job != "*" {
		of += job + "."
	}
	for _, pid := range bed.Processes("NEARMETAL_RUNTIME_DIR=" + of) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	removeFolders(job + ".*")
}

// removeFolders removes what root keeps of jobs, as a reboot does.
func removeFolders(pattern string) {
	dirs, _ := filepath.Glob(filepath.Join(state, pattern))
	for _, d := range dirs {
		syscall.Unmount(filepath.Join(d, "run"), unix.MNT_DETACH)
		os.RemoveAll(d)
	}
}

// stack replaces plugstack.conf at once: Slurm reads it at any time, and takes what has no line yet for a
// site without plugins.
func stack(t *testing.T, text string) {
	t.Helper()
	name := cluster.Path("plugstack.conf")
	err := os.WriteFile(name+".new", []byte(text), 0o644)
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		t.Fatal(err)
	}
}
