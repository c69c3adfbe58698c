package session

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedAtStart has a bit for each standard descriptor that the caller has closed. It is set only in programs that
// are linked with -E nearmetal/internal/session.entry.
var closedAtStart uint32

func entry()

var _ = entry // the linker uses it

// KeepClosed makes writes to standard output and standard error fail if the caller has closed them, also in programs
// that this one starts. As in a native run they get EBADF, so that no output is lost silently.
func KeepClosed() {
	for _, fd := range []int{syscall.Stdout, syscall.Stderr} {
		if closedAtStart&(1<<fd) == 0 {
			continue
		}
		// A descriptor that is open only for reading; a free number would be used for the next opened file.
		if null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Dup3(null, fd, 0)
			unix.Close(null)
		}
	}
}
