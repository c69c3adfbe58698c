// Package process identifies a process so that it cannot be mistaken for a later one with the same number.
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

// stat returns the fields of a process from the third one on (proc(5), stat), at least 20. It returns fs.ErrNotExist
// if there is no such process.
func stat(pid int) ([]string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The command's name, in parentheses, may itself contain blanks and parentheses.
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

// Start returns the start time of a process, in clock ticks since boot (field 22 of stat). Number and start time
// together identify a process. It returns fs.ErrNotExist if there is no such process.
func Start(pid int) (string, error) {
	f, err := stat(pid)
	if err != nil {
		return "", err
	}
	return f[19], nil
}

// Process is a running process, or one that ran when it was found.
type Process struct {
	PID int
	fd  int
}

// ErrGone is the error for a process that has ended.
var ErrGone = errors.New("the process no longer exists")

// Open returns the process that has the number pid now; ErrGone if there is none. The caller closes it.
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

// Find returns the process with this number and start time; ErrGone if it has ended, even if another process has the
// number now. The caller closes it.
func Find(pid int, start string) (*Process, error) {
	// The pidfd is opened before the start time is read, so that a signal reaches the checked process or none.
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

// IDs are a process's real, effective, saved and file-system user or group IDs.
type IDs [4]int

// Owner returns the user and group IDs of the process; ErrGone if it has ended.
func (p *Process) Owner() (users, groups IDs, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if ended, perr := p.poll(0); ended || perr != nil || errors.Is(err, fs.ErrNotExist) {
		return users, groups, ErrGone // another process may have the number by now
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

// Runs reports whether all user IDs of the process are root's and its program's file is called program. Command lines
// and names of processes prove nothing, because the user who starts a program chooses them, even those of a
// set-user-ID program of root. Runs needs root.
func (p *Process) Runs(program string) bool {
	users, _, err := p.Owner()
	if err != nil || users != (IDs{}) {
		return false
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	if ended, perr := p.poll(0); ended || perr != nil || err != nil {
		return false
	}
	// A replaced program is "/usr/sbin/NAME (deleted)", one without a file "/memfd:NAME (deleted)".
	name := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	return strings.TrimPrefix(name, "memfd:") == program
}

// Kill ends the process with SIGKILL and waits until it has ended, at most for wait. did is false if the process had
// ended before.
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

// Wait waits until the process has ended.
func (p *Process) Wait() error {
	for {
		if ended, err := p.poll(-1); ended || err != nil {
			return err
		}
	}
}

// exiting is the flag of a process that the kernel is ending (PF_EXITING in its sched.h; proc(5), stat field 9). The
// kernel sets it before it closes the descriptors.
const exiting = 0x4

// Ending reports whether the process has ended or is ending. It returns true to any caller that has seen a socket of
// the process close.
func (p *Process) Ending() bool {
	f, err := stat(p.PID)
	if ended, perr := p.poll(0); ended || perr != nil {
		return ended // another process may have the number by now
	}
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return err == nil && flags&exiting != 0
}

// poll waits up to ms milliseconds for the process's end; -1: without a limit.
func (p *Process) poll(ms int) (ended bool, err error) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, ms)
	if err == unix.EINTR {
		err = nil
	}
	return n == 1, err
}

// Close closes the descriptor; the process is not affected.
func (p *Process) Close() error { return unix.Close(p.fd) }
