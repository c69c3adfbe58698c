package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
)

// `nearmetal up` starts the supervisor: the same program in a session of its own, which
// owns the cluster from then on. Until the cluster is ready the two are joined by a
// socket pair: the supervisor reports how far it is, a JSON object a line; and when the
// other end closes before (Ctrl-C, kill -9), the supervisor cancels the start and cleans up.

// SupervisorFD is the descriptor of the supervisor's end of that socket pair.
const SupervisorFD = 3

// request is the first line to the supervisor: the cluster to start.
type request struct {
	Spec        *spec.Cluster `json:"spec"`
	Command     string        `json:"command"`
	BootTimeout time.Duration `json:"bootTimeoutNs"`
	NoVerify    bool          `json:"noVerify,omitempty"`
	Verbose     bool          `json:"verbose,omitempty"`
	Until       int           `json:"until,omitempty"`
	Devices     []string      `json:"devices"`
	Limited     bool          `json:"limited,omitempty"`
	Overlay     *Overlay      `json:"overlay,omitempty"`
}

// message is a line from the supervisor.
type message struct {
	Notice string `json:"notice,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Done   int    `json:"done,omitempty"`
	Total  int    `json:"total,omitempty"`
	Error  string `json:"error,omitempty"`
	// Console goes with Error: see VMError.
	Console []string `json:"console,omitempty"`
	Ready   string   `json:"ready,omitempty"` // the cluster's name
	// Host is for a part instead of Ready.
	Host *hostReady `json:"host,omitempty"`
}

// maxLine bounds a line on the socket pair, in bytes: a cluster file is at most 1 MiB.
const maxLine = 8 << 20

// Supervised starts a cluster under a supervisor and waits until it is ready; it returns
// its name. When it fails or ctx ends, nothing is left of the cluster.
func Supervised(ctx context.Context, o Options) (name string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if filepath.Base(self) == "nearmetal-task" { // a rank's program, which nearmetal itself stands beside
		self = filepath.Join(filepath.Dir(self), "nearmetal")
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return "", err
	}
	defer ours.Close()
	cmd := exec.Command(self, "supervise")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/" // it must not hold the caller's file system
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		return "", fmt.Errorf("supervisor: %w", err)
	}
	go cmd.Wait() // it is not ours any more once the cluster is ready; until then no zombie
	if err := json.NewEncoder(ours).Encode(request{o.Spec, o.Command, o.BootTimeout, o.NoVerify, o.Verbose, o.Until, o.Devices, o.Limited, o.Overlay}); err != nil {
		return "", fmt.Errorf("supervisor: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { unix.Shutdown(int(ours.Fd()), unix.SHUT_WR) })
	defer stop()
	sc := bufio.NewScanner(ours)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		var m message
		if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
			return "", fmt.Errorf("supervisor: %w", err)
		}
		switch {
		case m.Error != "":
			if cause := context.Cause(ctx); cause != nil {
				return "", cause
			}
			return "", &VMError{errors.New(m.Error), m.Console}
		case m.Ready != "":
			return m.Ready, nil
		case m.Notice != "":
			o.Events.notice(m.Notice)
		default:
			o.Events.stage(m.Stage, m.Done, m.Total)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return "", cause
	}
	return "", errors.New("the supervisor ended before the cluster was ready")
}

// socketPair returns two ends of a stream.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Ours is non-blocking, so that closing it ends a read that waits.
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "supervisor"), os.NewFile(uintptr(fds[1]), "nearmetal up"), nil
}

// Supervise is the supervisor: it reads its request from SupervisorFD, owns the cluster, and
// returns when the cluster has ended.
func Supervise() error {
	const misuse = "supervise: this command is only for nearmetal up"
	if err := unix.SetNonblock(SupervisorFD, true); err != nil {
		return errors.New(misuse)
	}
	unix.CloseOnExec(SupervisorFD)
	conn := os.NewFile(SupervisorFD, "nearmetal up")
	// The request may hold the secret of a job's hosts: then no other process of the user, and no guest by
	// the host's /proc, can read this one's memory and files.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	var req request
	if err := json.NewDecoder(io.LimitReader(conn, maxLine)).Decode(&req); err != nil || req.Spec == nil {
		return errors.New(misuse)
	}
	if req.Overlay == nil {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	out := json.NewEncoder(conn)
	o := Options{Spec: req.Spec, Command: req.Command, BootTimeout: req.BootTimeout, NoVerify: req.NoVerify, Verbose: req.Verbose, Devices: req.Devices, Limited: req.Limited, Overlay: req.Overlay, Events: Events{
		Notice: func(line string) { out.Encode(message{Notice: line}) },
		Stage:  func(name string, done, total int) { out.Encode(message{Stage: name, Done: done, Total: total}) },
	}}
	o.Kept = !o.Limited && req.Until == 0 && o.Overlay == nil // else it is a job's
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
	if req.Until > 0 {
		if err := endWith(req.Until, func() { cancel(errors.New("the process that the cluster was for has ended")) }); err != nil {
			out.Encode(message{Error: terminal.PlainError(err)})
			return nil
		}
	}
	ready := make(chan struct{})
	go func() { // the end of input before we are ready: the caller is gone, or wants no cluster
		var b [1]byte
		conn.Read(b[:])
		select {
		case <-ready:
		default:
			cancel(errors.New("nearmetal up has gone"))
		}
	}()
	c, err := Up(ctx, o)
	if err != nil {
		m := message{Error: terminal.PlainError(err)}
		var boot *VMError
		if errors.As(err, &boot) {
			m.Console = boot.Console
		}
		out.Encode(m)
		return nil // it has been said
	}
	close(ready)
	detach(c)
	if err := out.Encode(message{Ready: c.Name()}); err != nil {
		cancel(err) // nobody has learnt the cluster's name
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

// detach sends what is left to say (a panic, at worst) into the cluster's directory.
func detach(c *Cluster) {
	log, err := os.OpenFile(filepath.Join(c.dir, supervisor), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer log.Close()
	unix.Dup3(int(log.Fd()), 1, 0)
	unix.Dup3(int(log.Fd()), 2, 0)
}
