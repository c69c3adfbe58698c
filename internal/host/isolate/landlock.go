package isolate

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock's access rights for files, by the ABI that introduced them.
const (
	llFS1 = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // EXECUTE to MAKE_SYM
	llFS2 = unix.LANDLOCK_ACCESS_FS_REFER
	llFS3 = unix.LANDLOCK_ACCESS_FS_TRUNCATE
	llFS5 = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

	llRead   = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	llDevice = llRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | llFS5
	// llFile are the rights that a rule for a single file may name.
	llFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | llFS3 | llFS5
	// llWrite are a guest's rights to a share: all except devices and programs of the host.
	llWrite = (llFS1 | llFS2 | llFS3) &^ (unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR)
)

// LandlockABI returns this kernel's version of Landlock; 0: none, or disabled.
func LandlockABI() int {
	n, _, err := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(n)
}

// fullABI is the ABI from which on Landlock provides everything that a jail requests.
const fullABI = 6

// LandlockLacks describes the requests of a jail that this kernel's Landlock does not support; "": none.
func LandlockLacks() string { return landlockLacks(LandlockABI()) }

func landlockLacks(abi int) string {
	switch {
	case abi >= fullABI:
		return ""
	case abi == 0:
		return "this kernel has no Landlock, or does not start it (lsm= on its command line): file access is narrowed by namespaces alone"
	}
	what := "signals and abstract sockets (Linux 6.12)"
	for _, l := range []struct {
		from int
		what string
	}{{5, "device control (6.10)"}, {4, "TCP ports (6.7)"}, {3, "truncation (6.2)"}, {2, "moves between directories, which are refused (5.19)"}} {
		if abi < l.from {
			what = l.what + ", " + what
		}
	}
	return fmt.Sprintf("this kernel's Landlock (ABI %d) does not know %s", abi, what)
}

// ruleset returns a jail's requests to a kernel with this ABI.
func ruleset(abi int, network bool) unix.LandlockRulesetAttr {
	r := unix.LandlockRulesetAttr{Access_fs: llFS1}
	if abi >= 2 {
		r.Access_fs |= llFS2
	}
	if abi >= 3 {
		r.Access_fs |= llFS3
	}
	if abi >= 4 {
		r.Access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP
		if !network {
			r.Access_net |= unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if abi >= 5 {
		r.Access_fs |= llFS5
	}
	if abi >= 6 {
		r.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return r
}

// landlock puts this thread, and the program that it executes, under the rules of the jail. Without Landlock in the
// kernel it does nothing: the caller of Jail reports that before (LandlockLacks).
func (j *Jail) landlock() error {
	abi := LandlockABI()
	if abi == 0 {
		return nil
	}
	set := ruleset(abi, j.Network)
	fd, _, no := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0)
	if no != 0 {
		return fmt.Errorf("Landlock: %w", no)
	}
	defer unix.Close(int(fd))
	add := func(file int, rights uint64) error {
		var st unix.Stat_t
		if err := unix.Fstat(file, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			rights &= llFile
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & set.Access_fs, Parent_fd: int32(file)}
		_, _, no := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		if no != 0 && no != unix.EBADFD { // a file without a path, such as memory, may be opened freely
			return no
		}
		return nil
	}
	path := func(name string, rights uint64, optional bool) error {
		file, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT && optional {
			return nil
		}
		if err == nil {
			err = add(file, rights)
			unix.Close(file)
		}
		if err != nil {
			return fmt.Errorf("Landlock: %s: %w", name, err)
		}
		return nil
	}
	errs := []error{path("/proc", llRead, false), path(besideProc, llRead, true)}
	for _, d := range jailDevices {
		errs = append(errs, path(d, llDevice, false))
	}
	for _, b := range j.Binds {
		rights := uint64(llRead)
		if b.Exec {
			rights |= unix.LANDLOCK_ACCESS_FS_EXECUTE
		}
		if b.Device {
			rights = llDevice
		}
		at := b.At
		if at == "" {
			at = b.Path
		}
		errs = append(errs, path(at, rights, b.Optional))
	}
	for i, f := range j.Files {
		if !f.Reopen {
			continue
		}
		rights := uint64(llRead)
		if f.Write {
			rights |= llWrite
		}
		if err := add(childFD+i, rights); err != nil {
			errs = append(errs, fmt.Errorf("Landlock: descriptor %d: %w", childFD+i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if _, _, no := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); no != 0 {
		return fmt.Errorf("Landlock: %w", no)
	}
	return nil
}
