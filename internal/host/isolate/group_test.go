package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newGroup makes a cgroup that ends with the test.
func newGroup(t *testing.T, l Limits) *os.File {
	t.Helper()
	parent, missing, err := GroupParent()
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(parent, fmt.Sprintf("nearmetal-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-")))
	t.Cleanup(func() {
		if did, err := RemoveGroup(path); !did || err != nil {
			t.Errorf("%v, %v", did, err)
		}
		if did, err := RemoveGroup(path); did || err != nil {
			t.Errorf("again: %v, %v", did, err)
		}
	})
	g, err := MakeGroup(path, l, missing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// TestGroupProcesses: a program that starts others endlessly reaches the limit on processes.
func TestGroupProcesses(t *testing.T) {
	l := Limits{MemoryBytes: 1 << 30, Processes: 60, CPUs: 1, IOWeight: 50}
	j := Jail{Cgroup: newGroup(t, l), NoLandlock: true}
	if got := jailed(t, j, "forks", "200"); !strings.Contains(got, "resource temporarily unavailable") {
		t.Error(got)
	}
	l.Processes = 5000
	t.Run("free", func(t *testing.T) {
		if got := jailed(t, Jail{Cgroup: newGroup(t, l), NoLandlock: true}, "forks", "20"); !strings.HasSuffix(got, "done\n") {
			t.Error(got)
		}
	})
}

// TestGroupMemory: a program that allocates memory endlessly is killed.
func TestGroupMemory(t *testing.T) {
	j := Jail{Cgroup: newGroup(t, Limits{MemoryBytes: 64 << 20, Processes: 100, CPUs: 1, IOWeight: 50})}
	if got := jailed(t, j, "eat", fmt.Sprint(32<<20)); !strings.HasSuffix(got, "done\n") {
		t.Error(got)
	}
	if got := jailed(t, j, "eat", fmt.Sprint(512<<20)); !strings.Contains(got, "killed") {
		t.Error(got)
	}
}

// TestGroupParent finds the directory for cgroups in the trees of various systems.
func TestGroupParent(t *testing.T) {
	top := t.TempDir()
	put := func(dir, controllers string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/cgroup.subtree_control", []byte(controllers), 0o644),
			os.WriteFile(dir+"/cgroup.procs", nil, mode)); err != nil {
			t.Fatal(err)
		}
	}
	slice := top + "/user.slice/user@1/app.slice"
	put(slice+"/run.scope", "", 0o644)
	put(slice, "memory pids\n", 0o644)
	put(filepath.Dir(slice), "cpu memory pids\n", 0o644)
	put(top+"/user.slice", "cpu io memory pids\n", 0o644)
	dirs := []string{slice + "/run.scope", slice, filepath.Dir(slice)}
	if dir, missing, err := groupParent(dirs); err != nil || dir != filepath.Dir(slice) || strings.Join(missing, " ") != "io" {
		t.Errorf("%s, %v, %v", dir, missing, err)
	}
	if dir, _, err := groupParent(dirs[:2]); err != nil || dir != slice {
		t.Errorf("%s, %v", dir, err)
	}
	if dir, _, err := groupParent(dirs[:1]); err == nil {
		t.Errorf("a cgroup without controllers: %s", dir)
	}
	if dir, _, err := groupParent([]string{top + "/none", slice}); err == nil {
		t.Errorf("beyond what is not there: %s", dir)
	}
}
