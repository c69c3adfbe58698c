package terminal

import "golang.org/x/sys/unix"

// Foreground reports whether this process is in the foreground of its terminal, where a key such as Ctrl-C signals it
// together with its children.
func Foreground() bool {
	group, ok := foregroundGroup()
	return ok && group == unix.Getpgrp()
}

// background reports whether this process is in the background of its terminal, as after "&". There its output would
// overwrite what the user types.
func background() bool {
	group, ok := foregroundGroup()
	return ok && group != unix.Getpgrp()
}

// foregroundGroup returns the process group in the foreground of this process's terminal; ok is false if it has no
// terminal.
func foregroundGroup() (group int, ok bool) {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return group, err == nil
}
