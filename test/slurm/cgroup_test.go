package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// gone says whether a job has left neither a cgroup nor anything of its VMs. A process that was killed, and that nobody has reaped yet, keeps its
// cgroup: the epilog tries for 10 s, and says how long it ran. An empty cgroup is no fault after that.
func gone(b *bed.Bed, job string) bool {
	if leftoversOf(job) != "" {
		return false
	}
	for _, dir := range cgroupsOf(job) {
		tried := regexp.MustCompile("epilog for job " + job + ` ran for [1-9][0-9]+ seconds`).MatchString(b.Logs())
		filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
			text, _ := os.ReadFile(path)
			tried = tried && (filepath.Base(path) != "cgroup.procs" || len(text) == 0)
			return nil
		})
		if !tried {
			return false
		}
	}
	return true
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
// slurmstepds are killed.
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
	for _, end := range []string{"normal", "scancel", "slurmstepds killed"} {
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
		switch end {
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
