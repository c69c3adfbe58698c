package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/process"
)

// Since returns the start time of the daemon at an address, by the wall clock, to 10 ms.
func (a Address) Since(ctx context.Context) (time.Time, error) {
	raw, err := connect(ctx, a)
	if err != nil {
		return time.Time{}, &NoDaemon{a, err}
	}
	defer raw.Close()
	pid, err := peer(raw)
	if err != nil {
		return time.Time{}, err
	}
	return began(pid)
}

// peer returns the PID of the process at the other end of a socket. If systemd listened for it, the only daemon run
// by root is returned.
func peer(raw net.Conn) (int, error) {
	s, ok := raw.(*net.UnixConn)
	if !ok {
		return 0, errors.New("libvirtd: not a socket of this host")
	}
	c, err := s.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var bad error
	if err := c.Control(func(fd uintptr) { cred, bad = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil || bad != nil {
		return 0, errors.Join(err, bad)
	}
	if isDaemon(int(cred.Pid)) {
		return int(cred.Pid), nil
	}
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range list {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && isDaemon(pid) {
			return pid, nil
		}
	}
	return 0, errors.New("libvirtd answers, and its process is not found")
}

// isDaemon reports whether a process is a libvirtd run by root.
func isDaemon(pid int) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	return p.Runs("libvirtd") || p.Runs("virtqemud")
}

// began returns the start time of a process.
func began(pid int) (time.Time, error) {
	start, err := process.Start(pid)
	if err != nil {
		return time.Time{}, err
	}
	ticks, err := strconv.ParseInt(start, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, err
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on x86
	return time.Now().Add(-time.Duration(boot.Nano())).Add(time.Duration(ticks) * tick), nil
}
