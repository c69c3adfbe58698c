package change

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/test/hosttree"
)

// Environment variables of the process that the kill tests end.
const (
	envDir  = "NEARMETAL_TEST_CHANGE_DIR"
	envTree = "NEARMETAL_TEST_CHANGE_TREE"
	envStep = "NEARMETAL_TEST_CHANGE_STEP"
	envUndo = "NEARMETAL_TEST_CHANGE_UNDO"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		victim(dir, os.Getenv(envTree))
	}
	hosttree.InMemory()
	os.Exit(m.Run())
}

// victim makes or undoes changes, and kills itself at a step.
func victim(dir, tree string) {
	n, _ := strconv.Atoi(os.Getenv(envStep))
	step = func() {
		if n--; n == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	var err error
	if os.Getenv(envUndo) != "" {
		_, err = Undo(dir, func(string) bool { return true })
	} else {
		err = makeChanges(dir, tree)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	os.Exit(0)
}

var values = []Value{
	{Path: "/proc/sys/kernel/numa_balancing", Value: "0"},
	{Path: "/sys/kernel/mm/ksm/run", Value: "2"},
	{Path: "/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs", Value: "4"},
	{Path: "/proc/sys/vm/stat_interval", Value: "10"}, // already has the value
}

func makeChanges(dir, tree string) error {
	t, err := Begin(dir, "fix")
	if err != nil {
		return err
	}
	t.Under(tree)
	err = t.Write(values...)
	if err == nil {
		err = t.Make(tree+"/etc/new/sysctl.d/90-nearmetal.conf", "kernel.numa_balancing = 0\n", 0o644)
	}
	if err == nil {
		err = t.Link("../90-nearmetal.conf", tree+"/etc/new/link")
	}
	if err != nil {
		_, bad := t.Rollback()
		return errors.Join(err, bad)
	}
	return t.Commit()
}

// newTree makes a tree of a host.
func newTree(t *testing.T) string {
	tree := t.TempDir()
	for name, text := range map[string]string{
		"/proc/sys/kernel/numa_balancing":                "1",
		"/proc/sys/vm/stat_interval":                     "10",
		"/sys/kernel/mm/ksm/run":                         "1",
		"/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs": "2",
		"/sys/kernel/mm/transparent_hugepage/enabled":    "always [madvise] never",
		"/etc/hosts": "localhost",
	} {
		os.MkdirAll(filepath.Dir(tree+name), 0o755)
		if err := os.WriteFile(tree+name, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

// snapshot returns every name below a directory with its content.
func snapshot(t *testing.T, tree string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(tree, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, strings.TrimPrefix(path, tree), st.Mode())
		if st.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			fmt.Fprintf(&b, "%s", text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func runVictim(t *testing.T, dir, tree string, step int, undo bool) (killed bool) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envDir+"="+dir, envTree+"="+tree, fmt.Sprint(envStep, "=", step))
	if undo {
		cmd.Env = append(cmd.Env, envUndo+"=1")
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("step %d: %v: %s", step, err, out)
	}
	return true
}

func undoAll(t *testing.T, dir string) {
	t.Helper()
	if _, err := Undo(dir, func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if left, err := list(dir); len(left) != 0 || err != nil {
		t.Errorf("journals left: %v, %v", left, err)
	}
}

// TestKilledWhileChanging: if a process is killed at any step, Recover undoes its uncommitted changes, and Undo the
// others.
func TestKilledWhileChanging(t *testing.T) {
	for n := 1; ; n++ {
		tree, dir := newTree(t), filepath.Join(t.TempDir(), "journals")
		before := snapshot(t, tree)
		killed := runVictim(t, dir, tree, n, false)
		if _, err := Recover(dir); err != nil {
			t.Fatal(err)
		}
		infos, err := List(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(infos) == 0 && snapshot(t, tree) != before {
			t.Fatalf("step %d: after Recover\n%s\nwant\n%s", n, snapshot(t, tree), before)
		}
		if !killed && (len(infos) != 1 || len(infos[0].Changes) != 7) {
			t.Fatalf("%+v", infos)
		}
		undoAll(t, dir)
		if after := snapshot(t, tree); after != before {
			t.Fatalf("step %d: after Undo\n%s\nwant\n%s", n, after, before)
		}
		if !killed {
			if n < 12 {
				t.Errorf("only %d steps", n)
			}
			return
		}
	}
}

// TestKilledWhileUndoing: if a process is killed while undoing, the next Recover continues.
func TestKilledWhileUndoing(t *testing.T) {
	for n := 1; ; n++ {
		tree, dir := newTree(t), filepath.Join(t.TempDir(), "journals")
		before := snapshot(t, tree)
		if err := makeChanges(dir, tree); err != nil {
			t.Fatal(err)
		}
		if snapshot(t, tree) == before {
			t.Fatal("nothing was changed")
		}
		killed := runVictim(t, dir, tree, n, true)
		if _, err := Recover(dir); err != nil {
			t.Fatal(err)
		}
		if after := snapshot(t, tree); after != before {
			t.Fatalf("step %d: after Recover\n%s\nwant\n%s", n, after, before)
		}
		if !killed {
			return
		}
	}
}

// TestLiveAndOrder: a transaction in progress is not treated as dead, and changes are undone last first.
func TestLiveAndOrder(t *testing.T) {
	tree, dir := newTree(t), t.TempDir()
	os.Chmod(dir, 0o700)
	before := snapshot(t, tree)
	live, err := Begin(dir, "bind-0000:41:00.1")
	if err != nil {
		t.Fatal(err)
	}
	live.Under(tree)
	file := "/proc/sys/kernel/numa_balancing"
	if err := live.Write(Value{Path: file, Value: "7"}); err != nil {
		t.Fatal(err)
	}
	if did, err := Recover(dir); len(did) != 0 || err != nil {
		t.Fatalf("a live transaction was undone: %v, %v", did, err)
	}
	if err := live.Commit(); err != nil {
		t.Fatal(err)
	}
	second, err := Begin(dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	second.Under(tree)
	if err := second.Write(Value{Path: file, Value: "8"}); err != nil {
		t.Fatal(err)
	}
	if err := second.Commit(); err != nil {
		t.Fatal(err)
	}
	did, err := Undo(dir, func(string) bool { return true })
	if err != nil || len(did) != 2 || did[0].Args["before"] != "7" || did[1].Args["before"] != "1" {
		t.Errorf("%v, %v", did, err)
	}
	if after := snapshot(t, tree); after != before {
		t.Errorf("%s\nwant\n%s", after, before)
	}
}

func TestRollback(t *testing.T) {
	tree, dir := newTree(t), filepath.Join(t.TempDir(), "journals")
	before := snapshot(t, tree)
	tr, err := Begin(dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	tr.Under(tree)
	err = tr.Write(Value{Path: "/sys/kernel/mm/ksm/run", Value: "2"}, Value{Path: "/sys/nowhere", Value: "1"})
	var we *WriteError
	if !errors.As(err, &we) || we.Path != "/sys/nowhere" {
		t.Errorf("%v", err)
	}
	if err := tr.Make(tree+"/etc/hosts", "mine", 0o644); err == nil {
		t.Error("another's file was written over")
	}
	if did, err := tr.Rollback(); len(did) != 1 || err != nil {
		t.Errorf("%v, %v", did, err)
	}
	if after := snapshot(t, tree); after != before {
		t.Errorf("%s\nwant\n%s", after, before)
	}
	if left, _ := list(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestRefuses: a directory that others can write to, or a name with a path in it, is rejected.
func TestRefuses(t *testing.T) {
	dir := t.TempDir()
	os.Chmod(dir, 0o777)
	if _, err := Begin(dir, "fix"); err == nil {
		t.Error("a directory for all was taken")
	}
	os.Chmod(dir, 0o700)
	for _, name := range []string{"", "../x", "a/b", "a b", strings.Repeat("x", 101), "-x"} {
		if _, err := Begin(dir, name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	tr, err := Begin(dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Rollback()
	for _, p := range []string{"/etc/passwd", "/sys/../etc/passwd", "sys/x"} {
		if err := tr.Write(Value{Path: p, Value: "x"}); err == nil {
			t.Errorf("%s was written", p)
		}
	}
}

// TestUnlock: the limit on locked memory of a process is raised and restored. Without the right to raise hard limits
// (CAP_SYS_RESOURCE, which containers may lack) it fails, and leaves no change.
func TestUnlock(t *testing.T) {
	cmd := exec.Command("sh", "-c", "ulimit -Sl 64; echo ready; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	limit := func() (l unix.Rlimit) {
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_MEMLOCK, nil, &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := limit()
	dir := filepath.Join(t.TempDir(), "journals")
	tr, err := Begin(dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	switch err := tr.Unlock("sleep", cmd.Process.Pid); {
	case err == nil:
		if l := limit(); l.Cur != unix.RLIM_INFINITY || l.Max != unix.RLIM_INFINITY {
			t.Errorf("%+v", l)
		}
	case errors.Is(err, unix.EPERM):
		// Simulates a raised limit, as far as permitted.
		l := unix.Rlimit{Cur: before.Max, Max: before.Max}
		if err := unix.Prlimit(cmd.Process.Pid, unix.RLIMIT_MEMLOCK, &l, nil); err != nil {
			t.Fatal(err)
		}
	default:
		t.Fatal(err)
	}
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	undoAll(t, dir)
	if l := limit(); l != before || before.Cur != 65536 {
		t.Errorf("after undo: %+v, want %+v", l, before)
	}
}
