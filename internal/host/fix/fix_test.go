package fix

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"nearmetal/internal/host/change"
	"nearmetal/internal/host/check"
	"nearmetal/internal/journal"
	"nearmetal/test/hosttree"
)

var update = flag.Bool("update", false, "write the golden files")

// Environment variables of the process that the kill tests end.
const (
	envDir  = "NEARMETAL_TEST_FIX_DIR"
	envRoot = "NEARMETAL_TEST_FIX_ROOT"
	envStep = "NEARMETAL_TEST_FIX_STEP"
	envWhat = "NEARMETAL_TEST_FIX_WHAT"
)

func TestMain(m *testing.M) {
	dir := os.Getenv(envDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	n, _ := strconv.Atoi(os.Getenv(envStep))
	change.OnStep(func() {
		if n--; n == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	o := Options{Dir: dir, Root: os.Getenv(envRoot)}
	var err error
	switch os.Getenv(envWhat) {
	case "fix":
		err = fixTree(o)
	case "real":
		_, err = fixReal(o)
	case "undo":
		_, err = Undo(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// fixTree acts as check --fix --persist.
func fixTree(o Options) error {
	ctx := context.Background()
	co := check.Options{Root: o.Root, Profile: check.VMHost, HugePageBytes: 64 << 20}
	r, err := check.Run(ctx, co)
	if err != nil {
		return err
	}
	fixes, err := check.Fixes(ctx, co, &r)
	if err != nil {
		return err
	}
	if _, failed, err := Apply(ctx, o, fixes); err != nil || len(failed) > 0 {
		return fmt.Errorf("%v %v", failed, err)
	}
	_, err = Persist(o, fixes)
	return err
}

func untuned(t *testing.T) string {
	t.Helper()
	dir := hosttree.Dir(t)
	if err := hosttree.Write(dir, "../../../test/topology/laptop.machine", "../../../test/hosttree/untuned.attrs"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir+"/etc/sysctl.d", 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// snapshot returns every name below a directory with its content; attributes that list all choices are represented by
// the selected one.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(root, func(path string, st os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		fmt.Fprint(&b, strings.TrimPrefix(path, root))
		if st.Mode().IsRegular() {
			v, err := journal.ReadValue(path)
			if err != nil {
				return err
			}
			fmt.Fprint(&b, " ", v)
		}
		fmt.Fprintln(&b)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func victim(t *testing.T, what string, o Options, step int) (killed bool) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envDir+"="+o.Dir, envRoot+"="+o.Root, envWhat+"="+what, fmt.Sprint(envStep, "=", step))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("step %d: %v: %s", step, err, out)
	}
	return true
}

// TestKilled: if killed at any step, a persistent fix is reverted by the next start and by --undo.
func TestKilled(t *testing.T) {
	root := untuned(t)
	before := snapshot(t, root)
	for n := 1; ; n++ {
		o := Options{Dir: filepath.Join(t.TempDir(), "journals"), Root: root}
		killed := victim(t, "fix", o, n)
		if !killed {
			if snapshot(t, root) == before {
				t.Fatal("nothing was changed")
			}
			if n < 40 {
				t.Errorf("only %d steps", n)
			}
		}
		if _, err := change.Recover(o.Dir); err != nil { // the next start
			t.Fatal(err)
		}
		if _, err := Undo(o); err != nil {
			t.Fatal(err)
		}
		if after := snapshot(t, root); after != before {
			t.Fatalf("step %d: after undo\n%s\nwant\n%s", n, after, before)
		}
		if !killed {
			return
		}
	}
}

// TestFix: after a fix the fixed checks are ok, and the files that set the values at boot contain the values in
// force.
func TestFix(t *testing.T) {
	root := untuned(t)
	o := Options{Dir: filepath.Join(t.TempDir(), "journals"), Root: root}
	if err := fixTree(o); err != nil {
		t.Fatal(err)
	}
	r, err := check.Run(context.Background(), check.Options{Root: root, Profile: check.VMHost})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Fixable && row.ID != "memory.hugepages" { // a tree has no kernel that frees the pages
			t.Errorf("%s is %s after the fix: %s", row.ID, row.Status, row.Found)
		}
	}
	list, err := settings(o)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range Files(append(list, Setting{Path: "/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs", Value: "8"},
		Setting{Path: "/sys/module/kvm_intel/parameters/ple_gap", Value: "0"}), true, []string{"slurmd"}) {
		fmt.Fprintf(&b, "== %s %s\n%s", f.Path, f.Link, f.Content)
	}
	const file = "testdata/persist.golden"
	if *update {
		os.MkdirAll("testdata", 0o755)
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || b.String() != string(want) {
		t.Errorf("%v\n%s", err, b.String())
	}
	// A second run makes nothing new, and leaves another program's file unchanged.
	if err := fixTree(o); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := Undo(o); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(root, sysctlFile)
	if err := os.WriteFile(mine, []byte("vm.swappiness=1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := fixTree(o); err == nil || !strings.Contains(err.Error(), sysctlFile) {
		t.Errorf("another's file: %v", err)
	}
	if b, _ := os.ReadFile(mine); string(b) != "vm.swappiness=1\n" {
		t.Errorf("another's file now has %q", b)
	}
}

// TestHostileSettings: a value that would break out of a file's line is not written to any.
func TestHostileSettings(t *testing.T) {
	files := Files([]Setting{
		{Path: "/sys/x", Value: "1\nw /etc/passwd - - - - x"}, {Path: "/proc/sys/a b", Value: "1"},
		{Path: "/sys/bus/pci/devices/'; reboot; '/sriov_numvfs", Value: "1"}, {Path: "/sys/class/net/$(reboot)/mtu", Value: "9000"},
	}, false, nil)
	for _, f := range files {
		if strings.Contains(f.Content, "passwd") || strings.Contains(f.Content, "reboot") || strings.Contains(f.Content, "a b") {
			t.Errorf("%s:\n%s", f.Path, f.Content)
		}
	}
}

// realValues are attributes of this host's own kernel that may be changed briefly without harm, each with a value
// that it does not have.
func realValues() []check.Write {
	var list []check.Write
	for _, c := range []struct{ path, a, b string }{
		{"/sys/kernel/mm/transparent_hugepage/defrag", "defer", "madvise"},
		{"/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise", "never"},
		{"/sys/kernel/mm/ksm/run", "2", "0"},
		{"/proc/sys/vm/stat_interval", "11", "12"},
		{"/proc/sys/vm/compaction_proactiveness", "0", "20"},
		// nr_hugepages is not used: programs with UCX use free huge pages, which then stay until they end.
		{"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "3", "5"},
		{"/proc/sys/vm/zone_reclaim_mode", "0", "1"},
	} {
		now, err := journal.ReadValue(c.path)
		switch {
		case err != nil:
		case now == c.a:
			list = append(list, check.Write{File: c.path, Value: c.b})
		default:
			list = append(list, check.Write{File: c.path, Value: c.a})
		}
	}
	return list
}

func fixReal(o Options) (int, error) {
	done, failed, err := Apply(context.Background(), o, []check.Fix{{Row: check.Result{ID: "test"}, Writes: realValues()}})
	if err == nil && len(failed) > 0 {
		err = failed[0].Err
	}
	return done, err
}

// TestRealKernel does the same on this host's own kernel: killed at each step, every value is restored.
func TestRealKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("the kernel's attributes are root's")
		}
		t.Skip("the kernel's attributes are root's")
	}
	values := realValues()
	before := map[string]string{}
	for _, w := range values {
		before[w.File], _ = journal.ReadValue(w.File)
	}
	t.Cleanup(func() {
		for path, v := range before {
			journal.WriteValue(path, v)
		}
	})
	same := func(step int) {
		t.Helper()
		for path, want := range before {
			if now, err := journal.ReadValue(path); err != nil || now != want {
				t.Errorf("step %d: %s is %q, %v; was %q", step, path, now, err, want)
			}
		}
	}
	for n := 1; ; n++ {
		o := Options{Dir: filepath.Join(t.TempDir(), "journals")}
		killed := victim(t, "real", o, n)
		if killed {
			if _, err := change.Recover(o.Dir); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Undo(o); err != nil {
			t.Fatal(err)
		}
		same(n)
		if !killed {
			break
		}
	}
	o := Options{Dir: filepath.Join(t.TempDir(), "journals")}
	done, err := fixReal(o)
	if err != nil || done != len(values) {
		t.Errorf("%d of %d values took: %v", done, len(values), err)
	}
	for _, w := range values {
		if now, _ := journal.ReadValue(w.File); now != w.Value {
			t.Errorf("%s is %q after the fix, want %q", w.File, now, w.Value)
		}
	}
	for n := 1; victim(t, "undo", o, n); n++ {
	}
	same(0)
}

// TestDescribe: a limit is printed with its old and new value, as a file's value is.
func TestDescribe(t *testing.T) {
	got := Describe(check.Fix{Writes: []check.Write{{PID: 77, Name: "slurmd", Before: "64 MiB"}, {File: "/proc/sys/vm/swappiness", Value: "10", Before: "60"}}})
	if want := []string{"locked memory of slurmd (process 77): 64 MiB -> unlimited", "/proc/sys/vm/swappiness: 60 -> 10"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
