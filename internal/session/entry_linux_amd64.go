package session

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedAtStart has a bit for each of the standard descriptors that the caller has closed. A program has it where it is
// linked with -E nearmetal/internal/session.entry.
var closedAtStart uint32

func entry()

var _ = entry // the linker uses it

// KeepClosed makes writes to standard output and standard error fail where the caller has closed these, in the programs
// that this one starts as well. As natively they get EBADF, and no program's output is lost without a word.
func KeepClosed() {
	for _, fd := range []int{syscall.Stdout, syscall.Stderr} {
		if closedAtStart&(1<<fd) == 0 {
			continue
		}
		// A descriptor that is open for reading only: a free number would be the next file's.
		if null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Dup3(null, fd, 0)
			unix.Close(null)
		}
	}
}
