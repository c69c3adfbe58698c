package session

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
)

// Silence is how long a VM may take to answer before it counts as silent. One that is emulated on a busy host takes tenths of
// a second.
const Silence = 3 * time.Second

const (
	// endSilence is how long a command's VM may take to answer after a signal that asks for the end. It is longer: a VM that
	// is short of memory, or writes a checkpoint, may still pass the signal on.
	endSilence = 10 * time.Second
	// impatience is how long after the first such signal a second one ends the command at once. Slurm, timeout(1) and systemd
	// send two in a row.
	impatience = time.Second
)

// Ends reports whether a signal asks for the end.
func Ends(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}

// question is whether a VM still answers. It is asked with each signal that asks for the end: a VM that is stopped passes
// none on, and whoever waits for a command there would wait for ever.
type question struct {
	vm      *guest.Client
	asked   atomic.Bool    // and not answered yet
	sig     syscall.Signal // that asked last
	since   time.Time      // when it was asked
	ctx     context.Context
	cancel  context.CancelFunc
	noReply chan struct{} // closed when the VM has not answered in time
}

func newQuestion(vm *guest.Client) *question {
	q := &question{vm: vm, noReply: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// ask asks, and reports whether nothing is to be waited for any more: another signal has come a while after the first, which is not answered.
func (q *question) ask(sig syscall.Signal) bool {
	if !Ends(sig) {
		return false
	}
	q.sig = sig
	if q.asked.Swap(true) {
		return time.Since(q.since) >= impatience
	}
	q.since = time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(q.ctx, endSilence)
		defer cancel()
		q.vm.Answers(ctx)
		switch {
		case q.ctx.Err() != nil: // nobody waits any more
		case ctx.Err() != nil:
			close(q.noReply)
		default:
			q.asked.Store(false)
		}
	}()
	return false
}

// silent is the status of a command whose VM does not answer. What it wrote is not known, and cannot be asked for.
func (q *question) silent() guest.Status {
	return guest.Status{Signal: q.sig, NothingWritten: true,
		Message: q.vm.Name() + ": does not answer; its command ends when the VM resumes"}
}
