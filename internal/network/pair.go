package network

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/sockpair"
)

// Pair returns the two ends of a link between two VMs, each for QEMU's
// `-netdev stream,server=off,addr.type=fd,addr.str=N`. The caller closes both once the
// QEMUs have them, and the link then lives as long as the VMs; or keeps an end for the next process of its VM (Drain).
func Pair() (a, b *os.File, err error) {
	if a, b, err = sockpair.Files("link"); err != nil {
		return nil, nil, fmt.Errorf("network: cannot make a link: %w", err)
	}
	for _, f := range []*os.File{a, b} {
		// Room for some of the largest frames; the kernel takes the size as a wish.
		unix.SetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	}
	return a, b, nil
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
