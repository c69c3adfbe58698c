package mpi

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A part of mpi4py's own test suite over the wheels' MPIs, with two ranks: the modules of
// messages, of memory and windows, and of collectives on buffers. make test-mpi4py runs all
// of it; fabric/mpi4py.exclude says what is left out.
func TestMPI4Py(t *testing.T) {
	for _, l := range libraries(t)[1:3] {
		t.Run(l.name, func(t *testing.T) {
			if _, err := exec.LookPath(l.mpirun); err != nil {
				missing(t, l.mpirun)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "scripts/mpi4py-tests.sh", strings.TrimSuffix(strings.ToLower(l.name), "5"))
			cmd.Dir = root(t)
			cmd.WaitDelay = 5 * time.Second
			cmd.Env = append(os.Environ(), "MPI4PY_RANKS=2", "MPI4PY_ARGS=-i test_(p2p_buf|p2p_buf_matched|rma|win|mpimem|msgzero)[.]py")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), " 2 ranks: Ran ") {
				t.Errorf("%v\n%s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
