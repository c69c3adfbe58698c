// Package session runs a command in VMs for its user: with standard streams, signals, a terminal, and the exit
// status.
package session

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"nearmetal/internal/guest"
)

// Streams are a command's standard streams on this side. With a nil In the command has no input.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// forwarded are the signals that are forwarded to the command in the VM. SIGURG is excluded, because Go's runtime
// sends it to its own threads at any time, to preempt goroutines.
var forwarded = []os.Signal{
	unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGCONT, unix.SIGALRM, unix.SIGXCPU,
}

// Signals returns the signals that this process receives from now on, for Run to forward, and a function that stops
// that. It also catches SIGPIPE, so that a closed standard output is an error of Run and does not kill a process that
// owns a cluster.
func Signals() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, forwarded...)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, unix.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(pipe) }
}

// Run runs e through c and waits until it has ended and its output is written. It forwards the signals from sigs, and
// kills the command when ctx ends. If a VM does not answer after a signal that asks for the end, Run stops waiting
// and returns the status of that signal. Run fails if the VM is lost or output cannot be written; a command that
// fails is a Status.
func Run(ctx context.Context, c *guest.Client, e guest.Exec, s Streams, sigs <-chan os.Signal) (guest.Status, error) {
	e.NoStdin = s.In == nil
	p, err := c.Start(e)
	if err != nil {
		return guest.Status{}, err
	}
	defer p.Close()
	if s.In != nil {
		go func() {
			// Forwards the end of input. A read that still waits when the command ends is abandoned, because only the
			// end of input interrupts it.
			io.Copy(p.Stdin, s.In)
			p.Stdin.Close()
		}()
	}
	var wg sync.WaitGroup
	var outErr, errErr error
	wg.Add(2)
	copyOut := func(w io.Writer, r io.Reader, err *error) {
		defer wg.Done()
		k := &sink{Writer: w}
		io.Copy(k, r)
		if err == &errErr && k.err != nil && !errors.Is(k.err, unix.EPIPE) {
			io.Copy(io.Discard, r) // as in a native run, messages that cannot be written are lost and the command continues
			return
		}
		if *err = k.err; k.err != nil {
			p.Close() // nobody reads the output any more, so that the command would wait forever
		}
	}
	go copyOut(s.Out, p.Stdout, &outErr)
	go copyOut(s.Err, p.Stderr, &errErr)

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
		<-p.Done()
	}()
	return follow(ctx, c, p, sigs, ended, func() (guest.Status, error) {
		if err := errors.Join(outErr, errErr); err != nil {
			return guest.Status{}, err
		}
		return p.Wait()
	})
}

// follow forwards the signals from sigs to p until ended is closed, and returns what result returns then. It returns
// earlier if ctx ends, or if the VM does not answer after a signal that asks for the end.
func follow(ctx context.Context, c *guest.Client, p *guest.Process, sigs <-chan os.Signal, ended <-chan struct{}, result func() (guest.Status, error)) (guest.Status, error) {
	q := newQuestion(c)
	defer q.cancel()
	for {
		select {
		case sig := <-sigs:
			p.Signal(sig.(syscall.Signal))
			if q.ask(sig.(syscall.Signal)) {
				return q.silent(), nil
			}
		case <-q.noReply:
			return q.silent(), nil
		case <-ctx.Done():
			return guest.Status{}, context.Cause(ctx)
		case <-ended:
			return result()
		}
	}
}

// sink remembers why a write failed, because io.Copy does not distinguish it from a failed read.
type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.Writer.Write(b)
	if err != nil {
		s.err = err
	}
	return n, err
}

// Terminal runs e in a terminal of its own in the VM, connected to the terminal tty. It sets tty to raw mode, follows
// changes of its size, and restores tty before it returns.
func Terminal(ctx context.Context, c *guest.Client, e guest.Exec, tty *os.File, sigs <-chan os.Signal) (guest.Status, error) {
	fd := int(tty.Fd())
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		cols, rows = 80, 24
	}
	e.TTY, e.Rows, e.Cols = true, uint16(rows), uint16(cols)
	old, err := term.MakeRaw(fd)
	if err != nil {
		return guest.Status{}, err
	}
	defer term.Restore(fd, old)
	p, err := c.Start(e)
	if err != nil {
		return guest.Status{}, err
	}
	defer p.Close()
	winch := make(chan os.Signal, 1)
	signal.Notify(winch, unix.SIGWINCH)
	defer signal.Stop(winch)
	go func() { io.Copy(p.Stdin, tty); p.Stdin.Close() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		io.Copy(os.Stdout, p.Stdout)
		<-p.Done()
	}()
	go func() {
		for {
			select {
			case <-winch:
				if cols, rows, err := term.GetSize(fd); err == nil {
					p.Resize(uint16(rows), uint16(cols))
				}
			case <-ended:
				return
			}
		}
	}()
	// In raw mode Ctrl-C is a byte, not a signal; the signals of sigs were sent by other processes.
	return follow(ctx, c, p, sigs, ended, p.Wait)
}

// Discard are streams without input that discard the output.
var Discard = Streams{Out: io.Discard, Err: io.Discard}
