package commands

import (
	"os/exec"
	"strings"
	"testing"
)

// eval $(nearmetal env) raises the limit of open files, as far as the hard limit allows: with a low one Open MPI's
// mpirun loses a race that it warns of (docs/mpi-troubleshooting.md).
func TestEnvRaisesOpenFiles(t *testing.T) {
	lab(t)
	up(t, "files", 1)
	for limits, want := range map[string]string{
		"ulimit -Sn 100; ulimit -Hn 15000":   "15000\nfiles\n",
		"ulimit -Sn 15000; ulimit -Hn 15000": "15000\nfiles\n",
	} {
		out, err := exec.Command("sh", "-c", limits+`; eval $("$0" env files); ulimit -Sn; echo $NEARMETAL_CLUSTER`, program).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v, want %q", limits, out, err, want)
		}
	}
	if out, _ := exec.Command("sh", "-c", `ulimit -Sn 15000; ulimit -Hn 15000; "$0" env files`, program).Output(); strings.Contains(string(out), "ulimit") {
		t.Errorf("nothing is to be raised: %s", out)
	}
}
