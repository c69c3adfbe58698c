package slurm

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// missed ends a job of a's with VMs on n1 whose epilog does nothing: Slurm reads plugstack.conf for each
// epilog, and takes an empty or missing one for a site without plugins. So it is where a file is
// written anew, between its cut and its first line. It returns the job's number; its VMs still run.
func missed(t *testing.T, a *account) string {
	t.Helper()
	id := held(t, a)
	stack(t, "")
	defer stack(t, plugstack())
	must(t, "scancel", id)
	ended(t, id)
	if leftoversOf(id) == "" {
		t.Fatal("the epilog has run: nothing is tested")
	}
	return id
}

// ended waits until Slurm has done with a job, its epilog too.
func ended(t *testing.T, id string) {
	t.Helper()
	await(t, "the end of job "+id, func() bool {
		r := slurm(t, "squeue", "-h", "-j", id, "-o", "%T")
		return (r.code != 0 || strings.TrimSpace(r.out) == "") && len(stepds(id)) == 0
	})
}

// What a job has left whose epilog did not run goes with the next prolog, with slurmd's start, and by nearmetal
// host recover; a job that runs beside it does not notice.
func TestMissedEpilog(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	beside := held(t, newAccount(t, 2))
	defer slurm(t, "scancel", beside)
	before := leftoversOf(beside)
	gone := func(t *testing.T, id string) {
		t.Helper()
		if left := leftoversOf(id); left != "" {
			t.Errorf("left of job %s:\n%s\n%s", id, left, cluster.Logs())
			remove(id)
		}
		if now := leftoversOf(beside); now != before {
			t.Errorf("the job beside had\n%s\nand has\n%s", before, now)
		}
	}
	t.Run("next prolog", func(t *testing.T) {
		id := missed(t, a)
		must(t, "srun", "-w", "n1", "--mem=100", "true")
		gone(t, id)
	})
	t.Run("slurmd's start", func(t *testing.T) {
		id := missed(t, a)
		cluster.StopNode("n1")
		if err := cluster.StartNode("n1"); err != nil {
			t.Fatal(err)
		}
		// It takes jobs once it has started.
		await(t, "the node", func() bool { return slurm(t, "srun", "-w", "n1", "--mem=100", "true").code == 0 })
		gone(t, id)
	})
	t.Run("nearmetal host recover", func(t *testing.T) {
		id := missed(t, a)
		r := slurm(t, filepath.Join(bin, "nearmetal"), "host", "recover")
		if r.code != 0 || !strings.Contains(r.err, "job "+id+" on n1") || strings.Contains(r.err, "job "+beside) {
			t.Errorf("%+v", r)
		}
		gone(t, id)
	})
}

// A host that is drained, and resumed while a job completes on it: the job's epilog runs all the same. slurmd
// stands still, so that it hears of all three at once.
func TestResumedWhileCompleting(t *testing.T) {
	defer clean(t)
	id := held(t, newAccount(t, 1))
	slurmd := cluster.NodePID("n1")
	if err := syscall.Kill(slurmd, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	must(t, "scontrol", "update", "nodename=n1", "state=drain", "reason=test")
	must(t, "scancel", id)
	await(t, "a job that completes", func() bool { return strings.TrimSpace(must(t, "squeue", "-h", "-j", id, "-o", "%T")) == "COMPLETING" })
	must(t, "scontrol", "update", "nodename=n1", "state=resume")
	if err := syscall.Kill(slurmd, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	ended(t, id)
	if left := leftoversOf(id); left != "" {
		t.Errorf("left are\n%s\n%s", left, cluster.Logs())
	}
	must(t, "srun", "-w", "n1", "--mem=100", "true")
}
