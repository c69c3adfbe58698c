package isolate

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// childFD is the first file that a child gets from us: its end of a socket pair.
const childFD = 3

// children are the programs that this one can be, by the name under which it is started.
var children = map[string]func() error{}

// init takes over where this program was started as one of children. Every program that
// uses the package can be, tests too.
func init() {
	children[veilName] = veilChild
	children[jailName] = jailChild
	f, ok := children[os.Args[0]]
	if !ok {
		return
	}
	runtime.LockOSThread()
	if err := f(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childCommand prepares this program as the child called name, in new namespaces.
// flags are CLONE_NEW…; where this process may not make namespaces it adds one for users, in which
// the caller is user 0.
func childCommand(name string, flags uintptr) *exec.Cmd {
	attr := &syscall.SysProcAttr{Cloneflags: flags}
	if !privileged() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return &exec.Cmd{Path: "/proc/self/exe", Args: []string{name}, Dir: "/", Env: []string{}, SysProcAttr: attr}
}

// OneUser reports whether a jail of this process is in a user namespace, in which its user and group are the only ones.
func OneUser() bool { return !privileged() }

// privileged reports whether this process may make namespaces without one for users.
func privileged() bool {
	var data [2]unix.CapUserData
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if os.Geteuid() != 0 || unix.Capget(&h, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
