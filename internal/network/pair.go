package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a link between two VMs, each for QEMU's
// `-netdev stream,server=off,addr.type=fd,addr.str=N`. The caller closes both once the
// QEMUs have them; the link then lives as long as the VMs.
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
