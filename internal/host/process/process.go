// Package process names a process so that it is never mistaken for a later one with its number.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stat returns the fields of a process from the third one on (proc(5), stat), 20 at least. fs.ErrNotExist: there is none.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The command's name, in brackets, may itself hold blanks and brackets.
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return nil, fmt.Errorf("/proc/%d/stat: no command", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(f))
	}
	return f, nil
}

// Start returns when a process began, in clock ticks since boot (field 22): with the number it names the
// process. fs.ErrNotExist: there is none.
func Start(pid int) (string, error) {
	f, err := stat(pid)
	if err != nil {
		return "", err
	}
	return f[19], nil
}

// Process is a process that runs, or ran when it was found.
type Process struct {
	PID int
	fd  int
}

// ErrGone is Find's error for a process that has ended.
var ErrGone = errors.New("there is no such process any more")

// Find returns the process with this number and start; ErrGone if it has ended, whoever has the
// number now. The caller closes it.
func Find(pid int, start string) (*Process, error) {
	// The pidfd is taken before the start time is read: a signal then goes to the process that was
	// looked at, or to none.
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	if now, err := Start(pid); errors.Is(err, fs.ErrNotExist) || err == nil && now != start {
		unix.Close(fd)
		return nil, ErrGone
	} else if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Process{pid, fd}, nil
}

// Kill ends the process by SIGKILL and waits until it has ended, for the time given at most. did is
// false for one that had ended before.
func (p *Process) Kill(wait time.Duration) (did bool, err error) {
	if err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0); err == unix.ESRCH {
		return false, nil
	} else if err != nil {
		return false, err
	}
	for end := time.Now().Add(wait); time.Now().Before(end); {
		ended, err := p.poll(int(time.Until(end).Milliseconds()))
		if ended || err != nil {
			return ended, err
		}
	}
	return false, fmt.Errorf("it did not end within %v of SIGKILL", wait)
}

// Wait returns when the process has ended.
func (p *Process) Wait() error {
	for {
		if ended, err := p.poll(-1); ended || err != nil {
			return err
		}
	}
}

// exiting is a flag of a process that the kernel takes apart (PF_EXITING in its sched.h; proc(5), stat field 9). It
// is set before descriptors are closed.
const exiting = 0x4

// Ending reports whether the process has ended, or is about to: whoever saw a socket of its close gets true.
func (p *Process) Ending() bool {
	f, err := stat(p.PID)
	if ended, perr := p.poll(0); ended || perr != nil {
		return ended // the number may be another's since
	}
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return err == nil && flags&exiting != 0
}

// poll waits for the process's end for some ms; -1: without a bound.
func (p *Process) poll(ms int) (ended bool, err error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, ms)
	if err == unix.EINTR {
		err = nil
	}
	return n == 1, err
}

// Close closes the process's descriptor; the process is left as it is.
func (p *Process) Close() error { return unix.Close(p.fd) }
