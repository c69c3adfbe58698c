package slurm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// What README says works in the shell of make slurm-shell as it stands there: Open MPI's ranks without --mpi, and nearmetal.
func TestShell(t *testing.T) {
	dir := scratch(t)
	compile(t, "testdata/pairs.c", "mpicc.openmpi", filepath.Join(dir, "solver"))
	cmd := exec.Command("go", "run", "./test/slurm/bed/shell", "sh", "-c", "command -v nearmetal && cd "+dir+" && "+patient+"srun --vm -n 4 ./solver")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), filepath.Join(build, "nearmetal")+"\n") || strings.Count(string(out), " of 4 on n") != 4 || strings.Count(string(out), "-vm0: right\n") != 4 {
		t.Errorf("%v\n%s", err, out)
	}
}
