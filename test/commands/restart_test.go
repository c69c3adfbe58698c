package commands

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster"
	"nearmetal/internal/cluster/state"
)

// One VM of a cluster that is kept is started again, whether it runs or has ended, and the other goes on.
func TestRestart(t *testing.T) {
	lab(t)
	c := upWith(t, "again", 2, cluster.Start{Kept: true})
	up(t, "run", 1)
	do := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := answer(t, args...)
		if got != code || !strings.Contains(out+errs, want) {
			t.Errorf("%q: %d, %q, %q; want %d, %q", args, got, out, errs, code, want)
		}
	}
	before := c.Record().VMs
	do(0, "", "restart", "again/vm1")
	after := c.Record().VMs
	if after[0].PID != before[0].PID || after[1].PID == before[1].PID || after[1].PID == 0 || after[1].State != state.Ready || after[1].IP != before[1].IP {
		t.Errorf("%+v, then %+v", before, after)
	}
	select {
	case err := <-c.Lost():
		t.Errorf("a restart counts as a loss: %v", err)
	default:
	}
	do(0, "hello", "exec", "again/vm1", "--", "echo", "hello")
	do(0, "hello", "exec", "again/vm0", "--", "echo", "hello")

	// One that was killed comes back as well.
	unix.Kill(after[1].PID, unix.SIGKILL)
	await(t, func() bool { return c.Record().VMs[1].State == state.Dead })
	// Every command says the same of it: ps, exec, cp, and the remote shell of an MPI launcher.
	for _, args := range [][]string{{"exec", "again/vm1", "--", "true"}, {"cp", "again/vm1:/etc/hostname", t.TempDir()}} {
		do(125, "vm1 ended", args...)
	}
	t.Setenv("NEARMETAL_CLUSTER", "again")
	do(255, "vm1 ended", "rsh", "vm1", "true")
	do(0, "hello", "rsh", "vm0", "echo", "hello")
	t.Setenv("NEARMETAL_CLUSTER", "")
	if out, _, _ := answer(t, "ps"); !strings.Contains(out, "degraded") || !strings.Contains(out, "1 of 2") {
		t.Errorf("ps: %s", out)
	}
	do(0, "\nstart it again: nearmetal restart again/vm1\n", "ps", "again")
	do(0, "", "restart", "again/vm1")
	do(0, "hello", "exec", "again/vm1", "--", "echo", "hello")
	if r := c.Record(); r.VMs[1].Ended != "" || r.Running() != 2 {
		t.Errorf("%+v", r.VMs)
	}
	do(0, "", "pause", "again")
	do(125, "cluster again is paused", "restart", "again/vm0")
	do(0, "", "resume", "again")

	do(125, "belongs to the command that started it", "restart", "run/vm0")
	do(125, `has no VM "vm7"`, "restart", "again/vm7")
	do(2, "restart needs one VM: again/vm0; for all: down, then up", "restart", "again")

	// Both are started again and again, more often than anybody asks for lost VMs.
	for range 3 {
		do(0, "", "restart", "again/vm0")
	}
	pids := []int{c.Record().VMs[0].PID, c.Record().VMs[1].PID}
	unix.Kill(pids[0], unix.SIGKILL)
	unix.Kill(pids[1], unix.SIGKILL)
	select {
	case <-c.Died():
	case <-time.After(time.Minute):
		t.Error("the cluster does not notice that all its VMs have ended")
	}
	do(125, "no VM of the cluster runs any more", "restart", "again/vm0")
	dir, err := state.Base()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Down(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/again"); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// await waits until ok is true.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}
