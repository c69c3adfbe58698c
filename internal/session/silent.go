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

// Silence is how long a VM may take to answer before it counts as silent. An emulated VM on a busy host needs tenths
// of a second.
const Silence = 3 * time.Second

const (
	// endSilence is how long a command's VM may take to answer after a signal that asks for the end. It is longer
	// than Silence, because a VM that is short of memory, or writes a checkpoint, may still forward the signal.
	endSilence = 10 * time.Second
	// impatience is the time after the first such signal from which on a second one ends the command immediately.
	// Slurm, timeout(1) and systemd send two signals in quick succession.
	impatience = time.Second
)

// Ends reports whether a signal asks for the end of a command.
func Ends(s os.Signal) bool {
	return s == unix.SIGINT || s == unix.SIGTERM || s == unix.SIGHUP || s == unix.SIGQUIT
}

// question checks whether a VM still answers. It is sent with each signal that asks for the end, because a stopped VM
// forwards no signals, and its command would be waited for forever.
type question struct {
	vm      *guest.Client
	asked   atomic.Bool    // sent and not answered yet
	sig     syscall.Signal // the last signal that asked for the end
	since   time.Time      // when the question was sent
	ctx     context.Context
	cancel  context.CancelFunc
	noReply chan struct{} // closed when the VM has not answered in time
}

func newQuestion(vm *guest.Client) *question {
	q := &question{vm: vm, noReply: make(chan struct{})}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	return q
}

// ask sends the question, and reports whether to stop waiting: a further signal came some time after the first, whose
// question is still unanswered.
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

// silent returns the status of a command whose VM does not answer. Its output in the VM is unknown and cannot be
// read.
func (q *question) silent() guest.Status {
	return guest.Status{Signal: q.sig, NothingWritten: true,
		Message: q.vm.Name() + ": does not answer; its command ends when the VM resumes"}
}
