// Package nobody runs parts of tests as a user without privileges, whoever runs the tests.
package nobody

import (
	"os"
	"path/filepath"
	"runtime"
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
