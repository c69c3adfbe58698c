package qemu

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// bootTimeout bounds a boot on a busy machine; on an idle one it takes 2 s.
const bootTimeout = 120 * time.Second

// needs skips a test outside of CI, and fails it there, when what it needs is not on the machine.
func needs(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func testCaps(t *testing.T) Caps {
	t.Helper()
	path, err := Find("")
	needs(t, err)
	caps, err := Probe(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	return caps
}

// testImage is this machine's kernel with testdata/init.c as /init.
func testImage(t *testing.T) *image.Image {
	t.Helper()
	k, err := image.FindKernel("")
	needs(t, err)
	cc, err := exec.LookPath("gcc")
	needs(t, err)
	prog := filepath.Join(t.TempDir(), "init")
	if out, err := exec.Command(cc, "-O1", "-static", "-o", prog, "testdata/init.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	agent, err := os.ReadFile(prog)
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Open(image.Request{Kernel: k, Agent: agent, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return img
}

// rig starts VMs of one image.
type rig struct {
	t    *testing.T
	caps Caps
	img  *image.Image
	set  Settings
}

func newRig(t *testing.T) *rig {
	t.Helper()
	caps, img := testCaps(t), testImage(t)
	khz, _ := host.TSCKHz()
	return &rig{t, caps, img, Settings{Accel: host.TCG, TSCKHz: khz, PVH: img.PVH()}}
}

func onePlan() plan.VM {
	return plan.VM{Name: "vm0", VCPUs: 1, Sockets: 1, Dies: 1, Cores: 1, Threads: 1, MemoryBytes: 256 * mib}
}

// start boots a VM and gives it with our end of its channel.
func (r *rig) start(vm plan.VM, f Files, o Options) (*VM, net.Conn) {
	r.t.Helper()
	m, err := Build(vm, r.set, r.caps)
	if err != nil {
		r.t.Fatal(err)
	}
	ours, theirs, err := socketPair("channel")
	if err != nil {
		r.t.Fatal(err)
	}
	initrd, err := r.img.WithConfig([]byte("name " + vm.Name + "\n"))
	if err != nil {
		r.t.Fatal(err)
	}
	f.Kernel, f.Initrd, f.Channel = r.img.KernelFile(), initrd, theirs
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	v, err := Start(ctx, m, f, o)
	initrd.Close()
	theirs.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { v.Kill(); ours.Close() })
	return v, ours
}

// await waits for a line on the console.
func await(t *testing.T, v *VM, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if err := v.AwaitConsole(ctx, text); err != nil {
		t.Fatalf("%v\n%s", err, strings.Join(v.LastLines(30), "\n"))
	}
}

// line gives what the test's init said after a mark.
func line(v *VM, mark string) string {
	for _, l := range v.LastLines(500) {
		if _, after, ok := strings.Cut(l, "TEST "+mark+" "); ok {
			return after
		}
	}
	return ""
}

func TestBoot(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	shared := filepath.Join(dir, "a,b") // a comma, which QEMU's options are separated by
	os.Mkdir(shared, 0o755)
	os.WriteFile(filepath.Join(shared, "hello"), []byte("over 9p\n"), 0o644)
	r.set.Exports = []Export{{Tag: "root", Path: shared, ReadOnly: true}}
	r.set.Links = []Link{{Kind: LinkUser, MAC: "52:54:00:00:00:01"}}
	log := filepath.Join(dir, "console.log")
	v, port := r.start(onePlan(), Files{}, Options{ConsoleLog: log})
	await(t, v, "TEST ready")
	t.Logf("init after %s s, ready after %s s, %v after the start", line(v, "init"), line(v, "ready"), time.Since(v.Started()))
	for mark, want := range map[string]string{
		"config":   "name vm0",
		"online":   "0",
		"possible": "0-1",
		"shared":   "over 9p",
		"net eth0": "TEST  52:54:00:00:00:01",
	} {
		if got := line(v, mark); got != want {
			t.Errorf("%s: %q, want %q", mark, got, want)
		}
	}
	if strings.Contains(strings.Join(v.LastLines(500), "\n"), "TEST module") {
		t.Errorf("a module did not load:\n%s", strings.Join(v.LastLines(500), "\n"))
	}
	echo(t, port)
	use, err := MemoryUse(v.PID(), []uint64{256 * mib}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guest %d MiB, rest %d MiB", use.GuestBytes/mib, use.RestBytes/mib)
	if use.GuestBytes < 20*mib || use.GuestBytes > 257*mib || use.RestBytes > 120*mib {
		t.Errorf("memory: %+v", use)
	}
	checkConfined(t, v)
	if cpus, err := v.QMP().VCPUs(context.Background()); err != nil || len(cpus) != 1 || cpus[0].Thread == 0 {
		t.Errorf("vCPUs: %v, %v", cpus, err)
	}
	if _, err := port.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, v)
	if v.Err() != nil {
		t.Errorf("a power-off is an error: %v", v.Err())
	}
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "TEST ready") {
		t.Errorf("console log: %d bytes, %v", len(b), err)
	}
}

// echo sends a byte to the VM and waits for it to come back.
func echo(t *testing.T, port net.Conn) {
	t.Helper()
	b := []byte("x")
	if _, err := port.Write(b); err != nil {
		t.Fatal(err)
	}
	port.SetReadDeadline(time.Now().Add(bootTimeout))
	b[0] = 0
	if _, err := port.Read(b); err != nil || b[0] != 'x' {
		t.Fatalf("echo over the channel: %q, %v", b, err)
	}
}

func awaitEnd(t *testing.T, v *VM) {
	t.Helper()
	select {
	case <-v.Done():
	case <-time.After(bootTimeout):
		t.Fatal("the VM did not end")
	}
}

// checkConfined looks at the process: its own group, no file but its own, the seccomp filter on.
func checkConfined(t *testing.T, v *VM) {
	t.Helper()
	if pgid, err := syscall.Getpgid(v.PID()); err != nil || pgid != v.PID() {
		t.Errorf("process group %d, %v", pgid, err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(v.PID()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	if r := testCaps(t); r.Sandbox && !strings.Contains(string(status), "Seccomp:\t2") {
		t.Error("no seccomp filter")
	}
	dir := "/proc/" + strconv.Itoa(v.PID()) + "/fd"
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		to, _ := os.Readlink(filepath.Join(dir, e.Name()))
		if to == canaryPath {
			t.Errorf("a file of ours leaked: descriptor %s is %s", e.Name(), to)
		}
	}
}

const canaryPath = "/etc/passwd"

// TestMain leaves a file open that is not close-on-exec, as a careless parent process may: QEMU must not get it.
func TestMain(m *testing.M) {
	if _, err := syscall.Open(canaryPath, syscall.O_RDONLY, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestPanic has the VM's kernel panic: the VM ends, and says so.
func TestPanic(t *testing.T) {
	r := newRig(t)
	v, port := r.start(onePlan(), Files{}, Options{})
	await(t, v, "TEST ready")
	port.Write([]byte("p"))
	awaitEnd(t, v)
	if !errors.Is(v.Err(), ErrReset) {
		t.Errorf("error: %v", v.Err())
	}
	if !strings.Contains(strings.Join(v.LastLines(100), "\n"), "Kernel panic") {
		t.Errorf("the console does not show it:\n%s", strings.Join(v.LastLines(10), "\n"))
	}
}
