package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// lab boots real VMs whose /init is the agent.
type lab struct {
	t    *testing.T
	caps qemu.Caps
	img  *image.Image
}

// needs skips a test outside of CI, and fails it in CI, if a requirement is missing on the machine.
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

// initProgram returns the agent as a guest's init, which is compiled once. NEARMETAL_TEST_INIT names another one.
var initProgram = sync.OnceValues(func() ([]byte, error) {
	prog := os.Getenv("NEARMETAL_TEST_INIT")
	if prog == "" {
		dir, err := os.MkdirTemp("", "nearmetal-init-test")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		prog = filepath.Join(dir, "init")
		src, _ := filepath.Glob("../../guest/*.c")
		args := append([]string{"-std=c11", "-D_GNU_SOURCE", "-Os", "-static", "-s", "-o", prog}, src...)
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("gcc: %w\n%s", err, out)
		}
	}
	return os.ReadFile(prog)
})

// newLab returns a lab of VMs whose kernel has additional modules.
func newLab(t *testing.T, modules ...string) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("short: boots a VM")
	}
	path, err := qemu.Find("")
	needs(t, err)
	caps, err := qemu.Probe(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	k, err := image.FindKernel("")
	needs(t, err)
	agent, err := initProgram()
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Open(image.Request{Kernel: k, Agent: agent, Modules: modules, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { img.Close() })
	return &lab{t, caps, img}
}

type labVM struct {
	*qemu.VM
	*Agent
}

// start boots a VM; the error is NewAgent's.
func (l *lab) start(c *Config, set backend.Settings, f qemu.Files) (*labVM, error) {
	l.t.Helper()
	khz, _ := host.TSCKHz()
	set.Accel, set.TSCKHz, set.PVH = host.TCG, khz, l.img.PVH()
	m, err := qemu.Build(plan.VM{Name: c.Name, VCPUs: 1, Sockets: 1, Dies: 1, Cores: 1, Threads: 1, MemoryBytes: 512 << 20}, set, l.caps)
	if err != nil {
		l.t.Fatal(err)
	}
	text, err := c.Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		l.t.Fatal(err)
	}
	if f.Initrd, err = l.img.WithConfig(text); err != nil {
		l.t.Fatal(err)
	}
	f.Kernel, f.Channel = l.img.KernelFile(), far
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	v, err := qemu.Start(ctx, m, f, qemu.Options{})
	f.Initrd.Close()
	far.Close()
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(v.Kill)
	a, err := NewAgent(ctx, conn, AgentOptions{Name: c.Name, Explain: func() string {
		<-v.Done()
		return strings.Join(v.LastLines(5), "\n")
	}})
	if err != nil {
		return nil, err
	}
	l.t.Cleanup(func() { a.Close() })
	l.t.Logf("QEMU start to HELLO %v; in the VM: %v", time.Since(v.Started()), a.Info.Phases)
	return &labVM{v, a}, nil
}

func shell(script string) Exec {
	e := me("/bin/sh", "-c", script)
	e.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "TERM=xterm"}
	e.Dir = "/"
	return e
}

func TestVM(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	share := filepath.Join(dir, "a share")
	os.Mkdir(share, 0o755)
	os.WriteFile(filepath.Join(share, "from host"), []byte("over 9p\n"), 0o644)
	mem, err := os.OpenFile("/dev/shm", unix.O_TMPFILE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	mem.Truncate(1 << 20)
	mem.WriteAt([]byte("in the region"), 0)
	name, _ := os.Hostname()
	c := &Config{
		Name: "vm0", Root: Mount{Tag: "root"},
		Shares: []Mount{{Tag: "s0", Target: share}, {Tag: "s1", Target: "/mnt/new place", ReadOnly: true}},
		Links: []Link{{Name: "eth0", MAC: "52:54:00:00:00:09", Address: netip.MustParsePrefix("10.0.2.15/24"),
			MTU: 9000, Gateway: netip.MustParseAddr("10.0.2.2")}},
		Hosts: []HostEntry{{netip.MustParseAddr("10.77.0.1"), []string{"vm0", "vm0.cluster"}},
			{netip.MustParseAddr("10.0.2.2"), []string{"nearmetal-host"}}},
		HostName: strings.Split(name, ".")[0],
		Region:   &ConfigRegion{Kind: "ivshmem", Size: 1 << 20, UID: 1234, GID: 1234},
		Peers:    []string{"vm0"},
	}
	set := backend.Settings{
		Exports: []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}, {Tag: "s0", Path: share},
			{Tag: "s1", Path: share, ReadOnly: true}},
		Links:  []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:00:00:09", MTU: 9000}},
		Region: &plan.Region{SizeBytes: 1 << 20, Backing: "shm", Device: "ivshmem", HostNode: -1},
	}
	vm, err := l.start(c, set, qemu.Files{Files: backend.Files{Region: mem}})
	if err != nil {
		t.Fatal(err)
	}
	var last time.Duration
	if want := string(host.TCG); vm.Info.Hypervisor != want {
		t.Errorf("the CPU names %q, and runs by %s", vm.Info.Hypervisor, want)
	}
	for _, p := range vm.Info.Phases {
		if p.At < last {
			t.Errorf("phase %s before the one it follows", p.Name)
		}
		last = p.At
	}
	for _, x := range []struct{ name, script, want string }{
		{"host name", "hostname", "vm0\n"},
		{"root", "stat -f -c %T /; readlink -f /bin/sh", "overlayfs\n/usr/bin/dash\n"},
		{"hosts", "grep -c . /etc/hosts >/dev/null; getent ahostsv4 vm0.cluster | head -1; getent ahostsv4 nearmetal-host | head -1",
			"10.77.0.1       STREAM vm0\n10.0.2.2        STREAM nearmetal-host\n"},
		// The kernel updates a link's state up to a second after it is up (linkwatch).
		{"network", "i=0; until [ $(cat /sys/class/net/eth0/operstate) = up ] || [ $((i+=1)) -gt 100 ]; do sleep 0.1; done; ip -br -4 addr | tr -s ' '; cat /sys/class/net/eth0/mtu; ip route",
			"lo UNKNOWN 127.0.0.1/8 \neth0 UP 10.0.2.15/24 \n9000\ndefault via 10.0.2.2 dev eth0 \n10.0.2.0/24 dev eth0 proto kernel scope link src 10.0.2.15 \n"},
		{"shares", "cat '" + share + "/from host' '/mnt/new place/from host'; echo back >'" + share + "/from vm' && touch '/mnt/new place/x' 2>&1",
			"over 9p\nover 9p\ntouch: cannot touch '/mnt/new place/x': Read-only file system\n"},
		{"overlay", "echo x >/etc/nearmetal-test && cat /etc/nearmetal-test", "x\n"},
		{"own mounts", "for d in /dev/shm /run /dev/pts; do stat -c '%n %a' $d; stat -f -c %T $d; done",
			"/dev/shm 1777\ntmpfs\n/run 755\ntmpfs\n/dev/pts 755\ndevpts\n"},
		{"limits", "ulimit -l; ulimit -c; ulimit -n; ulimit -Hn", "unlimited\n0\n1024\n1048576\n"},
		{"descriptors", "ls /dev/fd/ | wc -l; echo x | cat /dev/stdin", "4\nx\n"},
		{"region", "stat -L -c '%a %u %g %s' /dev/nearmetal/region; cat /run/nearmetal/region; python3 -c '\n" +
			"import mmap,os\nos.setresgid(1234,1234,1234)\nos.setresuid(1234,1234,1234)\n" +
			"m=mmap.mmap(os.open(\"/dev/nearmetal/region\",os.O_RDWR),1<<20)\nprint(m[:13])\nm[0:2]=b\"IN\"'",
			"600 1234 1234 1048576\nkind ivshmem\nsize 1048576\npath /dev/nearmetal/region\nb'in the region'\n"},
		{"modules of the host", "modprobe dummy && ls -d /sys/module/dummy", "/sys/module/dummy\n"},
		{"init", "cat /proc/1/comm; test -x /run/nearmetal/bin/nearmetal-rsh && /run/nearmetal/bin/nearmetal-rsh vm1 true; echo $?",
			"init\n255\n"},
	} {
		out, er, st := run(t, vm.Agent.Client, shell(x.script), "")
		if out != x.want {
			t.Errorf("%s: got %q (%q, %v), want %q", x.name, out, er, st, x.want)
		}
	}
	b := make([]byte, 2)
	if mem.ReadAt(b, 0); string(b) != "IN" {
		t.Errorf("the region on the host: %q", b)
	}
	if b, err := os.ReadFile(filepath.Join(share, "from vm")); string(b) != "back\n" {
		t.Errorf("the share on the host: %q, %v", b, err)
	}
	if _, err := os.Stat("/etc/nearmetal-test"); err == nil {
		t.Error("the overlay let a write through to the host")
	}
	t.Run("terminal", func(t *testing.T) {
		e := shell("tty; stty size; echo $-")
		e.TTY, e.Rows, e.Cols = true, 33, 99
		if out, _, _ := run(t, vm.Agent.Client, e, ""); !strings.HasPrefix(out, "/dev/pts/0\r\n33 99\r\n") {
			t.Errorf("%q", out)
		}
	})
	t.Run("daemon dies with its client", func(t *testing.T) {
		// A process that left the session, and whose parent has ended: only its cgroup identifies it.
		p, err := vm.Start(shell("setsid setsid sh -c 'trap \"\" HUP TERM; echo $$; sleep 1000' & sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 16)
		n, err := p.Stdout.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		e := shell(fmt.Sprintf("tail --pid=%s -f /dev/null; echo gone", strings.TrimSpace(string(b[:n]))))
		if out, _, _ := run(t, vm.Agent.Client, e, ""); out != "gone\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("daemon outlives its client's end", func(t *testing.T) {
		out, _, _ := run(t, vm.Agent.Client, shell("setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"), "")
		if out, _, _ = run(t, vm.Agent.Client, shell("cat /proc/"+strings.TrimSpace(out)+"/comm"), ""); out != "sleep\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("volume", func(t *testing.T) { volume(t, vm, 16<<20) })
	if err := vm.Poweroff(context.Background()); err != nil {
		t.Error(err)
	}
	<-vm.VM.Done()
	if err := vm.VM.Err(); err != nil {
		t.Error(err)
	}
}

// volume sends size bytes through cat and back.
func volume(t *testing.T, vm *labVM, size int) {
	p, err := vm.Start(shell("exec cat"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	start := time.Now()
	want, got := sha256.New(), sha256.New()
	go func() {
		block := make([]byte, 1<<20)
		for n := 0; n < size; n += len(block) {
			block[n>>20&0xfffff]++
			want.Write(block)
			if _, err := p.Stdin.Write(block); err != nil {
				return
			}
		}
		p.Stdin.Close()
	}()
	n, err := io.Copy(got, p.Stdout)
	if err != nil || n != int64(size) || !bytes.Equal(want.Sum(nil), got.Sum(nil)) {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	if st, err := p.Wait(); st != (Status{}) || err != nil {
		t.Error(st, err)
	}
	t.Logf("%d MiB there and back: %.1f MB/s", size>>20, float64(size)/1e6/time.Since(start).Seconds())
}

func TestVMThatCannotBoot(t *testing.T) {
	l := newLab(t)
	_, err := l.start(&Config{Name: "vm5", Root: Mount{Tag: "missing"}}, backend.Settings{}, qemu.Files{})
	if err == nil || !strings.HasPrefix(err.Error(), "vm5: the channel failed: cannot mount the root (9p tag missing): the VM has no such device\n") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(fmt.Sprint(err), "nearmetal-agent: cannot mount the root") {
		t.Errorf("the console's last lines are missing in %v", err)
	}
}

// TestDeviceRefusesMTU: a device that does not support the cluster file's MTU prevents the VM from booting, and the
// reason has the driver's error.
func TestDeviceRefusesMTU(t *testing.T) {
	l := newLab(t, "e1000")
	// The driver of QEMU's e1000 supports at most 16110.
	e1000 := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(e1000, []byte("#!/bin/sh\nexec "+l.caps.Path+" \"$@\" -device e1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.caps.Path = e1000
	_, err := l.start(&Config{Name: "vm0", Root: Mount{Tag: "root"}, Functions: []Function{{Vendor: 0x8086, Device: 0x100e, Net: true, MTU: 20000}}},
		backend.Settings{Exports: []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}}}, qemu.Files{})
	const want = "vm0: the channel failed: eth0: network.deviceMTU 20000: Invalid argument; the card's physical function and its switch port have to have it too\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// TestVMLosesItsHost closes the host's end of the channel: the VM powers off.
func TestVMLosesItsHost(t *testing.T) {
	l := newLab(t)
	vm, err := l.start(&Config{Name: "vm0", Root: Mount{Tag: "root"}},
		backend.Settings{Exports: []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}}}, qemu.Files{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vm.Start(shell("exec sleep 1000")); err != nil {
		t.Fatal(err)
	}
	vm.Agent.Close()
	<-vm.VM.Done()
	if err := vm.VM.Err(); err != nil {
		t.Error(err)
	}
}
