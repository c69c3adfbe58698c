// Package kernels tests the programs of kernels/ natively: under each MPI library of the
// distribution, and over regions between two processes. test/e2e runs them in VMs.
package kernels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bound is how long one program may take on a busy machine.
const bound = 4 * time.Minute

// library is an MPI library, and the programs compiled with it.
type library struct {
	name, mpicc, launch string
	dir                 string // of the programs; "": not there
}

var libraries = []*library{
	{name: "Open MPI", mpicc: "mpicc.openmpi", launch: "mpirun.openmpi"},
	{name: "MPICH", mpicc: "mpicc.mpich", launch: "mpiexec.mpich"},
}

// region is the directory of the programs that use no MPI.
var regionPrograms string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "nm-kernels-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		build := func(target, dir string, args ...string) bool {
			args = append([]string{"-s", "-C", "../../kernels", "BUILD=" + dir, "CFLAGS=-O2 -Werror"}, append(args, target)...)
			if out, err := exec.Command("make", args...).CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "make %s: %v\n%s", strings.Join(args, " "), err, out)
				return false
			}
			return true
		}
		regionPrograms = filepath.Join(dir, "region")
		if !build("plain", regionPrograms) {
			return 1
		}
		for _, l := range libraries {
			if _, err := exec.LookPath(l.mpicc); err != nil {
				continue
			}
			l.dir = filepath.Join(dir, l.mpicc)
			if !build("mpi", l.dir, "MPICC="+l.mpicc) {
				return 1
			}
		}
		// As root, in a container, and with more ranks than cores.
		for _, kv := range []string{"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
			"OMPI_MCA_rmaps_base_oversubscribe=1", "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
			"OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_btl_vader_single_copy_mechanism=none"} {
			k, v, _ := strings.Cut(kv, "=")
			os.Setenv(k, v)
		}
		return m.Run()
	}())
}

// result is how a program ended.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, name string, args ...string) result {
	t.Helper()
	return finish(t, name, args...)()
}

// finish starts a program; the function it returns waits for its end.
func finish(t *testing.T, name string, args ...string) func() result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	return func() result {
		t.Helper()
		defer cancel()
		err := cmd.Wait()
		if ctx.Err() != nil {
			t.Fatalf("%s %s: not done in %v\n%s%s", name, strings.Join(args, " "), bound, out.String(), errs.String())
		}
		if _, ok := err.(*exec.ExitError); err != nil && !ok {
			t.Fatal(err)
		}
		return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}
}

// want fails the test unless the program ended with code and said every one of texts.
func (r result) want(t *testing.T, code int, texts ...string) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit status %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, s := range texts {
		if !strings.Contains(r.out+r.err, s) {
			t.Fatalf("no %q in\n%s%s", s, r.out, r.err)
		}
	}
	return r
}

// eachLibrary runs f for every MPI library; one that is missing fails the test in CI.
func eachLibrary(t *testing.T, f func(t *testing.T, l *library)) {
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			if l.dir == "" {
				if os.Getenv("CI") == "true" {
					t.Fatalf("no %s", l.mpicc)
				}
				t.Skipf("needs %s", l.mpicc)
			}
			f(t, l)
		})
	}
}

func (l *library) mpirun(t *testing.T, ranks int, program string, args ...string) result {
	t.Helper()
	return run(t, l.launch, append([]string{"-n", fmt.Sprint(ranks), filepath.Join(l.dir, program)}, args...)...)
}
