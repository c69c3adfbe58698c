package launch

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The lab uses two network namespaces instead of two VMs, connected like VMs: eth0 between them, and eth1 a tap on
// the user network of a QEMU without a machine, with the same address in both. The launchers, the daemons, the remote
// shell's code and the route back are the real ones. The "host" is also a namespace, so that the test controls its
// addresses and its name server. All processes die with the test, which is process 1 of a PID namespace.

const labMark = "NEARMETAL_TEST_LAB"

var labUplink = netip.MustParsePrefix("10.0.2.2/24")

// TestMain also acts as the remote shell of the lab.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == AgentName {
		fmt.Fprintln(os.Stderr, "lab:", labAgent())
		os.Exit(255)
	}
	os.Exit(m.Run())
}

// labAgent runs a command in the namespaces of a VM. The lab's directory has the PID of the VM's process under its
// name and its address.
func labAgent() error {
	host, words, err := RshArgs(os.Args[1:])
	if err != nil {
		return err
	}
	dir := filepath.Dir(os.Args[0])
	pid, err := os.ReadFile(filepath.Join(dir, "hosts", host))
	if err != nil {
		return err
	}
	// As in nearmetal, only a launcher on the host is called back over the uplink.
	if os.Getenv("NEARMETAL_CLUSTER") != "" {
		words = CallBack(words, labUplink, "eth0")
	}
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	environ := os.Environ()
	if Ours(environ) == nil { // as in nearmetal
		vars, err := Env(labSetup(dir, OnHost), environ)
		if err != nil {
			return err
		}
		environ = append(environ, vars...)
	}
	argv := append([]string{"nsenter", "-t", string(pid), "-n", "-u", "-i", "-m", "--wd=" + cwd, "--"}, RshCommand(words, "/bin/bash")...)
	return syscall.Exec(nsenter, argv, AgentEnv(environ))
}

// lab runs body in a lab: it re-executes the test in namespaces of its own.
func lab(t *testing.T, body func(t *testing.T, l *theLab)) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs MPI libraries")
	}
	for _, p := range []string{"ip", "nsenter", "mount", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(p); err != nil {
			need(t, "the lab needs %s", p)
		}
	}
	if os.Getenv(labMark) != "" {
		body(t, newLab(t))
		return
	}
	args := []string{"-test.run=" + flag.Lookup("test.run").Value.String(), "-test.v", "-test.timeout=10m"}
	if t.Name() != strings.Trim(strings.Split(flag.Lookup("test.run").Value.String(), "/")[0], "^$") {
		args[0] = "-test.run=^" + t.Name() + "$"
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), labMark+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	// Pdeathsig is sent when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		need(t, "no namespaces: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fail()
	}
}

// need skips a test that cannot run here; in CI it fails the test.
func need(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

type theLab struct {
	dir   string // contains agent, host files, hosts/NAME
	pids  []int  // PIDs of the VMs' first processes
	hosts []Host

	mu      sync.Mutex
	queries []string // names that the host's name server received
}

func newLab(t *testing.T) *theLab {
	l := &theLab{dir: t.TempDir()}
	sh(t, "mount --make-rprivate / && mount -t proc proc /proc && hostname labhost && ip link set lo up")
	sh(t, "printf '127.0.0.1 localhost labhost\n' > %[1]s/etc-hosts && mount --bind %[1]s/etc-hosts /etc/hosts", l.dir)
	sh(t, "printf 'nameserver 127.0.0.1\n' > %[1]s/resolv && mount --bind %[1]s/resolv /etc/resolv.conf", l.dir)
	l.nameServer(t)

	if err := os.Mkdir(filepath.Join(l.dir, "hosts"), 0o755); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		name := fmt.Sprintf("vm%d", i)
		ip := netip.AddrFrom4([4]byte{10, 77, 0, byte(i + 1)})
		pid := l.vm(t, name, i)
		for _, n := range []string{name, ip.String()} {
			if err := os.WriteFile(filepath.Join(l.dir, "hosts", n), fmt.Appendf(nil, "%d", pid), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		l.pids = append(l.pids, pid)
		l.hosts = append(l.hosts, Host{Name: name, IP: ip, Slots: 2})
	}
	// The VMs' network.
	sh(t, "ip link add eth0 netns %d type veth peer name eth0 netns %d", l.pids[0], l.pids[1])
	for i, pid := range l.pids {
		sh(t, "nsenter -t %[1]d -n sh -c 'ip link set lo up; ip addr add 10.77.0.%[2]d/16 dev eth0; ip link set eth0 up'", pid, i+1)
		l.uplink(t, pid)
	}
	// The kernel notices up to a second late that the link is up, and UCX uses no interface before that.
	for _, pid := range l.pids {
		sh(t, "nsenter -t %d -n timeout 60 sh -c 'until ip link show eth0 | grep -q \"state UP\"; do sleep 0.02; done'", pid)
	}
	if _, err := Link(l.dir, "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	// In the launcher /proc/self/exe would be the launcher, so the agent is a link to the file itself.
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Link(l.dir, exe); err != nil {
		t.Fatal(err)
	}
	return l
}

// vm starts the first process of a "VM" and returns its PID.
func (l *theLab) vm(t *testing.T, name string, i int) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// The VM has its own /dev/shm, /tmp and boot ID: libraries distinguish machines by them, or would share them on
	// one machine.
	script := fmt.Sprintf(`set -e
hostname %[2]s
printf '127.0.0.1 localhost\n10.77.0.1 vm0\n10.77.0.2 vm1\n10.0.2.2 labhost\n' > %[1]s/%[2]s.hosts
mount --bind %[1]s/%[2]s.hosts /etc/hosts
: > %[1]s/empty; mount --bind %[1]s/empty /etc/resolv.conf
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
printf '00000000-0000-4000-8000-%%012d\n' %[3]d > %[1]s/%[2]s.boot
mount --bind %[1]s/%[2]s.boot /proc/sys/kernel/random/boot_id
echo ready >&3
exec 3>&-
exec sleep infinity`, l.dir, name, i)
	cmd := exec.Command("sh", "-c", script)
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if n, err := r.Read(make([]byte, 16)); n == 0 {
		t.Fatalf("%s did not come up: %v", name, err)
	}
	return cmd.Process.Pid
}

// uplink adds to a VM an eth1 on the user network of a QEMU without a machine, which runs in the host's namespace.
func (l *theLab) uplink(t *testing.T, pid int) {
	t.Helper()
	tap := make(chan *os.File)
	go func() {
		// The thread stays locked: it remains in the VM's namespace until it ends.
		runtime.LockOSThread()
		tap <- openTap(t, pid)
	}()
	f := <-tap
	if f == nil {
		t.FailNow()
	}
	defer f.Close()
	qemu := exec.Command("qemu-system-x86_64", "-M", "none", "-display", "none", "-nodefaults", "-no-user-config",
		"-netdev", "user,id=u,ipv6=off", "-netdev", "tap,id=t,fd=3",
		"-netdev", "hubport,id=hu,hubid=0,netdev=u", "-netdev", "hubport,id=ht,hubid=0,netdev=t")
	qemu.ExtraFiles = []*os.File{f}
	qemu.Stderr = os.Stderr
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	sh(t, "nsenter -t %d -n sh -c 'ip addr add 10.0.2.15/24 dev eth1; ip link set eth1 up; ip route add default via 10.0.2.2'", pid)
}

// openTap creates eth1 in the network namespace of process pid.
func openTap(t *testing.T, pid int) *os.File {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		t.Error(err)
		return nil
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Errorf("/dev/net/tun: %v", err)
		return nil
	}
	// struct ifreq: the name, then the flags.
	var req [40]byte
	copy(req[:15], "eth1")
	*(*uint16)(unsafe.Pointer(&req[16])) = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req[0]))); e != 0 {
		t.Errorf("TUNSETIFF: %v", e)
		return nil
	}
	return os.NewFile(uintptr(fd), "tap")
}

// nameServer answers every query on 127.0.0.1 with "no such name" and records it.
func (l *theLab) nameServer(t *testing.T) {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if n < 13 {
				continue
			}
			// The first question's name is a list of labels, each preceded by its length (RFC 1035, 4.1.2).
			var name []string
			for p := 12; p < n && buf[p] != 0 && p+1+int(buf[p]) <= n; p += 1 + int(buf[p]) {
				name = append(name, string(buf[p+1:p+1+int(buf[p])]))
			}
			l.mu.Lock()
			l.queries = append(l.queries, strings.Join(name, "."))
			l.mu.Unlock()
			buf[2], buf[3] = 0x81, 0x83 // a response, NXDOMAIN
			c.WriteTo(buf[:n], from)
		}
	}()
}

// asked returns the names that were queried since the last call.
func (l *theLab) asked() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queries
	l.queries = nil
	return q
}

// labSetup returns the Setup of the lab in dir.
func labSetup(dir string, side Side) Setup {
	return Setup{
		Side: side, Cluster: "lab", Agent: filepath.Join(dir, AgentName), Root: true, Interface: "eth0",
		OpenMPIHosts: filepath.Join(dir, "hosts.openmpi"), MPICHHosts: filepath.Join(dir, "hosts.mpich"),
		Subnet: netip.MustParsePrefix("10.77.0.0/16"),
	}
}

// run runs argv on the given side, with Env and the further variables, and returns its output and exit status.
func (l *theLab) run(t *testing.T, side Side, further []string, argv ...string) (string, int) {
	t.Helper()
	out, status, ended := l.within(t, 4*time.Minute, side, further, argv...)
	if !ended {
		t.Errorf("%s did not end", strings.Join(argv, " "))
	}
	return out, status
}

// within does the same as run, and reports whether the command ended within the bound.
func (l *theLab) within(t *testing.T, bound time.Duration, side Side, further []string, argv ...string) (string, int, bool) {
	t.Helper()
	s := labSetup(l.dir, side)
	l.write(t, "hosts.openmpi", Hostfile, "openmpi")
	if side == OnHost {
		l.write(t, "hosts.mpich", AddressHostfile, "mpich")
	} else {
		l.write(t, "hosts.mpich", Hostfile, "mpich")
		argv = append([]string{"nsenter", "-t", fmt.Sprint(l.pids[0]), "-n", "-u", "-i", "-m", "--"}, argv...)
	}
	environ := append(os.Environ(), further...)
	vars, err := Env(s, environ)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(environ, vars...)
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode(), ctx.Err() == nil
}

func (l *theLab) write(t *testing.T, name string, format func([]Host, string) (string, error), kind string) {
	t.Helper()
	text, err := format(l.hosts, kind)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func sh(t *testing.T, format string, args ...any) {
	t.Helper()
	script := fmt.Sprintf(format, args...)
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
