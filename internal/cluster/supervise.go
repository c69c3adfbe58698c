package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/linejson"
	"nearmetal/internal/sockpair"
)

// `nearmetal up` starts the supervisor: the same program in a session of its own, which owns the cluster from then
// on. Until the cluster is ready, a socket pair joins the two: the supervisor reports its progress, one JSON object
// per line. If the other end closes earlier (Ctrl-C, kill -9), the supervisor cancels the start and cleans up.

// SupervisorFD is the descriptor of the supervisor's end of that socket pair.
const SupervisorFD = 3

// message is a line from the supervisor.
type message struct {
	start.Progress
	Ready string `json:"ready,omitempty"` // the cluster's name
}

// Supervised starts a cluster under a supervisor, waits until it is ready, and returns its name. If the start fails
// or ctx ends first, nothing is left of the cluster.
func Supervised(ctx context.Context, r Start, ev Events) (name string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if filepath.Base(self) == "nearmetal-task" { // a rank's program, which is installed next to nearmetal
		self = filepath.Join(filepath.Dir(self), "nearmetal")
	}
	ours, theirs, err := sockpair.Conn("supervisor")
	if err != nil {
		return "", err
	}
	defer ours.Close()
	cmd := exec.Command(self, "supervise")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/" // so that the supervisor does not keep the caller's file system busy
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return "", fmt.Errorf("supervisor: %w", err)
	}
	r.Kept = !r.Limited && r.Until == 0 && r.Overlay == nil // otherwise the cluster belongs to a job
	go cmd.Wait()                                           // reaps the supervisor if it exits before the cluster is ready; later this process may have exited
	if err := linejson.Write(ours, r); err != nil {
		return "", fmt.Errorf("supervisor: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { ours.CloseWrite() })
	defer stop()
	for in := bufio.NewReader(ours); ; {
		var m message
		if err := linejson.Read(in, &m); err != nil {
			switch cause := context.Cause(ctx); {
			case cause != nil:
				return "", cause
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET):
				return "", errors.New("the supervisor ended before the cluster was ready")
			}
			return "", fmt.Errorf("supervisor: %w", err)
		}
		switch {
		case m.Error != "":
			if cause := context.Cause(ctx); cause != nil {
				return "", cause
			}
			return "", &state.VMError{Err: errors.New(m.Error), Console: m.Console}
		case m.Ready != "":
			return m.Ready, nil
		case m.Notice != "":
			ev.Note(m.Notice)
		default:
			ev.At(m.Stage, m.Done, m.Total)
		}
	}
}

// Supervise runs the supervisor: it reads its request from SupervisorFD, owns the cluster, and returns when the
// cluster has ended.
func Supervise() error {
	const misuse = "supervise: this command is only for nearmetal up"
	if err := unix.SetNonblock(SupervisorFD, true); err != nil {
		return errors.New(misuse)
	}
	unix.CloseOnExec(SupervisorFD)
	conn := os.NewFile(SupervisorFD, "nearmetal up")
	// The request may contain the secret of a job's hosts. With dumpable off, no other process of the user, and no
	// guest through the host's /proc, can read this process's memory and files.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	in := bufio.NewReader(conn)
	var r Start
	if err := linejson.Read(in, &r); err != nil || r.Spec == nil {
		return errors.New(misuse)
	}
	if r.Overlay == nil {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	ev := start.Report(func(p start.Progress) { linejson.Write(conn, message{Progress: p}) })
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
	ask := make(chan os.Signal, 1)
	signal.Notify(ask, unix.SIGTERM, unix.SIGINT)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case s := <-ask:
			cancel(fmt.Errorf("the supervisor was asked to end: %v", s))
		case <-ctx.Done():
		}
	}()
	if r.Until > 0 {
		if err := endWith(r.Until, func() { cancel(errors.New("the process that the cluster was for has ended")) }); err != nil {
			linejson.Write(conn, message{Progress: start.Failed(err)})
			return nil
		}
	}
	ready := make(chan struct{})
	go func() { // the input ends before the cluster is ready: the caller has exited, or has cancelled
		io.Copy(io.Discard, in)
		select {
		case <-ready:
		default:
			cancel(errors.New("nearmetal up has gone"))
		}
	}()
	c, err := Up(ctx, r, ev)
	if err != nil {
		linejson.Write(conn, message{Progress: start.Failed(err)})
		return nil // the error has been reported
	}
	close(ready)
	detach(c)
	if err := linejson.Write(conn, message{Ready: c.Name()}); err != nil {
		cancel(err) // nobody knows the cluster's name
	}
	conn.Close()
	select {
	case <-c.Asked():
	case <-c.Died():
	case <-ctx.Done():
	}
	return c.Down(context.Background())
}

// endWith calls f when the process pid has ended.
func endWith(pid int, f func()) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("process %d, which the cluster is for: %w", pid, err)
	}
	go func() {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 || err != nil && err != unix.EINTR {
				f()
				return
			}
		}
	}()
	return nil
}

// detach redirects further output (a panic, at worst) into the cluster's directory.
func detach(c *Cluster) {
	log, err := os.OpenFile(c.own.Path(state.SupervisorFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer log.Close()
	unix.Dup3(int(log.Fd()), 1, 0)
	unix.Dup3(int(log.Fd()), 2, 0)
}
