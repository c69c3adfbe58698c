package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nearmetal/test/slurm/bed"
)

// cgroupsOf are the cgroups of a job on a host, in all hierarchies.
func cgroupsOf(job string) []string {
	list, _ := filepath.Glob("/sys/fs/cgroup/*/slurm*/uid_*/job_" + job)
	more, _ := filepath.Glob("/sys/fs/cgroup/slurm*/uid_*/job_" + job)
	return append(list, more...)
}

// gone says whether a job has left neither a cgroup nor anything of its VMs. A process that the kernel takes long to end keeps its
// cgroup beyond the epilog: that is the next sweep's, which the prolog of another job has.
func gone(b *bed.Bed, job string) bool {
	none := func() bool {
		files, _ := filepath.Glob(filepath.Join(state, "cgroups-"+job+".*"))
		return leftoversOf(job) == "" && len(cgroupsOf(job)) == 0 && len(files) == 0
	}
	if none() {
		return true
	}
	out, err := b.Command("squeue", "-h", "-j", job).CombinedOutput()
	if err == nil && len(out) > 0 {
		return false // its epilog has not ended
	}
	b.Command("srun", "-n1", "--mem=100", "true").Run()
	return none()
}

// keep puts a process of root's, which no epilog ends, into a cgroup of a job that Slurm does not find processes by. What it returns
// ends that process.
func keep(t *testing.T, job string) func() {
	t.Helper()
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { cmd.Process.Kill(); cmd.Wait() }
	t.Cleanup(end)
	for _, dir := range cgroupsOf(job) {
		if !strings.HasPrefix(dir, "/sys/fs/cgroup/memory/") {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, cmd.Process.Pid), 0); err != nil {
			t.Fatal(err)
		}
		return end
	}
	t.Fatalf("no cgroup of the job for memory: %v", cgroupsOf(job))
	return end
}

// needCgroups skips a test, outside CI, where Slurm's cgroups of the first version are not.
func needCgroups(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/freezer"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs cgroups of the first version: ", err)
		}
		t.Skip("this test needs cgroups of the first version: ", err)
	}
}

// With cgroups the VMs are in the job's own, so that its memory is theirs, and no cgroup is left: not
// by its end, nor by scancel, which they outlive for as long as the application handles it, nor where its
// slurmstepds are killed. One that a process keeps beyond the epilog goes with a later job's prolog.
func TestCgroups(t *testing.T) {
	needCgroups(t)
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Plugstack: plugstack(), Cgroup: true,
		// Slurm calls a cgroup by node and job, also where another cluster has both. A handler in a slow VM has the
		// time that it takes.
		Extra: fmt.Sprintf("FirstJobId=%d\nKillWait=100\n", 1000+os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)
	for _, end := range []string{"normal", "scancel", "slurmstepds killed", "kept by a process"} {
		t.Log(end)
		os.Remove(filepath.Join(a.home, "up"))
		os.Remove(filepath.Join(a.home, "go-on"))
		cmd := a.command(t, "sbatch", "--parsable", "-n1", "--mem=1000", "--vm="+small, "-o", a.home+"/out",
			"--wrap", "srun sh -c 'trap \"sleep 0.3; : >handled; exit\" TERM; : >up; while ! test -e go-on; do sleep 0.1; done'")
		cmd.Env = b.Environ(a.name, a.home)
		r := finish(t, cmd, "")
		id := strings.TrimSpace(r.out)
		if r.code != 0 {
			t.Fatalf("%+v\n%s", r, b.Logs())
		}
		if err := bed.Await("the step", func() bool { _, err := os.Stat(a.home + "/up"); return err == nil }); err != nil {
			t.Fatalf("%v\n%s", err, b.Logs())
		}
		vms := 0
		for _, p := range processes(fmt.Sprintf("NEARMETAL_SLURM_JOB=%s/%s.n1", state, id)) {
			vms++
			text, _ := os.ReadFile(p + "/cgroup")
			for _, line := range strings.Split(string(text), "\n") {
				if (strings.Contains(line, ":memory:") || strings.Contains(line, ":freezer:")) && !strings.Contains(line, "/job_"+id) {
					name, _ := os.ReadFile(p + "/comm")
					t.Errorf("%s is in %s, not in the job's cgroup", strings.TrimSpace(string(name)), line)
				}
			}
		}
		if vms < 2 {
			t.Errorf("%d processes of the job's VMs", vms)
		}
		limit := ""
		for _, dir := range cgroupsOf(id) {
			if text, err := os.ReadFile(dir + "/memory.limit_in_bytes"); err == nil {
				limit = strings.TrimSpace(string(text))
			}
		}
		if want := fmt.Sprint(1000 << 20); limit != want {
			t.Errorf("the limit on the job's memory is %s, want %s", limit, want)
		}
		letGo := func() {}
		switch end {
		case "kept by a process":
			letGo = keep(t, id)
			fallthrough
		case "normal":
			if err := os.WriteFile(a.home+"/go-on", nil, 0o644); err != nil {
				t.Fatal(err)
			}
		case "slurmstepds killed":
			for _, p := range stepdsOf(b, id) {
				syscall.Kill(p, syscall.SIGKILL)
			}
			fallthrough
		default:
			b.Command("scancel", id).Run()
		}
		if end == "kept by a process" {
			file := filepath.Join(state, "cgroups-"+id+".n1")
			if err := bed.Await("what the epilog writes down", func() bool { _, err := os.Stat(file); return err == nil && b.AwaitIdle() == nil }); err != nil {
				t.Errorf("%v\n%s", err, b.Logs())
			}
			if gone(b, id) || leftoversOf(id) != "" || !strings.Contains(b.Logs(), "stays: a process is in it") {
				t.Errorf("a cgroup with a process in it: left are %v\n%s\n%s", cgroupsOf(id), leftoversOf(id), b.Logs())
			}
			letGo()
		}
		err := bed.Await("the end of the job", func() bool { return gone(b, id) })
		if err != nil {
			t.Errorf("%s: %v: left are %v\n%s\n%s", end, err, cgroupsOf(id), leftoversOf(id), b.Logs())
		}
		if _, err := os.Stat(filepath.Join(a.home, "handled")); end == "scancel" && err != nil {
			t.Errorf("the application did not handle scancel: %v\n%s", err, b.Logs())
		}
		if err := b.AwaitIdle(); err != nil {
			t.Errorf("%s: %v", end, err)
		}
	}
}
