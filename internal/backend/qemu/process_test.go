package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/sockpair"
)

// idle starts a VM whose kernel is not a kernel: QEMU comes up nevertheless, which is all that these tests need.
func idle(t *testing.T, edit func(*plan.VM)) (*VM, error) {
	t.Helper()
	vm := onePlan()
	if edit != nil {
		edit(&vm)
	}
	m, err := Build(vm, backend.Settings{Accel: host.TCG}, testCaps(t))
	if err != nil {
		t.Fatal(err)
	}
	return startIdle(t, m)
}

// startIdle starts such a VM.
func startIdle(t *testing.T, m *Machine, links ...*os.File) (*VM, error) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string, b []byte) *os.File {
		p := filepath.Join(dir, name)
		os.WriteFile(p, b, 0o600)
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	ours, theirs, err := sockpair.Conn("channel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	defer theirs.Close()
	// A multiboot-less bzImage header with a tiny "kernel": QEMU checks no more before the VM runs.
	kernel := make([]byte, 8192)
	copy(kernel[0x202:], "HdrS\x0f\x02")
	kernel[0x1f1], kernel[0x211], kernel[0x22f] = 4, 1, 0x7f // setup sectors, loaded high, room for the initrd
	f := Files{Channel: theirs, Files: backend.Files{Kernel: open("kernel", kernel), Initrd: open("initrd", make([]byte, 512)), Links: links}}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	v, err := Start(ctx, m, f, Options{})
	if err == nil {
		t.Cleanup(v.Kill)
	}
	return v, err
}

func TestQuit(t *testing.T) {
	v, err := idle(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if err := v.Quit(ctx); err != nil || v.Err() != nil {
		t.Errorf("%v, %v", err, v.Err())
	}
	if err := v.Quit(ctx); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestQuitStopped: Quit kills a QEMU that cannot answer when its time is up.
func TestQuitStopped(t *testing.T) {
	v, err := idle(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(v.PID(), syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := v.Quit(ctx); !errors.Is(err, context.DeadlineExceeded) || v.Err() != nil {
		t.Errorf("%v, %v", err, v.Err())
	}
	if err := syscall.Kill(v.PID(), 0); err == nil {
		t.Error("the process is still there")
	}
}

func TestKilled(t *testing.T) {
	v, err := idle(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v.Err() != nil {
		t.Errorf("running, and an error: %v", v.Err())
	}
	syscall.Kill(v.PID(), syscall.SIGKILL)
	awaitEnd(t, v)
	if v.Err() == nil || !strings.Contains(v.Err().Error(), "killed (signal 9)") {
		t.Errorf("%v", v.Err())
	}
	if err := v.QMP().Stop(context.Background()); !errors.Is(err, errQMPClosed) {
		t.Errorf("QMP: %v", err)
	}
}

func TestRefused(t *testing.T) {
	_, err := idle(t, func(vm *plan.VM) { vm.MemoryBytes = 1 << 46 })
	if err == nil || !strings.Contains(err.Error(), "VM vm0: not enough memory for its 67108864M") || strings.Contains(err.Error(), "\n") {
		t.Errorf("too much memory: %v", err)
	}
	_, err = idle(t, func(vm *plan.VM) {
		vm.Nodes = []plan.Node{{VCPUs: []int{0}, MemoryBytes: vm.MemoryBytes, HostNodes: []int{1000}}}
	})
	if err == nil || !strings.Contains(err.Error(), "VM vm0: QEMU refused to start: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a host node that is not there: %v", err)
	}
	t.Log(err)
}

func TestFilesMissing(t *testing.T) {
	m, err := Build(onePlan(), backend.Settings{Accel: host.TCG, Links: []backend.Link{{Kind: backend.LinkStream, MAC: "52:54:00:00:00:01"}}}, capturedCaps(t, qemu72))
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for want, f := range map[string]Files{
		"no file for the channel":        {},
		"no file for the kernel":         {Channel: null},
		"no file for the initramfs":      {Channel: null, Files: backend.Files{Kernel: null}},
		"no file for the network link 0": {Channel: null, Files: backend.Files{Kernel: null, Initrd: null}},
		"2 files for 1 network links":    {Channel: null, Files: backend.Files{Kernel: null, Initrd: null, Links: []*os.File{null, null}}},
	} {
		if _, err := Start(context.Background(), m, f, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

func TestPin(t *testing.T) {
	cpus, err := host.UsableCPUs()
	if err != nil {
		t.Fatal(err)
	}
	last := cpus[len(cpus)-1]
	v, err := idle(t, func(vm *plan.VM) { vm.VCPUs, vm.Cores = 2, 2 })
	if err != nil {
		t.Fatal(err)
	}
	vm := plan.VM{Pins: [][]int{{cpus[0]}, {last}}, EmulatorCPUs: []int{cpus[0]}}
	ctx := context.Background()
	if err := v.Pin(ctx, vm); err != nil {
		t.Fatal(err)
	}
	list, err := v.QMP().VCPUs(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, c := range list {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(c.Thread, &set); err != nil || set.Count() != 1 || !set.IsSet(vm.Pins[c.Index][0]) {
			t.Errorf("vCPU %d: %v, %v", c.Index, set, err)
		}
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(v.PID(), &set); err != nil || set.Count() != 1 || !set.IsSet(cpus[0]) {
		t.Errorf("emulator: %v, %v", set, err)
	}
	if err := v.Pin(ctx, plan.VM{Pins: [][]int{{1000}}}); err == nil || !strings.Contains(err.Error(), "VM vm0: pinning: vCPU 0: ") {
		t.Errorf("a CPU that is not there: %v", err)
	}
}

// TestParentDies kills a process that has started a VM, without a chance to clean up: the VM must also end. With an
// environment variable set the test is that process.
func TestParentDies(t *testing.T) {
	if os.Getenv("NEARMETAL_TEST_PARENT") != "" {
		v, err := idle(t, nil)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("QEMU %d\n", v.PID())
		os.Stdout.Sync()
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestParentDies$")
	cmd.Env = append(os.Environ(), "NEARMETAL_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "QEMU ")
	if !ok {
		needs(t, fmt.Errorf("the child said %q, %v", line, err))
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	cmd.Process.Kill()
	var n int
	for end := time.Now().Add(bootTimeout); ; {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
		// The runtime's own signals (preemption, the child's end) interrupt the wait.
		if err != unix.EINTR {
			break
		}
	}
	if n != 1 || err != nil {
		t.Errorf("QEMU outlives its parent: %d, %v", n, err)
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestComplaint(t *testing.T) {
	for _, tt := range []struct{ said, want string }{
		{"", ""},
		{"qemu-system-x86_64: warning: x\nqemu-system-x86_64: cannot do it\n", "cannot do it"},
		{"qemu-system-x86_64: first\nqemu-system-x86_64: second\nAborted\n", "second"},
		{"qemu: initrd is too large\n", "initrd is too large"},
		{"error while loading shared libraries: libx.so: not there\n", "error while loading shared libraries: libx.so: not there"},
		{"qemu-system-x86_64: -device vfio-pci: no such group\nqemu-system-x86_64: ../hw/core/qdev.c:411: qdev_realize: Assertion `dev->realized' failed.\nAborted\n",
			"-device vfio-pci: no such group"},
		{"qemu-system-x86_64: cannot set up guest memory\n**\nERROR:../accel/tcg/cpu-exec.c:928:cpu_exec: assertion failed: (cpu == current_cpu)\n" +
			"Bail out! ERROR:../accel/tcg/cpu-exec.c:928:cpu_exec: assertion failed: (cpu == current_cpu)\n", "cannot set up guest memory"},
		{"qemu-system-x86_64: ../hw/pci/msix.c:9: msix_init: Assertion `x' failed.\n", "../hw/pci/msix.c:9: msix_init: Assertion `x' failed."},
		{"qemu-system-x86_64: \x1b[31mred\tline\n", "red line"},
	} {
		if got := complaint("/usr/bin/qemu-system-x86_64", tt.said); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.said, got, tt.want)
		}
	}
}

func TestTailWriter(t *testing.T) {
	w := &tailWriter{}
	for i := 0; i < 100000; i++ {
		fmt.Fprintf(w, "line %d\n", i)
	}
	s := w.String()
	if !strings.HasPrefix(s, "line 0\n") || !strings.HasSuffix(s, "line 99999\n") || len(s) > 2*tailPart+10 || !strings.Contains(s, "…") {
		t.Errorf("%d bytes: %.20q … %q", len(s), s, s[len(s)-20:])
	}
	short := &tailWriter{}
	fmt.Fprint(short, strings.Repeat("x", tailPart+5))
	if s := short.String(); s != strings.Repeat("x", tailPart+5) {
		t.Errorf("%d bytes of %d", len(s), tailPart+5)
	}
}
