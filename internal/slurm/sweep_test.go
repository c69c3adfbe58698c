package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/test/nobody"
)

// Checks the verdict on a job's directory for squeue's answers, as printed by Slurm 22.05 and 24.11.
func TestJudge(t *testing.T) {
	failed := errors.New("exit status 1")
	for _, c := range []struct {
		name, out, said string
		failed          error
		over, unknown   bool
	}{
		{name: "runs here", out: "8 RUNNING n[1-3]\n"},
		{name: "is suspended here", out: "8 SUSPENDED n2\n"},
		{name: "its nodes boot", out: "8 CONFIGURING n2\n"},
		{name: "its epilog runs here", out: "8 COMPLETING n2\n"},
		{name: "its epilog runs elsewhere", out: "8 COMPLETING n[1,3]\n", over: true},
		{name: "runs elsewhere, anew", out: "8 RUNNING n7\n", over: true},
		{name: "has ended", out: "8 COMPLETED n2\n", over: true},
		{name: "has failed", out: "8 NODE_FAIL n2\n", over: true},
		{name: "waits anew", out: "8 PENDING \n", over: true},
		{name: "is forgotten", said: "slurm_load_jobs error: Invalid job id specified\n", failed: failed, over: true},
		{name: "one of an array that runs", out: "9 COMPLETED n2\n8 RUNNING n2\n"},
		{name: "an array without it", out: "9 RUNNING n2\n", over: true},
		{name: "no slurmctld", said: "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", failed: failed, unknown: true},
		{name: "a list that is none", out: "8 RUNNING n[2\n", unknown: true},
		{name: "a state of a later Slurm", out: "8 DREAMING n2\n"},
	} {
		over, err := judge(8, "n2", c.out, c.said, c.failed)
		if over != c.over || (err != nil) != c.unknown {
			t.Errorf("%s: over %v, %v", c.name, over, err)
		}
	}
}

// Checks that directories of jobs whose state cannot be queried are kept, and that other directories are ignored.
func TestSweepKeeps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has folders of jobs")
	}
	state := t.TempDir()
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"7.n1/run", "x.n1/run", "0.n1/run", "8.n2/run"} {
		if err := os.MkdirAll(filepath.Join(state, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(state, "7.n1/conf"), []byte("/no/such/slurm.conf"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	jobs, _, err := Sweep{Root: root, State: state, Node: "n1"}.Run(context.Background())
	if len(jobs) != 0 || err == nil || !strings.HasPrefix(err.Error(), "job 7 on n1: whether it runs cannot be asked: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, %v", jobs, err)
	}
	for _, name := range []string{"7.n1/run", "x.n1/run", "0.n1/run", "8.n2/run"} {
		if _, err := os.Stat(filepath.Join(state, name)); err != nil {
			t.Error(err)
		}
	}
	// A directory that others may write to is not trusted.
	if err := os.Chmod(state, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Sweep{Root: root, State: state}).Run(context.Background()); err == nil {
		t.Error("a folder was taken that others may write to")
	}
}

// Checks that a cgroup that an epilog left remains while a process of another user is in it, that a later sweep
// removes it, and that it also remains while the job runs again.
func TestSweepRemovesCgroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has folders of jobs")
	}
	state := t.TempDir()
	if err := os.Chmod(state, 0o711); err != nil {
		t.Fatal(err)
	}
	top := "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(top); err != nil {
		top = filepath.Dir(top)
	}
	node := fmt.Sprintf("nm%d", os.Getpid())
	job := filepath.Join(top, "slurm_"+node, "uid_65534", "job_7")
	step := filepath.Join(job, "step_0")
	if err := os.MkdirAll(step, 0o755); err != nil {
		t.Skip("no cgroup can be made: ", err)
	}
	inside := exec.Command("sleep", "600")
	if err := inside.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { inside.Process.Kill(); inside.Wait() }
	t.Cleanup(func() {
		end()
		for dir := step; dir != top; dir = filepath.Dir(dir) {
			os.Remove(dir)
		}
	})
	if err := os.WriteFile(filepath.Join(step, "cgroup.procs"), fmt.Append(nil, inside.Process.Pid), 0); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(state, "cgroups-7."+node)
	if err := os.WriteFile(left, []byte("65534\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sweep := func(but uint32, want, bad string) {
		t.Helper()
		jobs, _, err := Sweep{Root: t.TempDir(), State: state, Node: node, Except: but}.Run(context.Background())
		if got := strings.Join(jobs, "\n"); got != want || (err == nil) != (bad == "") || err != nil && !strings.Contains(err.Error(), bad) {
			t.Errorf("%q, %v", got, err)
		}
		_, noCgroup := os.Stat(job)
		_, noFile := os.Stat(left)
		if gone := want != ""; gone != (noCgroup != nil) || gone != (noFile != nil) {
			t.Errorf("the cgroup: %v, the file: %v", noCgroup, noFile)
		}
	}
	sweep(7, "", "")
	sweep(0, "", job+" stays: a process is in it")
	end()
	if err := os.Mkdir(filepath.Join(state, "7."+node), 0o700); err != nil {
		t.Fatal(err)
	}
	if j, ok := readLeft(state, filepath.Base(left)); !ok || j.uid != 65534 || !j.requeued() {
		t.Errorf("%+v, %v", j, ok)
	}
	if err := os.Remove(filepath.Join(state, "7."+node)); err != nil {
		t.Fatal(err)
	}
	sweep(0, "cgroup of job 7 on "+node, "")
}

// Checks that a user's number may use all 32 bits, as written by the plugin (slurm/state.c).
func TestReadJob(t *testing.T) {
	state := t.TempDir()
	for name, text := range map[string]string{"7.n1/request": "1 vm=1\n4294967293 100\n/home\n", "cgroups-8.n1": "4294967293\n"} {
		name = filepath.Join(state, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if j, ok := readJob(state, "7.n1"); !ok || j.uid != 4294967293 {
		t.Errorf("%+v, %v", j, ok)
	}
	if j, ok := readLeft(state, "cgroups-8.n1"); !ok || j.uid != 4294967293 {
		t.Errorf("%+v, %v", j, ok)
	}
}

// Checks that only the processes of the job's user with the job's mark are ended.
func TestEndsTheJobsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root ends a job's processes")
	}
	state := t.TempDir()
	start := func(mark string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("sleep", "600")
		cmd.Env = []string{"NEARMETAL_SLURM_JOB=" + mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return cmd
	}
	large := exec.Command("sleep", "600")
	for i := range 20 {
		large.Env = append(large.Env, fmt.Sprintf("LARGE%d=%s", i, strings.Repeat("x", 10000)))
	}
	large.Env = append(large.Env, "NEARMETAL_SLURM_JOB="+state+"/7.n1")
	if err := large.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { large.Process.Kill() })
	own := start(fmt.Sprintf("%s/7.n1", state))
	other := start(fmt.Sprintf("%s/70.n1", state))
	j := jobFolder{state: state, node: "n1", id: 7, uid: 0}
	if err := j.end(); err != nil {
		t.Fatal(err)
	}
	if err := large.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("with a large environment: %v", err)
	}
	if err := own.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the job's own: %v", err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", other.Process.Pid)); err != nil {
		t.Error("another job's process has ended")
	}
	j.uid = 65534
	if err := j.end(); err != nil {
		t.Error(err)
	}
}

// Checks that a job is attended by root's slurmstepd, and not by any process with its command line, which users can
// start, even as root by a set-user-ID program.
func TestAttended(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	j := jobFolder{id: 4194303}
	for _, c := range []struct {
		program string
		uid     int
		want    bool
	}{
		{"slurmstepd", 0, true}, {"slurmstepd", 65534, false}, {"sleep", 0, false}, {"sleep", 65534, false},
	} {
		cmd := nobody.Called(t, c.program, c.uid, "slurmstepd: [4194303.batch]")
		if got := j.attended(); got != c.want {
			t.Errorf("%s of user %d: attended %v", c.program, c.uid, got)
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

// Checks that processes that have left a job's cgroups, or whose number was reused, are not the job's.
func TestInJob(t *testing.T) {
	for text, want := range map[string]bool{
		"8:freezer:/slurm_n1/uid_0/job_17\n0::/\n":                           true,
		"0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n":      true,
		"8:freezer:/slurm_n1/uid_0/job_170\n0::/user.slice/session-17.scope": false,
		"": false,
	} {
		if got := inJob([]byte(text), 17); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
}
