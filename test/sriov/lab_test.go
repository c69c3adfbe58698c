// Package sriov runs nearmetal's device commands against a real kernel with an IOMMU and an
// SR-IOV card: on an outer VM that QEMU emulates whole, IOMMU and card (igb) included. With
// NEARMETAL_SRIOV=1 (`make test-sriov`) an inner VM gets a VF by nested KVM, which TCG
// emulates too; without, as in `make test`, both VFs are used on the outer host.
package sriov

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/image"
)

// Bounds of single steps: several times what a busy machine was seen to take.
const (
	bootTimeout = 2 * time.Minute
	stepTimeout = 90 * time.Second
	innerVM     = 4 * time.Minute
)

// lab is the outer host.
type lab struct {
	t     *testing.T
	agent *guest.Agent
	qemu  *exec.Cmd
	done  chan struct{} // closed when QEMU has ended
	log   string        // of its console
	began time.Time
}

// missing ends a test that needs something which is not here: in CI it fails.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("this test needs ", what)
	}
	t.Skip("this test needs ", what)
}

// onDemand is for the test with an inner VM.
func onDemand(t *testing.T) {
	t.Helper()
	if os.Getenv("NEARMETAL_SRIOV") == "" {
		t.Skip("on demand (a VM in an emulated host): make test-sriov runs it")
	}
}

// nearmetal is the program under test, at the same path in the lab as here.
func nearmetal(t *testing.T) string {
	t.Helper()
	p, err := filepath.Abs("../../build/nearmetal")
	if err == nil {
		_, err = os.Stat(p)
	}
	if err != nil {
		t.Fatal("no build/nearmetal: run make first")
	}
	return p
}

// qemu10 returns a QEMU with igb.
func qemu10(t *testing.T) (path string, args []string) {
	t.Helper()
	out, err := exec.Command("sh", "../../scripts/qemu10.sh", "../../build/qemu10").Output()
	if err != nil {
		missing(t, "a QEMU with -device igb (scripts/qemu10.sh)")
	}
	path, err = filepath.Abs(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	if share := filepath.Join(filepath.Dir(path), "../share"); strings.Contains(path, "/build/") {
		args = []string{"-L", share + "/qemu", "-L", share + "/seabios"}
	}
	return path, args
}

// stuck is thrown by sh and refused when a step does not end within its bound.
type stuck struct{ error }

// fresh runs a test on an outer host, and once more on another one when the first does not come
// up or a step never ends: about one in seven emulated hosts has timers that misbehave. What a
// step says is judged the first time.
func fresh(t *testing.T, test func(l *lab, state string)) {
	t.Helper()
	once := func() (err error) {
		state := t.TempDir()
		l, err := tryBoot(t, state)
		if err != nil {
			return err
		}
		defer l.kill()
		defer func() {
			switch r := recover().(type) {
			case nil:
			case stuck:
				err = r
			default:
				panic(r)
			}
		}()
		test(l, state)
		return nil
	}
	err := once()
	if err != nil {
		t.Logf("again, from a fresh outer host: %v", err)
		err = once()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// tryBoot starts an outer host whose /var/lib/nearmetal is the directory state, which outlives it.
func tryBoot(t *testing.T, state string) (*lab, error) {
	t.Helper()
	l := &lab{t: t, began: time.Now(), done: make(chan struct{}), log: filepath.Join(t.TempDir(), "console")}
	k, err := image.FindKernel("")
	if err != nil {
		missing(t, err.Error())
	}
	img, err := image.Open(image.Request{Kernel: k, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	cfg := &guest.Config{Name: "outer", Root: guest.Mount{Tag: "root"},
		Shares: []guest.Mount{{Tag: "state", Target: "/var/lib/nearmetal"}}}
	text, err := cfg.Encode()
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := img.WithConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	defer initrd.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")

	conn, err := net.FileConn(near)
	near.Close()
	if err != nil {
		t.Fatal(err)
	}
	path, args := qemu10(t)
	l.qemu = exec.Command(path, append(args,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "file:"+l.log,
		// The host: two nodes, an IOMMU that remaps interrupts, AMD's SVM (TCG emulates it).
		"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,-erms,-fsrm",
		// Memory below 2.75 GiB: with more, q35 has some of it above 4 GiB, the firmware puts the
		// root port's prefetchable window there, and QEMU 10.0 maps the VFs' BARs by the lower 32 bits of
		// their address only: igbvf then reads no register ("PF still in reset state").
		"-smp", "4", "-m", "2560M", "-device", "intel-iommu,intremap=on",
		"-object", "memory-backend-ram,id=m0,size=1280M", "-object", "memory-backend-ram,id=m1,size=1280M",
		"-numa", "node,cpus=0-1,memdev=m0", "-numa", "node,cpus=2-3,memdev=m1",
		// The card, on the second node.
		"-device", "pxb-pcie,id=pxb1,bus_nr=64,numa_node=1,bus=pcie.0",
		"-device", "pcie-root-port,id=rp1,bus=pxb1,chassis=1,slot=1",
		// Its network: without IPv6, whose router advertisements make a default route over a VF.
		"-netdev", "user,id=n0,restrict=on,ipv6=off", "-device", "igb,id=igb0,netdev=n0,mac=52:54:00:06:01:00,bus=rp1",
		"-fsdev", "local,id=root,path=/,security_model=passthrough,readonly=on,multidevs=remap", "-device", "virtio-9p-pci,bus=pcie.0,fsdev=root,mount_tag=root",
		"-fsdev", "local,id=state,path="+state+",security_model=none,multidevs=remap", "-device", "virtio-9p-pci,bus=pcie.0,fsdev=state,mount_tag=state",
		"-device", "virtio-serial-pci,bus=pcie.0,id=serial0,max_ports=2", "-chardev", "socket,id=agent,fd=5",
		"-device", "virtserialport,bus=serial0.0,nr=1,chardev=agent,name="+guest.PortName,
		"-kernel", "/proc/self/fd/3", "-initrd", "/proc/self/fd/4",
		"-append", "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off cryptomgr.notests no_timer_check random.trust_cpu=on audit=0 intel_iommu=on iommu=nopt")...)
	l.qemu.ExtraFiles = []*os.File{img.KernelFile(), initrd, far}
	l.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	l.qemu.Stdout, l.qemu.Stderr = &said, &said
	if err := l.qemu.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close() // QEMU alone has it: its end is the channel's
	go func() { l.qemu.Wait(); close(l.done) }()
	t.Cleanup(l.kill)
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, l.kill)
	defer stop()
	l.agent, err = guest.NewAgent(ctx, conn, guest.AgentOptions{Name: "outer", Explain: func() string { return l.console() + said.String() }})
	if err != nil {
		l.kill()
		return nil, fmt.Errorf("the outer host does not come up: %w\n%s%s", err, l.console(), said.String())
	}
	l.step("outer host up")
	return l, nil
}

// kill ends the outer host as a power cut would.
func (l *lab) kill() {
	l.qemu.Process.Kill()
	<-l.done
}

// console returns the end of what the outer host's kernel said.
func (l *lab) console() string {
	b, _ := os.ReadFile(l.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n") + "\n"
}

// step logs how long the lab has taken so far.
func (l *lab) step(what string) {
	l.t.Helper()
	l.t.Logf("%6.1f s  %s", time.Since(l.began).Seconds(), what)
}

var errTimeout = errors.New("not within its time")

// try runs a shell script on the outer host and returns what it wrote. One that does not end within
// its bound ends with the outer host.
func (l *lab) try(script string, bound time.Duration) (string, error) {
	timer := time.AfterFunc(bound, l.kill)
	defer timer.Stop()
	p, err := l.agent.Start(guest.Exec{Args: []string{"/bin/sh", "-c", script}, NoStdin: true,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C"}})
	if err != nil {
		if !timer.Stop() {
			err = errTimeout
		}
		return "", err
	}
	defer p.Close()
	var out, er bytes.Buffer
	done := make(chan struct{})
	go func() { io.Copy(&er, p.Stderr); close(done) }()
	io.Copy(&out, p.Stdout)
	<-done
	st, err := p.Wait()
	text := out.String() + er.String()
	switch {
	case !timer.Stop():
		return text, errTimeout
	case err != nil:
		return text, err
	case st.ExitCode() != 0:
		return text, fmt.Errorf("%v", st)
	}
	return text, nil
}

// bounded is try within the bound of a step; it throws stuck.
func (l *lab) bounded(script string) (string, error) {
	out, err := l.try(script, stepTimeout)
	if errors.Is(err, errTimeout) {
		panic(stuck{fmt.Errorf("%s\n%s%w", script, out, err)})
	}
	return out, err
}

// sh runs a script that must end well.
func (l *lab) sh(script string) string {
	l.t.Helper()
	out, err := l.bounded(script)
	if err != nil {
		said, _ := l.try("dmesg | tail -20", stepTimeout)
		l.t.Fatalf("%s\n%s%v\nkernel: %s", script, out, err, said)
	}
	return out
}

// refused runs a script that must fail and say the words in one line.
func (l *lab) refused(script string, words ...string) {
	l.t.Helper()
	out, err := l.bounded(script)
	if err == nil {
		l.t.Errorf("%s: not refused\n%s", script, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			l.t.Errorf("%s: %q is missing in\n%s", script, w, out)
		}
	}
}
