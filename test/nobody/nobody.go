// Package nobody runs parts of tests as a user without privileges, whoever runs the tests.
package nobody

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const uid = 65534

// Dir is a temporary directory that every user may read and nobody but root may write to.
func Dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Do calls f on a thread of the user nobody, or as the caller where that is not root, and
// waits for it. f must not start other threads.
func Do(t *testing.T, f func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		if os.Getuid() == 0 {
			runtime.LockOSThread() // never unlocked: the thread ends with this
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
				t.Error(errno)
				return
			}
		}
		f()
	}()
	<-done
}

// Called starts a program that sleeps until the test ends, whose file and command line have these names, as a user. The caller
// is root.
func Called(t *testing.T, file string, user int, line string) *exec.Cmd {
	t.Helper()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	path := filepath.Join(Dir(t), file)
	if err == nil {
		err = os.WriteFile(path, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: path, Args: []string{line, "3600"}, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd
}
