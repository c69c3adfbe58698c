package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/session"
	"nearmetal/internal/terminal"
)

// patience bounds the time between SIGTERM and the end of a command that is being terminated.
const patience = 3 * time.Second

// runHere runs a command on this host and returns its exit status. Signals from sigs are passed on; when ctx ends,
// the command is terminated. It dies with this process.
func runHere(ctx context.Context, sigs <-chan os.Signal, args, env []string, s session.Streams) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = time.Second // a grandchild may have the outputs open
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		// PDEATHSIG is sent when the thread that started the child ends, so this one has to stay.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return 0, fmt.Errorf("cannot start %s: %w", args[0], unwrap(err))
	}
	raiseOpenFiles(cmd.Process.Pid)
	given := ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case sig := <-sigs:
			// Ctrl-C at a terminal has already reached the command, which is in this process group; a second signal
			// would make an MPI launcher abort at once.
			if !(sig == unix.SIGINT && terminal.Foreground()) {
				cmd.Process.Signal(sig)
			}
		case <-given:
			given = nil
			cmd.Process.Signal(unix.SIGTERM)
			t := time.NewTimer(patience)
			defer t.Stop()
			kill = t.C
		case <-kill:
			cmd.Process.Kill()
		case err := <-ended:
			return exitCode(cmd.ProcessState, err)
		}
	}
}

// openFiles is the minimum number of files that a command on this host may open, if its hard limit permits. Open MPI
// 4's mpirun closes every possible descriptor between fork and exec of its remote shell. If the child finishes that
// before the parent runs again, the parent's setpgid fails, and mpirun prints a warning: in 13 and 3 of 40 runs with
// the usual 1024, in none of 2 times 40 with 20000.
const openFiles = 20000

// raiseOpenFiles raises the soft limit of open files of a process to openFiles, at most to its hard limit. Errors are
// ignored, because only a warning depends on it.
func raiseOpenFiles(pid int) {
	var l unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &l) != nil || l.Cur >= openFiles {
		return
	}
	l.Cur = min(l.Max, openFiles)
	unix.Prlimit(pid, unix.RLIMIT_NOFILE, &l, nil)
}

// unwrap removes the path from an error that is reported with its path anyway.
func unwrap(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// exitCode returns a child's status as a shell would.
func exitCode(st *os.ProcessState, err error) (int, error) {
	if st == nil {
		return 0, err
	}
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return st.ExitCode(), nil
}
