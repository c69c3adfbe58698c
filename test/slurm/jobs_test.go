package slurm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// small are VMs that boot fast; two of them and their region fit 3,000 MB.
const small = "memory=256MiB,vcpus=1"

// script runs the lines of a shell script in an allocation of a user's, and returns what they wrote to files
// in the user's directory.
func (a *account) script(t *testing.T, options []string, lines string) (r result, read func(name string) string) {
	t.Helper()
	dir, err := os.MkdirTemp(a.home, "s")
	if err == nil {
		err = os.Chown(dir, a.uid, a.gid)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "script"), []byte(lines), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := a.command(t, "salloc", append(options, "sh", "script")...)
	cmd.Dir = dir
	r = finish(t, cmd, "")
	return r, func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%v\n%s%s\n%s", err, r.out, r.err, cluster.Logs())
		}
		return string(text)
	}
}

// Exclusive hosts, sequential jobs: the steps of an allocation run in the same VMs, one after
// another, and each is as it would be natively.
func TestExclusiveSequential(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	r, read := a.script(t, []string{"-N1", "-n2", "--exclusive", "--mem=3000", "--gres=region:64M", "--vm=vms=2,region=64MiB," + small}, `
srun -l hostname >label
srun -n1 sh -c 'exit 7' 2>exit.err; echo $? >exit
srun -n1 sh -c 'kill -SEGV $$' 2>segv.err; echo $? >segv
srun -n2 sh -c 'pwd; id -u; echo $A_VARIABLE; echo rank $SLURM_PROCID >rank$SLURM_PROCID; umask' >where
echo typed | srun -n1 cat >stdin
srun -n2 --input=1 cat <rank1 >input
srun --no-vm -n1 hostname >no-vm
srun -n1 no-such-program 2>missing.err; echo $? >missing
srun -n2 cat /proc/sys/kernel/random/boot_id >boot1
srun -n2 cat /proc/sys/kernel/random/boot_id >boot2
srun -n2 -K sh -c 'test $SLURM_PROCID = 0 && exit 5; exec sleep 600' 2>kill.err; echo $? >kill
srun --no-vm -n2 -K sh -c 'test $SLURM_PROCID = 0 && exit 5; exec sleep 600' 2>/dev/null; echo $? >kill.native
srun -n2 ls /dev/nearmetal/region >region
srun -n1 sh -c 'echo to stderr >&2' 2>stderr
script -qec 'srun --pty -n1 tty' /dev/null </dev/null >pty
srun -n1 sh -c 'trap "echo got it; exit 3" USR1; : >ready; while :; do sleep 0.1; done' >signal &
while ! test -e ready; do sleep 0.1; done
scancel -s USR1 $SLURM_JOB_ID
wait $!; echo $? >signal.code
`)
	if r.code != 0 {
		t.Fatalf("%+v\n%s", r, cluster.Logs())
	}
	host, _ := os.Hostname()
	expect := func(name, want string) {
		t.Helper()
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	contains := func(name, want string) {
		t.Helper()
		if got := read(name); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want in it %q", name, got, want)
		}
	}
	labels := strings.Fields(read("label"))
	if s := strings.Join(labels, " "); s != "0: n1-vm0 1: n1-vm1" && s != "1: n1-vm1 0: n1-vm0" {
		t.Errorf("label: %q", s)
	}
	expect("exit", "7\n")
	contains("exit.err", "task 0: Exited with exit code 7")
	expect("segv", "139\n")
	contains("segv.err", "task 0: Segmentation fault")
	contains("where", fmt.Sprintf("\n%d\n", a.uid))
	expect("rank0", "rank 0\n")
	expect("rank1", "rank 1\n")
	expect("stdin", "typed\n")
	expect("input", "rank 1\n")
	expect("no-vm", host+"\n")
	expect("missing", "127\n")
	contains("missing.err", "n1-vm0: no-such-program: no such program in PATH")
	ids := strings.Fields(read("boot1"))
	if again := strings.Fields(read("boot2")); len(ids) != 2 || ids[0] == ids[1] || len(again) != 2 ||
		again[0] != ids[0] && again[0] != ids[1] {
		t.Errorf("the steps' VMs: %q, then %q", ids, again)
	}
	// Slurm sends SIGTERM, and SIGKILL two seconds later: a task that a busy machine has not ended by then is killed.
	if got := read("kill"); got != read("kill.native") && got != "137\n" {
		t.Errorf("kill: %q, want %q", got, read("kill.native"))
	}
	contains("kill.err", "task 0: Exited with exit code 5")
	expect("region", "/dev/nearmetal/region\n/dev/nearmetal/region\n")
	if got := said(read("stderr")); got != "to stderr\n" {
		t.Errorf("stderr: %q", got)
	}
	contains("pty", "/dev/pts/")
	expect("signal", "got it\n")
	expect("signal.code", "3\n")
}

// Exclusive hosts, concurrent jobs: steps that run at the same time have VMs of their own, with a
// region of their own.
func TestExclusiveConcurrent(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	r, read := a.script(t, []string{"-N1", "-n2", "--exclusive", "--mem=4000", "--gres=region:128M", "--vm=region=16MiB," + small, "--vm-keep=step"}, `
step() {
	srun --exact -n1 --mem=1500 sh -c 'cat /proc/sys/kernel/random/boot_id; hostname; ls /dev/nearmetal/region
		: >here-'$1'; while ! test -e here-'$2'; do sleep 0.1; done' >$1
}
step a b &
one=$!
step b a || exit 1
wait $one
`)
	if r.code != 0 {
		t.Fatalf("%+v\n%s", r, cluster.Logs())
	}
	one, two := strings.Fields(read("a")), strings.Fields(read("b"))
	if len(one) != 3 || len(two) != 3 || one[0] == two[0] || one[1] != "n1-vm0" || two[1] != "n1-vm0" {
		t.Errorf("%q and %q are not VMs of their own", one, two)
	}
}

var allowed = regexp.MustCompile(`Cpus_allowed_list:\s*(\S+)`)

// Shared hosts, concurrent jobs of several users: each on its own cores of the host, and out of
// reach of the other.
func TestShared(t *testing.T) {
	defer clean(t)
	a, b := newAccount(t, 1), newAccount(t, 2)
	hold := func(u *account) (id string) {
		os.Remove(u.home + "/up")
		r := u.run(t, "sbatch", "--parsable", "-w", "n1", "-n1", "--mem=1000", "--gres=region:16M", "--vm=region=16MiB,"+small,
			"-o", u.home+"/out", "--wrap", "srun sh -c 'hostname; echo secret; : >up; sleep 600'")
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
		return strings.TrimSpace(r.out)
	}
	ja, jb := hold(a), hold(b)
	defer slurm(t, "scancel", ja, jb)
	for _, u := range []*account{a, b} {
		await(t, u.name+"'s step", func() bool { _, err := os.Stat(u.home + "/up"); return err == nil })
	}
	cpus := func(job string) string {
		for _, p := range vmProcesses(job + ".n1") {
			text, _ := os.ReadFile(p + "/status")
			cmdline, _ := os.ReadFile(p + "/cmdline")
			if m := allowed.FindStringSubmatch(string(text)); m != nil && strings.Contains(string(cmdline), "qemu") {
				return m[1]
			}
		}
		return ""
	}
	if ca, cb := cpus(ja), cpus(jb); ca == "" || cb == "" || ca == cb {
		t.Errorf("the jobs' VMs run on CPUs %q and %q", ca, cb)
	}
	// What b may try on a's job.
	dir := filepath.Join(state, ja+".n1")
	rootsOwn(t, dir, a.uid)
	for _, try := range []string{
		"cat " + dir + "/request", "cat " + dir + "/result", "ls " + dir + "/run",
		"cat " + dir + "/run/job/console-n1-vm0.log", "cat " + dir + "/run/job/record.json",
		"env NEARMETAL_RUNTIME_DIR=" + dir + "/run " + bin + "/nearmetal exec -c job cat /proc/cmdline",
		"srun --overlap --jobid=" + ja + " hostname",
	} {
		if r := finish(t, b.command(t, "/bin/sh", "-c", try), ""); r.code == 0 {
			t.Errorf("%s: %s may: %s", try, b.name, r.out)
		}
	}
	for _, p := range vmProcesses(ja + ".n1") {
		for _, f := range []string{"fd", "mem", "map_files", "environ"} {
			if r := finish(t, b.command(t, "/bin/sh", "-c", "ls "+p+"/"+f+"/ || head -c1 "+p+"/"+f), ""); r.code == 0 {
				t.Errorf("%s reaches %s/%s: %s", b.name, p, f, r.out)
			}
		}
	}
	// b's own VM has neither a's files nor its region.
	if r := b.run(t, "srun", "--overlap", "--jobid="+jb, "cat", a.home+"/up"); r.code == 0 {
		t.Errorf("%+v", r)
	}
}

// rootsOwn compares what is kept of a job of a user's with its modes: root's, and closed to all others but for
// the folder of the job's own clusters.
func rootsOwn(t *testing.T, dir string, user int) {
	t.Helper()
	for name, want := range map[string]fs.FileMode{"": fs.ModeDir | 0o711, "/request": 0o600, "/result": 0o600, "/extern": 0o600, "/run": fs.ModeDir | 0o700} {
		st, err := os.Lstat(dir + name)
		if err != nil {
			t.Error(err)
			continue
		}
		owner := 0
		if name == "/run" {
			owner = user
		}
		if got := int(st.Sys().(*syscall.Stat_t).Uid); st.Mode() != want || got != owner {
			t.Errorf("%s: mode %v of user %d, want %v of %d", dir+name, st.Mode(), got, want, owner)
		}
	}
	if st, err := os.Lstat(filepath.Dir(dir)); err != nil || st.Mode().Perm()&0o022 != 0 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("%s: %v, %v", filepath.Dir(dir), st.Mode(), err)
	}
}

// vmProcesses are the folders in /proc of what runs for a job's VMs.
func vmProcesses(mark string) []string { return processes("NEARMETAL_SLURM_JOB=" + state + "/" + mark) }

// processes are the folders in /proc of the processes with a variable in their environment.
func processes(variable string) []string {
	var list []string
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range procs {
		if env, _ := os.ReadFile(p); strings.Contains("\x00"+string(env), "\x00"+variable+"\x00") {
			list = append(list, filepath.Dir(p))
		}
	}
	return list
}

// Each node of a job has its own VMs.
func TestTwoNodes(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 2)
	r := a.run(t, "srun", "-N2", "-l", "--mem=700", "--vm="+small, "hostname")
	if r.code != 0 || !strings.Contains(r.out, "0: n1-vm0\n") || !strings.Contains(r.out, "1: n2-vm0\n") {
		t.Errorf("%+v\n%s", r, cluster.Logs())
	}
}

// Steps with VMs of their own have them on each of their nodes, and these know of each other.
func TestTwoNodesOwnVMs(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 2)
	r := a.run(t, "srun", "-N2", "-l", "--mem=700", "--vm="+small, "--vm-keep=step", "sh", "-c", "hostname; getent hosts n1-vm0 n2-vm0 | wc -l")
	if got := sorted(r.out); r.code != 0 || got != "0: 2, 0: n1-vm0, 1: 2, 1: n2-vm0" {
		t.Errorf("%+v\n%s", r, cluster.Logs())
	}
}

// affinities reads "RANK: Cpus_allowed_list: LIST" lines and returns "RANK: LIST, …" in the ranks' order.
func affinities(text string) string {
	return sorted(strings.ReplaceAll(text, "Cpus_allowed_list: ", ""))
}

// sorted returns the lines of a text in order, ", " between them.
func sorted(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// waited are the lines of an srun that waits: its node has ended the step before, and Slurm's controller does not know that yet.
var waited = regexp.MustCompile(`(?m)^srun: (Job \S+ step creation (?:temporarily|still) disabled, retrying .*|Step created for .*)\n`)

// said is what steps that run one after another wrote, without the lines of an srun that waits.
func said(text string) string { return waited.ReplaceAllString(text, "") }

// A step cannot have VMs in a job without them; and a job without --vm in its steps is not asked twice.
func TestStepWithoutVMs(t *testing.T) {
	a := newAccount(t, 1)
	r, read := a.script(t, []string{"-n1"}, "srun --vm hostname >out 2>err; echo $? >code\n")
	if r.code != 0 || read("code") == "0\n" || !strings.Contains(read("err"), "n1: this job has no VMs: give --vm to the sbatch or salloc") {
		t.Errorf("%+v: %s", r, read("err"))
	}
	clean(t)
}

// Options without their argument reach the steps of a batch job as they were typed.
func TestBareOptions(t *testing.T) {
	defer clean(t)
	a := newAccount(t, 1)
	r := a.run(t, "sbatch", "-W", "-w", "n1", "-n1", "--mem=1000", "--vm", "--vm-keep", "--vm-memory=256M", "--vm-vcpus=1", "-o", a.home+"/bare",
		"--wrap", "srun hostname; srun --no-vm hostname")
	host, _ := os.Hostname()
	if text, _ := os.ReadFile(a.home + "/bare"); r.code != 0 || said(string(text)) != "n1-vm0\n"+host+"\n" {
		t.Errorf("%+v: %s", r, text)
	}
}
