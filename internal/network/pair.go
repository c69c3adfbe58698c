package network

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/sockpair"
)

// Pair returns the two ends of a link between two VMs, each for QEMU's `-netdev
// stream,server=off,addr.type=fd,addr.str=N`. The caller closes both once the QEMUs have them, after which the link
// lives as long as the VMs; or it keeps an end for the next process of its VM (Drain).
func Pair() (a, b *os.File, err error) {
	if a, b, err = sockpair.Files("link"); err != nil {
		return nil, nil, fmt.Errorf("network: cannot make a link: %w", err)
	}
	for _, f := range []*os.File{a, b} {
		// Room for some of the largest frames; the kernel treats the size as a hint.
		unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	return a, b, nil
}

// The bounds of Drain.
const (
	drainQuiet = 50 * time.Millisecond
	drainMost  = time.Second
)

// Drain discards the bytes waiting at an end of a link whose VM has ended, until none arrive for a while: then the
// sender is between two frames. It fails after a second of bytes without a pause.
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
		case n == 0: // the other VM has ended too
			return nil
		default:
			last = time.Now()
		}
	}
	return nil
}
