package isolate

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// childFD is the first file that a child inherits from this process: its end of a socket pair.
const childFD = 3

// children are the programs that this one can act as, by the name under which it is started.
var children = map[string]func() error{}

// init runs a program of children if this program was started under its name. Every program that uses the package can
// act as one, including tests.
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

// child is this program as one of children, to be started in new namespaces.
type child struct {
	*exec.Cmd
	users *users // nil: the child needs no user namespace
}

// users are the IDs of this process's user and group in a child's user namespace.
type users struct{ uid, gid int }

// heldRights are the capabilities with which a child in a user namespace makes its mounts.
var heldRights = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SETPCAP, unix.CAP_DAC_OVERRIDE}

// childCommand prepares this program as the child called name, in new namespaces. flags are CLONE_NEW…; if this
// process may not make namespaces it adds a user namespace, in which the caller has the IDs uid and gid. When the
// child has started, the caller calls mapUser.
func childCommand(name string, flags uintptr, uid, gid int) *child {
	c := &child{Cmd: &exec.Cmd{Path: "/proc/self/exe", Args: []string{name}, Dir: "/", Env: []string{}}}
	attr := &syscall.SysProcAttr{Cloneflags: flags}
	if !privileged() {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.AmbientCaps = heldRights // no user is mapped yet to whom an exec could give them
		c.users = &users{uid, gid}
	}
	c.SysProcAttr = attr
	return c
}

// mapUser maps the child's user and group, once it has started; until then the child waits for its order.
//
// SysProcAttr would do this before the child executes its program. But then the child still is a copy of this
// process, and if other processes of the user may not inspect this one (PR_SET_DUMPABLE), its files in /proc belong
// to root.
func (c *child) mapUser() error {
	if c.users == nil {
		return nil
	}
	for _, f := range []struct {
		name, text string
	}{
		{"uid_map", fmt.Sprintf("%d %d 1\n", c.users.uid, os.Geteuid())},
		{"setgroups", "deny"},
		{"gid_map", fmt.Sprintf("%d %d 1\n", c.users.gid, os.Getegid())},
	} {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", c.Process.Pid, f.name), []byte(f.text), 0); err != nil {
			return &NoNamespace{plain(err)}
		}
	}
	return nil
}

// OneUser reports whether a jail of this process is in a user namespace, in which its user and group are the only
// ones.
func OneUser() bool { return !privileged() }

// privileged reports whether this process may make namespaces without a user namespace.
func privileged() bool {
	var data [2]unix.CapUserData
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if os.Geteuid() != 0 || unix.Capget(&h, &data[0]) != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}
