package network

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a link between two VMs, each for QEMU's
// `-netdev stream,server=off,addr.type=fd,addr.str=N`. The caller closes both once the
// QEMUs have them, and the link then lives as long as the VMs; or keeps an end for the next process of its VM (Drain).
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("network: cannot make a link: %w", err)
	}
	for _, fd := range fds {
		// Room for some of the largest frames; the kernel takes the size as a wish.
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), nil
}

// The bounds of Drain.
const (
	drainQuiet = 50 * time.Millisecond
	drainMost  = time.Second
)

// Drain reads what waits at an end of a link whose VM has ended, until nothing comes for a while: then whoever sends
// is between two frames. It ends after a second of sending without a pause.
func Drain(end *os.File) error {
	buf := make([]byte, 256<<10)
	raw, err := end.SyscallConn()
	if err != nil {
		return err
	}
	start := time.Now()
	for last := start; time.Since(last) < drainQuiet && time.Since(start) < drainMost; {
		n := 0
		if err := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT) }); err != nil {
			return err
		}
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
			time.Sleep(drainQuiet / 10)
		case err != nil:
			return fmt.Errorf("network: a link cannot be emptied: %w", err)
		case n == 0: // its other VM has ended too
			return nil
		default:
			last = time.Now()
		}
	}
	return nil
}
