package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/host"
	"nearmetal/test/slurm/bed"
)

// A boot that fails fails the job, with the reason and the host's name, and the host stays.
func TestBootFailsByUser(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--vm-root=/etc"}, []string{"nearmetal: n1: ", "root /etc has no /bin/sh"}},
		{[]string{"--vm=memory=3GiB", "--mem=1000"}, []string{"n1: ", "add --mem=3264M"}},
		{[]string{"--vm=region=64MiB"}, []string{"n1: a region of 64 MiB is not among the job's GRES (0 MiB are): add --gres=region:64M"}},
	} {
		r := a.run(t, "srun", append([]string{"--vm", "-w", "n1"}, append(c.args, "hostname")...)...)
		for _, w := range c.want {
			if r.code == 0 || r.out != "" || !strings.Contains(r.err, w) {
				t.Errorf("%q: %+v\nwant %q", c.args, r, w)
			}
		}
	}
	// clean waits for idle hosts: one that is drained never is.
}

// A kernel that panics is shown by the end of its console.
func TestBootPanics(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	file := filepath.Join(a.home, "panic.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nkernelArgs: [rdinit=/no/such/init, root=/dev/none]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := a.run(t, "srun", "-n2", "--mem=700", "--vm="+file, "--vm-memory=256M", "hostname")
	if r.code == 0 || !strings.Contains(r.err, "nearmetal: n1: ") || !strings.Contains(r.err, "its console's last lines:") ||
		!strings.Contains(r.err, "Kernel panic") {
		t.Errorf("%+v\n%s", r, cluster.Logs())
	}
	// Why stands once, in one piece, and what Slurm says of the tasks in one line behind it.
	_, after, _ := strings.Cut(r.err, "nearmetal: n1: ")
	rest := regexp.MustCompile(`(?m)^(srun|slurmstepd)\S* .*$`).FindAllString(after, -1)
	if strings.Count(r.err, "nearmetal: n1: ") != 1 || strings.Contains(r.err, "spank") || len(rest) != 1 ||
		!strings.HasSuffix(r.err, rest[0]+"\n") {
		t.Errorf("%s", r.err)
	}
}

// A rank that the VM's kernel kills since memory ran out: which VM that was, and what raises its memory.
func TestOutOfMemory(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	r := a.run(t, "srun", "-w", "n1", "-n1", "--mem=700", "--vm", "--vm-memory=256M", "tail", "/dev/zero")
	if said := "ran out of memory, and its kernel killed a process: the VM has 256MiB (--vm-memory raises that)"; r.code == 0 ||
		strings.Count(r.err, said) != 1 {
		t.Errorf("%+v", r)
	}
}

// A cluster file whose share is relative to the job's directory, and more vCPUs than the job has CPUs.
func TestSharesAndCrowd(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	file := filepath.Join(a.home, "shares.yaml")
	if err := os.WriteFile(file, []byte("version: 1\nvms: [{vcpus: 2, memory: 256MiB}]\nshares: [{path: .}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, read := a.script(t, []string{"-w", "n1", "-n1", "-c1", "--mem=700", "--vm=" + file}, "srun sh -c 'echo here >out' 2>one; srun true 2>two")
	const warning = "nearmetal: n1: warning: the job has 1 CPU on n1 for 2 vCPUs: vCPUs share them"
	if one, two := read("one"), said(read("two")); r.code != 0 || read("out") != "here\n" || strings.Count(one, warning) != 1 || two != "" {
		t.Errorf("%+v\n%s\n%s", r, one, two)
	}
	r = a.run(t, "srun", "-w", "n1", "-n1", "-c1", "--mem=700", "--vm=memory=256MiB", "--vm-vcpus=64", "true")
	if r.code == 0 || !strings.Contains(r.err, "nearmetal: n1: 64 vCPUs on the job's 1 CPU of n1 do not boot in good time: ask for") {
		t.Errorf("%+v", r)
	}
}

// What a user has in config.yaml is so in a job, too, but for what the job itself says.
func TestDefaultsOfUser(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	defer os.RemoveAll(filepath.Join(a.home, ".config")) // other tests have this account, too
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(a.home, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("data/words", "read me\n")
	put(".config/nearmetal/config.yaml", "shares: [{path: "+filepath.Join(a.home, "data")+", target: /mnt/data, mode: ro}]\nvms: [{vcpus: 9, memory: 64GiB}]\n")
	if out, err := exec.Command("chown", "-R", a.name, a.home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := a.run(t, "srun", "-w", "n1", "-n1", "--mem=700", "--vm="+small, "sh", "-c", "cat /mnt/data/words; nproc; touch /mnt/data/new")
	if r.out != "read me\n1\n" || r.code == 0 || !strings.Contains(r.err, "Read-only file system") {
		t.Errorf("%+v\n%s", r, cluster.Logs())
	}
	put(".config/nearmetal/config.yaml", "fabric: perhaps\n")
	if r := a.run(t, "srun", "-w", "n1", "-n1", "--mem=700", "--vm="+small, "true"); r.code == 0 || !strings.Contains(r.err, "config.yaml:1:9") {
		t.Errorf("%+v", r)
	}
}

// A fault of the host drains it, with the reason.
func TestBootFailsByHost(t *testing.T) {
	stack(t, strings.Replace(plugstack(), "nearmetal="+bin+"/nearmetal", "nearmetal="+bin+"/gone", 1))
	r := slurm(t, "srun", "-w", "n2", "--vm", "hostname")
	stack(t, plugstack())
	if r.code == 0 || !strings.Contains(r.err, "nearmetal: n2: "+bin+"/gone cannot be run") {
		t.Errorf("%+v", r)
	}
	if out := must(t, "sinfo", "-R", "-h", "-o", "%N %E"); out != "n2 nearmetal: "+bin+"/gone cannot be run\n" {
		t.Errorf("drained: %q", out)
	}
	must(t, "scontrol", "update", "nodename=n2", "state=resume")
	clean(t)
}

// KVM that is demanded of a host without it: by the site, which drains the host, or by the user, whose job fails.
func TestNoKVM(t *testing.T) {
	if _, _, err := host.DetectAccel("kvm"); err == nil {
		t.Skip("KVM works here")
	}
	file := filepath.Join(scratch(t), "kvm.yaml")
	if err := os.WriteFile(file, []byte("version: 1\naccel: kvm\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stack(t, plugstack("accel=kvm"))
	site := slurm(t, "srun", "-w", "n2", "--vm", "hostname")
	stack(t, plugstack())
	if site.code == 0 || !strings.Contains(site.err, "nearmetal: n2: ") || !strings.Contains(site.err, "accel kvm: ") {
		t.Errorf("%+v", site)
	}
	if out := must(t, "sinfo", "-R", "-h", "-o", "%N %E"); !strings.HasPrefix(out, "n2 nearmetal: ") {
		t.Errorf("drained: %q", out)
	}
	must(t, "scontrol", "update", "nodename=n2", "state=resume")
	if r := slurm(t, "srun", "-w", "n1", "--vm="+file, "hostname"); r.code == 0 || !strings.Contains(r.err, "nearmetal: n1: accel kvm: ") {
		t.Errorf("%+v", r)
	}
	clean(t)
}

// A site that writes a backend whose VMs would not be in the job's cgroup: --vm is refused in one line before there is a
// job, and what wants no VMs runs.
func TestOtherBackend(t *testing.T) {
	stack(t, plugstack("vm_backend=libvirt"))
	vms := slurm(t, "srun", "-w", "n1", "-n1", "--vm", "hostname")
	plain := slurm(t, "srun", "-w", "n1", "-n1", "hostname")
	stack(t, plugstack())
	if lines := strings.Count(vms.err, "vm_backend=libvirt: VMs of a job are QEMU processes of the job"); vms.code == 0 || vms.out != "" || lines != 1 {
		t.Errorf("%+v", vms)
	}
	if plain.code != 0 || plain.out == "" {
		t.Errorf("%+v", plain)
	}
	clean(t)
}

// held starts a job whose VMs run a step that waits, and returns its number.
func held(t *testing.T, a *account, more ...string) string {
	t.Helper()
	os.Remove(filepath.Join(a.home, "up"))
	r := a.run(t, "sbatch", append(append([]string{"--parsable", "-w", "n1", "-n1", "--mem=1000", "--vm=" + small, "-o", a.home + "/out"}, more...),
		"--wrap", "srun sh -c 'trap \"echo ended by TERM; sleep 0.2; echo and then\" TERM; : >up; while :; do sleep 0.1; done'")...)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	await(t, "the step", func() bool { _, err := os.Stat(a.home + "/up"); return err == nil })
	return strings.TrimSpace(r.out)
}

// announced submits a job to n2, whose end a signal announces; trap is the batch shell's own. Its step and shell say
// on its output who the signal came to.
func announced(t *testing.T, a *account, signal, trap string) string {
	t.Helper()
	r := a.run(t, "sbatch", "--parsable", "-w", "n2", "-n1", "--mem=1000", "-t", "9", "--signal="+signal, "--vm="+small, "-o", a.home+"/signal-%j",
		"--wrap", trap+`srun sh -c 'trap "echo the step in $(hostname)" USR1; : >up-$SLURM_JOB_ID; while :; do sleep 0.1; done' & wait; wait`)
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	return strings.TrimSpace(r.out)
}

// soon lets an announced job, submitted at a time, end within two minutes, once its step is there: a signal before
// that would come to nobody. Slurm counts minutes, looks every half minute, and sends the signal up to half a
// minute early.
func soon(t *testing.T, a *account, job string, submitted time.Time) {
	t.Helper()
	await(t, "the step of job "+job, func() bool { _, err := os.Stat(a.home + "/up-" + job); return err == nil })
	limit := int((time.Since(submitted) + 100*time.Second).Minutes())
	must(t, "scontrol", "update", "jobid="+job, "timelimit="+strconv.Itoa(limit))
}

// The end of a job in every way there is: nothing of its VMs is left.
func TestKills(t *testing.T) {
	a := newAccount(t, 1)
	gone := func(t *testing.T, id string) {
		t.Helper()
		await(t, "the end of job "+id, func() bool {
			r := slurm(t, "squeue", "-h", "-j", id, "-o", "%T")
			return r.code != 0 || strings.TrimSpace(r.out) == ""
		})
		await(t, "the end of its VMs", func() bool { return leftoversOf(id) == "" })
	}
	defer clean(t)
	// A minute is the least that Slurm counts: these run out beside the others.
	other := newAccount(t, 2)
	submitted := time.Now()
	late := announced(t, other, "USR1@50", "")
	shell := announced(t, other, "B:USR1@50", `trap "echo the batch shell on $(hostname)" USR1; `)
	soon(t, other, late, submitted)
	soon(t, other, shell, submitted)
	t.Run("scancel", func(t *testing.T) {
		id := held(t, a)
		must(t, "scancel", id)
		gone(t, id)
	})
	// The VMs are there for as long as the application handles its signal.
	t.Run("scancel TERM", func(t *testing.T) {
		id := held(t, a)
		must(t, "scancel", "-s", "TERM", id)
		await(t, "the handler", func() bool {
			// The shell's own word of its sleep, which TERM ends too, may stand between.
			text, _ := os.ReadFile(a.home + "/out")
			_, rest, ok := strings.Cut(string(text), "ended by TERM\n")
			return ok && strings.Contains(rest, "and then\n")
		})
		must(t, "scancel", id)
		gone(t, id)
	})
	t.Run("slurmstepds killed", func(t *testing.T) {
		id := held(t, a)
		for _, p := range stepds(id) {
			syscall.Kill(p, syscall.SIGKILL)
		}
		must(t, "scancel", id) // Slurm itself would take minutes to notice
		gone(t, id)
	})
	t.Run("slurmd restarted", func(t *testing.T) {
		id := held(t, a)
		cluster.StopNode("n1")
		if err := cluster.StartNode("n1"); err != nil {
			t.Fatal(err)
		}
		// The job has not noticed: a further step runs in the same VM.
		var r result
		await(t, "a step on the node whose slurmd is new", func() bool {
			r = a.run(t, "srun", "--overlap", "--jobid="+id, "hostname")
			return r.code == 0
		})
		if r.out != "n1-vm0\n" {
			t.Errorf("%+v", r)
		}
		must(t, "scancel", id)
		gone(t, id)
	})
	t.Run("node rebooted", func(t *testing.T) {
		id := held(t, a)
		reboot(t, id)
		must(t, "scancel", id)
		gone(t, id)
		if r := a.run(t, "srun", "-w", "n1", "--mem=1000", "--vm="+small, "hostname"); r.out != "n1-vm0\n" {
			t.Errorf("%+v\n%s", r, cluster.Logs())
		}
	})
	t.Run("time limit", func(t *testing.T) {
		await(t, "the time limit", func() bool {
			r := slurm(t, "scontrol", "show", "job", late, "-o")
			return r.code != 0 || strings.Contains(r.out, "JobState=TIMEOUT")
		})
		gone(t, late)
	})
	// --signal: to the steps, which are in the VM, or to the batch script alone, as natively.
	t.Run("signal before the time limit", func(t *testing.T) {
		host, _ := os.Hostname()
		for id, want := range map[string]string{late: "the step in n2-vm0\n", shell: "the batch shell on " + host + "\n"} {
			gone(t, id)
			// The shell's own word of its sleep, which is signalled with it, and Slurm's of the end stand beside it.
			text, _ := os.ReadFile(fmt.Sprintf("%s/signal-%s", other.home, id))
			if !strings.Contains("\n"+string(text), "\n"+want) || strings.Count(string(text), "the ") != strings.Count(want, "the ") {
				t.Errorf("job %s: %q, want %q", id, text, want)
			}
		}
	})
	if err := bed.Await("the end of what Slurm itself runs for a job", func() bool { return len(externs(nil)) == 0 }); err != nil {
		for _, p := range externs(nil) {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p))
			t.Errorf("%v: process %d: %q", err, p, text)
		}
	}
}

// reboot is node n1 booted anew while it has a job: its processes have gone, and all state of /run.
func reboot(t *testing.T, job string) {
	t.Helper()
	cluster.StopNode("n1")
	await(t, "the end of the host's processes", func() bool {
		var pids []int
		for _, p := range processes("NEARMETAL_RUNTIME_DIR=" + state + "/" + job + ".n1/run") {
			n, _ := strconv.Atoi(filepath.Base(p))
			pids = append(pids, n)
		}
		pids = append(pids, stepds(job)...)
		if len(pids) == 0 {
			return true
		}
		for _, p := range append(pids, externs(pids)...) {
			syscall.Kill(p, syscall.SIGKILL)
		}
		return false
	})
	removeFolders("*.n1")
	if err := cluster.StartNode("n1"); err != nil {
		t.Fatal(err)
	}
}

// externs are the processes of extern steps: children of parents, or all of this cluster's where it is nil.
func externs(parents []int) (list []int) {
	for _, p := range bed.Processes(cluster.Conf()) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p))
		if string(line) != "sleep\x00100000000\x00" {
			continue
		}
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		if parent, _ := strconv.Atoi(append(f, "", "")[1]); parents == nil || slices.Contains(parents, parent) {
			list = append(list, p)
		}
	}
	return list
}

// scontrol suspend stops the VM, and what runs in it; resume lets it go on.
func TestSuspend(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	r := a.run(t, "sbatch", "--parsable", "-w", "n1", "-n1", "--mem=1000", "--vm="+small, "-o", a.home+"/out",
		"--wrap", "srun sh -c 'i=0; while :; do i=$((i+1)); echo $i >count; sleep 0.05; done'")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	id := strings.TrimSpace(r.out)
	defer slurm(t, "scancel", id)
	count := func() int {
		text, _ := os.ReadFile(a.home + "/count")
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return n
	}
	// moves reports whether the count changes within some time, which is far more than a round takes.
	moves := func() bool {
		from := count()
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if n := count(); n != 0 && n != from {
				return true
			}
		}
		return false
	}
	await(t, "the step", moves)
	must(t, "scontrol", "suspend", id)
	await(t, "a VM that stands still", func() bool { return !moves() })
	must(t, "scontrol", "resume", id)
	await(t, "a VM that goes on", moves)
}

// stepds are the slurmstepds of a job.
func stepds(job string) []int { return stepdsOf(cluster, job) }

// stepdsOf are those of a job of another cluster.
func stepdsOf(b *bed.Bed, job string) []int {
	var list []int
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		text, _ := os.ReadFile(p)
		if strings.HasPrefix(string(text), "slurmstepd: ["+job+".") {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			if env, _ := os.ReadFile(filepath.Join(filepath.Dir(p), "environ")); strings.Contains(string(env), b.Conf()) {
				list = append(list, n)
			}
		}
	}
	return list
}
