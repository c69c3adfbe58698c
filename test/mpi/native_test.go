package mpi

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checksum is nm_cg's for --grid 64, which is the same wherever and with whatever it runs
// (test/kernels).
const checksum = "checksum   93dddb21bf702903"

// all fails unless each of n ranks reported that it sent to others over the region.
func (u use) all(t *testing.T, n int) {
	t.Helper()
	if u.ranks < n || u.near+u.others == 0 || u.nearLines+u.otherLines == 0 || u.innerRanks != 0 {
		t.Errorf("%d ranks did not all use the provider: %+v", n, u)
	}
}

// The solver computes the same bits on any number of ranks, of which most wait for a CPU.
func TestSolver(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		for _, n := range []int{3, 16} {
			out, u := l.run(t, n, nil, bin+"/nm_cg", "--grid", "64")
			if !strings.Contains(out, checksum) {
				t.Errorf("%d ranks: %s", n, out)
			}
			u.all(t, n)
		}
	})
}

// Messages of all sizes arrive as they were sent (the program compares), with single
// copies from the sender's memory and without.
func TestSizes(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		for _, cma := range []string{"1", "0"} {
			for _, program := range []string{"nm_latency", "nm_bw"} {
				_, u := l.run(t, 2, []string{"FI_IVSHMEM_CMA=" + cma}, bin+"/"+program, "--sizes", "1:4MiB", "--iterations", "20:4", "--warmup", "2:1")
				u.all(t, 2)
				if (u.direct > 0) != (cma == "1") {
					t.Errorf("%s with FI_IVSHMEM_CMA=%s: %d direct copies", program, cma, u.direct)
				}
			}
		}
	})
}

// One-sided communication leaves what it must (the program compares).
func TestOneSided(t *testing.T) {
	each(t, func(t *testing.T, l *library, bin string) {
		out, u := l.run(t, 3, l.onesided, bin+"/nm_onesided", "--bytes", "40000", "--rounds", "10")
		if n := strings.Count(out, " ok\n"); n != 14 {
			t.Errorf("%d of 14 checks: %s", n, out)
		}
		u.all(t, 3)
	})
}

// thermo are the lines of LAMMPS's output with numbers that depend on the computation.
var thermo = regexp.MustCompile(`(?m)^ +\d+( +-?[0-9.e+-]+){5} *$`)

// LAMMPS of the distribution, which is linked to its Open MPI, finds the same energies to
// the last digit as over Open MPI's own shared memory.
func TestLAMMPS(t *testing.T) {
	if _, err := exec.LookPath("lmp"); err != nil {
		missing(t, "lmp (make extras)")
	}
	l := libraries(t)[0]
	if _, err := exec.LookPath(l.mpirun); err != nil {
		missing(t, l.mpirun)
	}
	input, err := filepath.Abs("testdata/in.melt")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4} {
		args := []string{"lmp", "-log", "none", "-in", input}
		own, _ := l.start(t, n, []string{"OMPI_MCA_pml=ob1"}, args...)
		want := thermo.FindAllString(own, -1)
		if len(want) != 6 {
			t.Fatalf("%d lines of results: %s", len(want), own)
		}
		out, u := l.run(t, n, nil, args...)
		if got := thermo.FindAllString(out, -1); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%d ranks: found\n%s\nover Open MPI's shared memory\n%s", n, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		u.all(t, n)
	}
}

// Without the provider each library does what it did before: what nearmetal sets for it
// demands nothing.
func TestWithoutProvider(t *testing.T) {
	for _, l := range libraries(t)[:2] {
		t.Run(l.name, func(t *testing.T) {
			if _, err := exec.LookPath(l.mpirun); err != nil {
				missing(t, l.mpirun)
			}
			bin := programs(t, l.mpicc)
			out, log := l.start(t, 2, []string{"FI_PROVIDER_PATH=" + t.TempDir(), "FI_PROVIDER=ivshmem"}, bin+"/nm_cg", "--grid", "64")
			if !strings.Contains(out, checksum) || strings.Contains(log, useLine) {
				t.Errorf("%s", log)
			}
		})
	}
}
