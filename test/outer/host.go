// Package outer boots outer hosts for tests: machines that QEMU emulates whole, IOMMU, NUMA nodes and SR-IOV cards (igb)
// included, with nested KVM. An outer host's root is this machine's, read-only under an overlay in memory, so that
// what was built here is there at the same path.
package outer

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

// Bounds of single steps: three times what a busy machine was seen to take (a boot 126 s, making VFs 62 s, at load 18).
const (
	BootTimeout = 7 * time.Minute
	StepTimeout = 7 * time.Minute
)

// RuntimeDir is where clusters on an outer host have their directories: its /tmp shows this machine's.
const RuntimeDir = "/run/clusters"

// firstFile is the number under which QEMU inherits the first of Machine.Files.
const firstFile = 6

// Machine is what an outer host is made of.
type Machine struct {
	Name  string     // also its host name
	Args  []string   // of QEMU: CPUs, memory, nodes, cards. A network card that stands for Files[i] has the descriptor File(i)
	Files []*os.File // sockets of its network cards, which QEMU inherits
	State string     // directory here that is its /var/lib/nearmetal, and outlives it
	Boot  string     // more words for the kernel's command line
}

// File is the number under which QEMU knows Files[i].
func File(i int) int { return firstFile + i }

// Host is an outer host that runs.
type Host struct {
	T     *testing.T
	Name  string
	agent *guest.Agent
	qemu  *exec.Cmd
	done  chan struct{} // closed when QEMU has ended
	log   string        // of its console
	began time.Time
}

// Missing ends a test that needs something which is not here: in CI it fails.
func Missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal("this test needs ", what)
	}
	t.Skip("this test needs ", what)
}

// Nearmetal is the program under test, at the same path in an outer host as here.
func Nearmetal(t *testing.T) string {
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
		Missing(t, "a QEMU with -device igb (scripts/qemu10.sh)")
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

// stuck is thrown by Stuck.
type stuck struct{ error }

// Stuck ends a test on outer hosts that misbehave: Fresh tries once more, on fresh ones.
func Stuck(err error) { panic(stuck{err}) }

// Fresh runs a test, and once more when an outer host does not come up or a step never ends: about
// one in seven emulated hosts has timers that misbehave. What a step says is judged the first time.
func Fresh(t *testing.T, test func()) {
	t.Helper()
	once := func() (err error) {
		defer func() {
			switch r := recover().(type) {
			case nil:
			case stuck:
				err = r
			default:
				panic(r)
			}
		}()
		test()
		return nil
	}
	err := once()
	if err != nil {
		t.Logf("again, from fresh outer hosts: %v", err)
		err = once()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Start boots an outer host, which ends with the test or by Kill. One that does not come up throws Stuck.
func Start(t *testing.T, m Machine) *Host {
	t.Helper()
	h := &Host{T: t, Name: m.Name, began: time.Now(), done: make(chan struct{}), log: filepath.Join(t.TempDir(), "console")}
	k, err := image.FindKernel("")
	if err != nil {
		Missing(t, err.Error())
	}
	img, err := image.Open(image.Request{Kernel: k, Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	cfg := &guest.Config{Name: m.Name, Root: guest.Mount{Tag: "root"},
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
	args = append(args,
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "file:"+h.log,
		// An IOMMU that remaps interrupts, and AMD's SVM (TCG emulates it).
		"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,-erms,-fsrm",
		"-device", "intel-iommu,intremap=on",
		"-fsdev", "local,id=root,path=/,security_model=passthrough,readonly=on,multidevs=remap", "-device", "virtio-9p-pci,bus=pcie.0,fsdev=root,mount_tag=root",
		"-fsdev", "local,id=state,path="+m.State+",security_model=none,multidevs=remap", "-device", "virtio-9p-pci,bus=pcie.0,fsdev=state,mount_tag=state",
		"-device", "virtio-serial-pci,bus=pcie.0,id=serial0,max_ports=2", "-chardev", "socket,id=agent,fd=5",
		"-device", "virtserialport,bus=serial0.0,nr=1,chardev=agent,name="+guest.PortName,
		"-kernel", "/proc/self/fd/3", "-initrd", "/proc/self/fd/4",
		// Debian's kernel zeroes each page that it allocates: of the huge pages of test/numa that is 5.6 GiB, by emulated CPUs.
		"-append", strings.TrimSpace("console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off cryptomgr.notests no_timer_check random.trust_cpu=on audit=0 init_on_alloc=0 intel_iommu=on iommu=nopt "+m.Boot))
	h.qemu = exec.Command(path, append(args, m.Args...)...)
	h.qemu.ExtraFiles = append([]*os.File{img.KernelFile(), initrd, far}, m.Files...)
	h.qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	h.qemu.Stdout, h.qemu.Stderr = &said, &said
	if err := h.qemu.Start(); err != nil {
		t.Fatal(err)
	}
	far.Close() // QEMU alone has it: its end is the channel's
	go func() { h.qemu.Wait(); close(h.done) }()
	t.Cleanup(h.Kill)
	ctx, cancel := context.WithTimeout(context.Background(), BootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, h.Kill)
	defer stop()
	h.agent, err = guest.NewAgent(ctx, conn, guest.AgentOptions{Name: m.Name, Explain: func() string { return h.Console() + said.String() }})
	if err != nil {
		h.Kill()
		Stuck(fmt.Errorf("outer host %s does not come up: %w\n%s%s", m.Name, err, h.Console(), said.String()))
	}
	h.Sh("mkdir -m 700 " + RuntimeDir)
	h.Step("outer host up")
	return h
}

// Kill ends the outer host as a power cut would.
func (h *Host) Kill() {
	h.qemu.Process.Kill()
	<-h.done
}

// Console returns the end of what the outer host's kernel said.
func (h *Host) Console() string {
	b, _ := os.ReadFile(h.log)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n") + "\n"
}

// Step logs how long the outer host has run so far.
func (h *Host) Step(what string) {
	h.T.Helper()
	h.T.Logf("%6.1f s  %s: %s", time.Since(h.began).Seconds(), h.Name, what)
}

var errTimeout = errors.New("not within its time")

// Try runs a shell script on the outer host and returns what it wrote. One that does not end within
// its bound ends with the outer host.
func (h *Host) Try(script string, bound time.Duration) (string, error) {
	timer := time.AfterFunc(bound, h.Kill)
	defer timer.Stop()
	p, err := h.agent.Start(guest.Exec{Args: []string{"/bin/sh", "-c", script}, NoStdin: true,
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C", "NEARMETAL_RUNTIME_DIR=" + RuntimeDir}})
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

// bounded is Try; it throws Stuck.
func (h *Host) bounded(script string, bound time.Duration) (string, error) {
	out, err := h.Try(script, bound)
	if errors.Is(err, errTimeout) {
		Stuck(fmt.Errorf("%s\n%s%w\n%s", script, out, err, h.Console()))
	}
	return out, err
}

// Sh runs a script that must end well, within the bound of a step.
func (h *Host) Sh(script string) string {
	h.T.Helper()
	return h.Within(StepTimeout, script)
}

// Within is Sh with a bound of its own.
func (h *Host) Within(bound time.Duration, script string) string {
	h.T.Helper()
	out, err := h.bounded(script, bound)
	if err != nil {
		said, _ := h.Try("dmesg | tail -20", StepTimeout)
		h.T.Fatalf("%s: %s\n%s%v\nkernel: %s", h.Name, script, out, err, said)
	}
	return out
}

// Refused runs a script that must fail and say the words.
func (h *Host) Refused(script string, words ...string) string {
	h.T.Helper()
	out, err := h.bounded(script, StepTimeout)
	if err == nil {
		h.T.Errorf("%s: %s: not refused\n%s", h.Name, script, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			h.T.Errorf("%s: %s: %q is missing in\n%s", h.Name, script, w, out)
		}
	}
	return out
}
