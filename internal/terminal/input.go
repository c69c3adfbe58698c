package terminal

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// Input returns a reader of the input typed at the terminal f. While this process is in the background of its terminal
// (`nearmetal run … &`), a read waits: otherwise SIGTTIN would stop the process, and its VMs with it.
func Input(f *os.File) io.Reader {
	signal.Ignore(unix.SIGTTIN) // the read then fails with EIO
	return &input{f, func() { time.Sleep(foregroundPoll) }}
}

// foregroundPoll is how often a process in the background checks whether it is still there. The kernel has no event for
// that.
const foregroundPoll = 200 * time.Millisecond

type input struct {
	f    *os.File
	wait func() // for a while, in the background
}

func (i *input) Read(b []byte) (int, error) {
	for {
		n, err := i.f.Read(b)
		if !errors.Is(err, unix.EIO) || !background() {
			return n, err
		}
		i.wait()
	}
}
