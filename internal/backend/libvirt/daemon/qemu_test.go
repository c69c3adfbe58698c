package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/test/nobody"
)

// envPidFile makes this test's program act as a QEMU started by libvirtd: it holds the lock of the named pid file.
const envPidFile = "NEARMETAL_TEST_PIDFILE"

func TestMain(m *testing.M) {
	path := os.Getenv(envPidFile)
	if path == "" {
		os.Exit(m.Run())
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Len: 1})
	}
	if err == nil {
		_, err = fmt.Fprint(f, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
}

const domainID = "11111111-2222-4333-8444-555555555555"

// start starts a program, waits until it reports that it is ready, and ends it with the test.
func start(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd
}

// claimant starts a process of a user with the domain's UUID on its command line, as the domain's QEMU has it.
func claimant(t *testing.T, uid uint32) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "echo ready; read line", "qemu", "-uuid", domainID, "-machine")
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: true}}
	}
	return start(t, cmd)
}

// found fails unless the process of the domain is pid; 0: none.
func found(t *testing.T, a Address, pid int) {
	t.Helper()
	p, err := a.FindQEMU("vm", domainID)
	if err != nil {
		t.Error(err)
	}
	got := 0
	if p != nil {
		got = p.PID
		p.Close()
	}
	if got != pid {
		t.Errorf("process %d is taken for the domain's, want %d", got, pid)
	}
}

// TestFindQEMU: a process with a domain's UUID on its command line is not its QEMU. The QEMU is the process that
// holds the lock of libvirt's pid file, even if the PID in the file has been reused.
func TestFindQEMU(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: another user's libvirtd is found by its processes")
	}
	stranger := claimant(t, 65533)
	run := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", run)
	a := Address{Session: true}
	found(t, a, 0)
	dir := filepath.Join(run, "libvirt", "qemu", "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "vm.pid")
	if err := os.WriteFile(path, []byte(fmt.Sprint(stranger.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	found(t, a, 0)
	// A read lock is not evidence.
	f, err := os.Open(path)
	if err == nil {
		err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	}
	if err != nil {
		t.Fatal(err)
	}
	found(t, a, 0)
	f.Close()

	qemu := exec.Command("/proc/self/exe", "-uuid", domainID, "-machine")
	qemu.Env = append(os.Environ(), envPidFile+"="+path)
	start(t, qemu)
	found(t, a, qemu.Process.Pid)
	if p, err := a.FindQEMU("vm", "11111111-2222-4333-8444-666666666666"); p != nil || err != nil {
		t.Errorf("another domain of that name: %v, %v", p, err)
	}
	for _, name := range []string{"", "../run/vm", "vm\x00"} {
		if p, err := a.FindQEMU(name, domainID); p != nil || err == nil {
			t.Errorf("name %q: %v", name, p)
		}
	}
	qemu.Process.Kill()
	qemu.Process.Wait()
	found(t, a, 0)

	if err := os.Chown(path, 65533, 65533); err != nil {
		t.Fatal(err)
	}
	if p, err := a.FindQEMU("vm", domainID); p != nil || err == nil {
		t.Errorf("a stranger's pid file: %v", p)
	}
}

// TestFindOwnQEMU: a user's own libvirtd runs QEMU as this user; a stranger's process is never returned.
func TestFindOwnQEMU(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a second user")
	}
	claimant(t, 65533)
	a := Address{Session: true}
	nobody.Do(t, func() { found(t, a, 0) })
	mine := claimant(t, 65534)
	nobody.Do(t, func() { found(t, a, mine.Process.Pid) })
}
