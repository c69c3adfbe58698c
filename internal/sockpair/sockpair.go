// Package sockpair makes connected pairs of stream sockets for communication between a process and its child.
package sockpair

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Files returns the two ends of a stream as files called name, closed on exec.
func Files(name string) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: socketpair: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}

// Conn returns the two ends of a stream called name: ours for this process, theirs for a child.
func Conn(name string) (ours *net.UnixConn, theirs *os.File, err error) {
	mine, theirs, err := Files(name)
	if err != nil {
		return nil, nil, err
	}
	defer mine.Close()
	c, err := net.FileConn(mine)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return c.(*net.UnixConn), theirs, nil
}
