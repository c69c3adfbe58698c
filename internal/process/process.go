// Package process names a process so that it is never mistaken for a later one with its number.
package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
var ErrGone = errors.New("the process no longer exists")

// Open returns the process that has a number now; ErrGone if there is none. The caller closes it.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	return &Process{pid, fd}, nil
}

// Find returns the process with this number and start; ErrGone if it has ended, whoever has the
// number now. The caller closes it.
func Find(pid int, start string) (*Process, error) {
	// The pidfd is taken before the start time is read: a signal then goes to the process that was
	// looked at, or to none.
	p, err := Open(pid)
	if err != nil {
		return nil, err
	}
	if now, err := Start(pid); errors.Is(err, fs.ErrNotExist) || err == nil && now != start {
		p.Close()
		return nil, ErrGone
	} else if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// IDs are a process's real, effective, saved and file-system user or group.
type IDs [4]int

// Owner returns the users and groups of the process; ErrGone if it has ended.
func (p *Process) Owner() (users, groups IDs, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if ended, perr := p.poll(0); ended || perr != nil || errors.Is(err, fs.ErrNotExist) {
		return users, groups, ErrGone // the number may be another's since
	}
	if err != nil {
		return users, groups, err
	}
	n := 0
	for _, line := range strings.Split(string(text), "\n") {
		var ids *IDs
		key, v, _ := strings.Cut(line, ":")
		switch key {
		case "Uid":
			ids = &users
		case "Gid":
			ids = &groups
		default:
			continue
		}
		if k, err := fmt.Sscan(v, &ids[0], &ids[1], &ids[2], &ids[3]); k == 4 && err == nil {
			n++
		}
	}
	if n != 2 {
		return users, groups, fmt.Errorf("/proc/%d/status names no user and group", p.PID)
	}
	return users, groups, nil
}

// Runs reports whether the process is root's in every way and runs a program whose file has a name. Command lines and
// names of processes prove nothing: whoever starts a program chooses them, a set-user-ID one of root's too. It is for root.
func (p *Process) Runs(program string) bool {
	users, _, err := p.Owner()
	if err != nil || users != (IDs{}) {
		return false
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if ended, perr := p.poll(0); ended || perr != nil || err != nil {
		return false
	}
	// A program replaced since is "/usr/sbin/NAME (deleted)", one without a file "/memfd:NAME (deleted)".
	name := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	return strings.TrimPrefix(name, "memfd:") == program
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
