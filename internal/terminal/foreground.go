package terminal

import "golang.org/x/sys/unix"

// Foreground tells whether this process is in the foreground of its terminal: a key such
// as Ctrl-C then signals it together with its children.
func Foreground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false // no controlling terminal
	}
	defer unix.Close(fd)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
