package slurm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/change"
	"nearmetal/test/slurm/bed"
)

// pool is this host's own pool of 2 MiB pages on its first node.
const pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/"

func pages(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(pool + name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The huge pages of a job's VMs: made before it beside what the administrator has, used by QEMU,
// and given back exactly, however the job ends; never more than the job's own memory.
func TestHugePages(t *testing.T) {
	if err := unix.Access(pool+"nr_hugepages", unix.W_OK); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("this test needs huge pages on node 0: ", err)
		}
		t.Skip("this test needs huge pages on node 0: ", err)
	}
	defer clean(t)
	a := newAccount(t, 1)
	// The host may have pages of its own, free or not.
	before, beforeFree := pages(t, "nr_hugepages"), pages(t, "free_hugepages")
	set := func(n int) {
		t.Helper()
		if err := os.WriteFile(pool+"nr_hugepages", []byte(strconv.Itoa(n)), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := pages(t, "nr_hugepages"); got != n {
			t.Fatalf("%d pages of %d", got, n)
		}
	}
	// Three more of the administrator's own, all free; a VM of 256 MiB takes 128.
	const own, needed = 3, 128
	with := max(own, needed-beforeFree) // a job takes what is free, and the rest is made
	set(before + own)
	defer set(before)
	if free := pages(t, "free_hugepages"); free != beforeFree+own {
		t.Fatalf("%d huge pages are free, want %d: another program takes them", free, beforeFree+own)
	}
	// has fails unless the host has the pages of a job that runs: the prolog has made them, and nothing is waited for.
	has := func(t *testing.T, id string) {
		t.Helper()
		if got := pages(t, "nr_hugepages"); got != before+with {
			slurm(t, "scancel", id) // or it has the node in the tests that follow
			clean(t)
			t.Fatalf("%d pages with job %s, want %d: another program may have taken free ones meanwhile", got, id, before+with)
		}
	}
	back := func(t *testing.T, what string) {
		t.Helper()
		if err := bed.Await(what, func() bool { return pages(t, "nr_hugepages") == before+own }); err != nil {
			t.Fatalf("%v: %d pages, want %d\n%s", err, pages(t, "nr_hugepages"), before+own, cluster.Logs())
		}
		// The journal goes after what it undoes.
		var left []string
		if err := bed.Await(what, func() bool {
			left = nil
			list, err := change.List(change.Dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range list {
				if strings.HasPrefix(i.Name, "pages-") {
					left = append(left, i.Name)
				}
			}
			return len(left) == 0
		}); err != nil {
			t.Errorf("%v: the journal has %q", err, left)
		}
	}
	// More than the job has is refused, and nothing is made for it.
	r := a.run(t, "srun", "-w", "n1", "--mem=1000", "--vm=memory=4GiB,pages=2MiB", "true")
	if r.code == 0 || !strings.Contains(r.err, "nearmetal: n1: the job's 1000MiB of memory on n1 do not hold its VMs") {
		t.Errorf("%+v", r)
	}
	back(t, "a job that asks for too much")

	// The VMs of steps are not there yet: the pages are.
	hold := func(t *testing.T) string {
		t.Helper()
		os.Remove(a.home + "/up")
		id := strings.TrimSpace(a.run(t, "sbatch", "--parsable", "-w", "n1", "-n1", "--mem=1000", "--vm="+small+",pages=2MiB,keep=step",
			"-o", a.home+"/out", "--wrap", ": >up; while :; do sleep 0.1; done").out)
		// Slurm itself takes minutes to end a job whose slurmstepd is killed while it starts.
		await(t, "the script", func() bool { _, err := os.Stat(a.home + "/up"); return err == nil })
		has(t, id)
		return id
	}
	t.Run("slurmstepd killed", func(t *testing.T) {
		id := hold(t)
		for _, p := range stepds(id) {
			syscall.Kill(p, syscall.SIGKILL)
		}
		must(t, "scancel", id)
		back(t, "the end of a job whose slurmstepd was killed")
		// The script itself outlives its slurmstepd where Slurm has no cgroups, as natively.
		for _, p := range processes("NEARMETAL_RUNTIME_DIR=" + state + "/" + id + ".n1/run") {
			n, _ := strconv.Atoi(filepath.Base(p))
			syscall.Kill(n, syscall.SIGKILL)
		}
	})
	t.Run("reboot", func(t *testing.T) {
		id := hold(t)
		reboot(t, id)
		back(t, "a boot")
		must(t, "scancel", id)
		clean(t)
	})
	t.Run("prolog killed", func(t *testing.T) {
		// Whoever has the lock keeps the prolog from going on.
		lock, err := os.OpenFile(change.Dir+"/hugepages.lock", os.O_RDWR, 0)
		if err == nil {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		id := strings.TrimSpace(a.run(t, "sbatch", "--parsable", "-w", "n1", "-n1", "--mem=1000", "--vm="+small+",pages=2MiB",
			"-o", a.home+"/out", "--wrap", "true").out)
		var keeper, parent int
		await(t, "the prolog", func() bool {
			keeper, parent = keeperOf(id)
			return keeper > 0 && parent > 1 // kill(0) would end this test itself
		})
		syscall.Kill(parent, syscall.SIGKILL)
		syscall.Kill(keeper, syscall.SIGKILL)
		lock.Close()
		back(t, "a prolog that was killed")
		// Slurm's own answer to that: the host is drained, the job waits for another.
		await(t, "a host that Slurm drains", func() bool { return must(t, "sinfo", "-R", "-h", "-o", "%N %E") == "n1 Prolog error\n" })
		slurm(t, "scancel", id)
		await(t, "the end of the job", func() bool { return must(t, "squeue", "-h", "-w", "n1") == "" })
		must(t, "scontrol", "update", "nodename=n1", "state=resume")
	})
	t.Run("end", func(t *testing.T) {
		id := held(t, a, "--vm-pages=2M")
		has(t, id)
		if kib := inHugePages(id); kib != needed*2048 {
			t.Errorf("%d KiB of the job's VM are in huge pages, want %d", kib, needed*2048)
		}
		must(t, "scancel", id)
		back(t, "the end of the job")
	})
}

// keeperOf finds the nearmetal that keeps pages for a job, and the prolog that waits for it.
func keeperOf(job string) (pid, parent int) {
	list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range list {
		text, _ := os.ReadFile(f)
		if !strings.Contains(string(text), "slurm-pages\x00keep\x00--job="+job+".n1\x00--state="+state+"\x00") {
			continue
		}
		stat, _ := os.ReadFile(filepath.Dir(f) + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		fmt.Sscanf(rest, "%s %d", new(string), &parent)
		pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(f)))
		return pid, parent
	}
	return 0, 0
}

// inHugePages returns what a job's VMs on n1 have in huge pages, in KiB (proc(5), HugetlbPages).
func inHugePages(job string) (sum int) {
	for _, p := range vmProcesses(job + ".n1") {
		text, _ := os.ReadFile(p + "/status")
		_, rest, _ := strings.Cut(string(text), "HugetlbPages:")
		n := 0
		fmt.Sscan(rest, &n)
		sum += n
	}
	return sum
}
