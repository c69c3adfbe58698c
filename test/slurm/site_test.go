package slurm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/host"
	"nearmetal/test/slurm/bed"
)

// A step's own VMs run as the site says: with KVM that is demanded of a host without it they do not boot, which
// drains nothing.
func TestSiteAccelOfStep(t *testing.T) {
	if _, _, err := host.DetectAccel("kvm"); err == nil {
		t.Skip("KVM works here")
	}
	defer clean(t)
	a := newAccount(t, 1)
	stack(t, plugstack("accel=kvm"))
	r := a.run(t, "srun", "-w", "n2", "-n1", "--mem=700", "--vm="+small, "--vm-keep=step", "hostname")
	stack(t, plugstack())
	if r.code == 0 || !strings.Contains(r.err, "accel kvm: ") {
		t.Errorf("%+v", r)
	}
}

// A site's boot_timeout and root_writes are for a step's own VMs, too.
func TestSiteBootOfStep(t *testing.T) {
	defer clean(t)
	dir, err := os.MkdirTemp("", "nmt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	step := func(words ...string) ([]byte, error) {
		cmd := cluster.Command("srun", append([]string{"-w", "n2", "-n1", "--mem=700", "--vm=" + small, "--vm-keep=step"}, words...)...)
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if out, err := step("touch", "written"); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if _, err := os.Stat(dir + "/written"); err != nil {
		t.Error(err)
	}
	stack(t, plugstack("boot_timeout=1"))
	out, err := step("hostname")
	stack(t, plugstack())
	if err == nil || !strings.Contains(string(out), "1s") {
		t.Errorf("%v\n%s", err, out)
	}
}

// attack is what a program tries in a VM where aims names what is forbidden, a line each: paths of the host below
// /host, then ports of its loopback. It waits for that file, and says what it reached.
const attack = `
: >up
while ! test -e aims; do sleep 0.1; done
while read -r kind aim; do
	case $kind in
	path) test -e "/host$aim" && echo "reached $aim" ;;
	port) for host in 10.0.2.2 10.0.2.3 127.0.0.1; do
			(exec 3<>/dev/tcp/$host/$aim) 2>/dev/null && echo "reached port $aim"
		done ;;
	open) (exec 3<>/dev/tcp/10.0.2.2/$aim) && echo connected ;;
	esac
done <aims
ls -A /host/proc /host/sys /host/dev /host/run | grep -v : | grep . && echo "reached folders of the kernel's"
head -c 2G /dev/zero 2>/dev/null >/dev/shm/zeros && echo "reached 2 GiB of memory"
cmp /host/etc/passwd /etc/passwd && cat mine
: >done
while ! test -e go-on; do sleep 0.1; done
`

// A site whose default is isolation=strict: the VMs of its jobs, and of their steps, reach nothing of the host's that
// is forbidden, QEMU is in a jail, and in the job's cgroup with the job's memory.
func TestSiteStrict(t *testing.T) {
	needCgroups(t)
	other := filepath.Join("/tmp", fmt.Sprint("nm-other-", os.Getpid()))
	if err := errors.Join(os.Mkdir(other, 0o755), os.WriteFile(other+"/file", []byte("secret"), 0o644), os.Chown(other, 4242, 4242)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(other) })
	var ports [2]int
	var closed net.Listener
	for i := range ports {
		l, err := net.Listen("tcp", "0.0.0.0:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i], closed = l.Addr().(*net.TCPAddr).Port, l
	}
	b, err := bed.Start(bed.Options{Nodes: 1, CPUs: 2, MemoryMB: 4000, RegionBytes: "1G", Plugstack: plugstack("isolation=strict"), Cgroup: true,
		Extra: fmt.Sprintf("FirstJobId=%d\n", 200000+os.Getpid())})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	a := newAccount(t, 1)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(a.home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("attack", attack)
	write("mine", "mine\n")
	vms := "version: 1\nvms: [{vcpus: 1, memory: %s}]\nshares: [{path: .}, {path: /, target: /host, mode: ro}]\nnetwork: {hostPorts: [%d]}\n"
	write("strict.yaml", fmt.Sprintf(vms, "256MiB", ports[0]))
	write("big.yaml", fmt.Sprintf(vms, "3GiB", ports[0]))
	for _, keep := range []string{"job", "step"} {
		t.Run(keep, func(t *testing.T) {
			for _, name := range []string{"up", "aims", "done", "go-on", "out"} {
				os.Remove(filepath.Join(a.home, name))
			}
			cmd := a.command(t, "sbatch", "--parsable", "-n1", "--mem=1000", "--vm=strict.yaml", "--vm-keep="+keep, "-o", a.home+"/out", "--wrap", "srun bash ./attack")
			cmd.Env = b.Environ(a.name, a.home)
			r := finish(t, cmd, "")
			id := strings.TrimSpace(r.out)
			if r.code != 0 {
				t.Fatalf("%+v\n%s", r, b.Logs())
			}
			out := func() string { text, _ := os.ReadFile(a.home + "/out"); return string(text) }
			reached := func(name string) {
				t.Helper()
				err := bed.Await(name, func() bool {
					if _, err := os.Stat(filepath.Join(a.home, name)); err == nil {
						return true
					}
					queue, _ := b.Command("squeue", "-h", "-j", id).Output()
					return len(strings.TrimSpace(string(queue))) == 0
				})
				if _, missing := os.Stat(filepath.Join(a.home, name)); err != nil || missing != nil {
					t.Fatalf("%v %v\n%s\n%s", err, missing, out(), b.Logs())
				}
			}
			reached("up")
			aims := []string{"path " + other + "/file", "path /proc/1/cmdline", "path /sys/kernel/notes", "path /dev/null", "path " + state,
				fmt.Sprint("port ", ports[1]), fmt.Sprint("open ", ports[0])}
			qemus := qemusOf(id)
			for _, p := range qemus {
				jailed(t, p, a.uid)
				aims = append(aims, "path "+p+"/environ")
			}
			if len(qemus) == 0 {
				t.Errorf("no QEMU is in the job's cgroup of memory: %v", cgroupsOf(id))
			}
			for _, aim := range aims {
				if path, ok := strings.CutPrefix(aim, "path "); ok {
					if _, err := os.Lstat(path); err != nil {
						t.Fatalf("the attack aims at nothing: %v", err)
					}
				}
			}
			write("aims.new", strings.Join(aims, "\n")+"\n")
			if err := os.Rename(a.home+"/aims.new", a.home+"/aims"); err != nil {
				t.Fatal(err)
			}
			reached("done")
			if text := out(); strings.Contains(text, "reached") || !strings.Contains(text, "connected\n") || !strings.HasSuffix(text, "mine\n") {
				t.Errorf("%s\n%s", text, b.Logs())
			}
			const limit = 1000 << 20
			for _, name := range []string{"memory.limit_in_bytes", "memory.max_usage_in_bytes"} {
				var n int
				list, _ := filepath.Glob("/sys/fs/cgroup/memory/slurm*/uid_*/job_" + id + "/" + name)
				if len(list) == 1 {
					text, _ := os.ReadFile(list[0])
					fmt.Sscan(string(text), &n)
				}
				if n == 0 || n > limit || name == "memory.limit_in_bytes" && n != limit {
					t.Errorf("%s of the job: %d", name, n)
				}
			}
			write("go-on", "")
			if err := bed.Await("the end of the job", func() bool { return gone(b, id) }); err != nil {
				t.Errorf("%v: left are %v\n%s\n%s", err, cgroupsOf(id), leftoversOf(id), b.Logs())
			}
			if err := b.AwaitIdle(); err != nil {
				t.Error(err)
			}
		})
	}
	closed.(*net.TCPListener).SetDeadline(time.Now().Add(time.Millisecond))
	if c, err := closed.Accept(); err == nil {
		c.Close()
		t.Error("a service on the host's loopback was reached")
	}
	// VMs that the job's memory does not hold do not boot.
	cmd := a.command(t, "srun", "-n1", "--mem=1000", "--vm=big.yaml", "true")
	cmd.Env = b.Environ(a.name, a.home)
	if r := finish(t, cmd, ""); r.code == 0 || !strings.Contains(r.err, "of memory on n1 do not hold its VMs") {
		t.Errorf("%+v", r)
	}
	if err := b.AwaitIdle(); err != nil {
		t.Error(err)
	}
}

// qemusOf are the folders in /proc of the QEMUs in a job's cgroup of memory.
func qemusOf(job string) (list []string) {
	filepath.WalkDir("/sys/fs/cgroup/memory", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "cgroup.procs" || !strings.Contains(path, "/job_"+job+"/") {
			return nil
		}
		text, _ := os.ReadFile(path)
		for _, pid := range strings.Fields(string(text)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/comm"); strings.HasPrefix(string(name), "qemu-system") {
				list = append(list, "/proc/"+pid)
			}
		}
		return nil
	})
	return list
}

// jailed checks that a QEMU, a folder in /proc, is in namespaces of its own, without rights, under the filter of system
// calls, and sees no file of the host's but what it needs.
func jailed(t *testing.T, qemu string, uid int) {
	t.Helper()
	for _, ns := range []string{"mnt", "pid", "ipc", "net"} {
		ours, err1 := os.Readlink("/proc/self/ns/" + ns)
		its, err2 := os.Readlink(qemu + "/ns/" + ns)
		cmdline, _ := os.ReadFile(qemu + "/cmdline")
		// The one of the user network is in the host's network.
		if err := errors.Join(err1, err2); err != nil || ours == its && !(ns == "net" && !strings.Contains(string(cmdline), "-kernel")) {
			t.Errorf("%s is in our namespace %s (%v)", qemu, its, err)
		}
	}
	status, err := os.ReadFile(qemu + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", fmt.Sprintf("Uid:\t%d\t", uid)} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%q is not in %s", want, status)
		}
	}
	for _, path := range []string{"/etc/passwd", "/home", "/root", "/run", "/tmp", "/bin/sh"} {
		if _, err := os.Lstat(qemu + "/root" + path); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("%s sees %s: %v", qemu, path, err)
		}
	}
}
