package isolate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/linejson"
)

// jailRoot is where the jail's file system is assembled: a directory that every host has.
const jailRoot = "/tmp"

// jailDevices are the devices in /dev that every program may open.
var jailDevices = []string{"/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"}

// errRight reports that namespaces can be made, but grant no rights in them.
var errRight = errors.New("no right to mount in it")

// jailChild becomes the program of a jail. It reports errors on its socket.
func jailChild() error {
	n := 0
	if len(os.Args) == 2 {
		n, _ = strconv.Atoi(os.Args[1])
	}
	if n < childFD {
		return errors.New("jail: no socket")
	}
	// The jail does not get files that this program inherited.
	if err := unix.CloseRange(uint(n)+1, math.MaxUint32, 0); err != nil {
		return fmt.Errorf("jail: closing what was inherited: %w", err)
	}
	unix.CloseOnExec(n)
	sock := os.NewFile(uintptr(n), "jail")
	var j Jail
	err := linejson.Read(bufio.NewReader(sock), &j)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil // the caller has exited
	}
	if err == nil {
		err = j.become(n)
	}
	return linejson.Write(sock, jailAnswer{err.Error(), errors.Is(err, errRight)})
}

// become makes the jail and executes the program in it; it returns only with an error.
func (j *Jail) become(sock int) error {
	if err := j.makeRoot(); err != nil {
		return err
	}
	if j.LockMemory && privileged() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
			return fmt.Errorf("memory that may be locked: %w", err)
		}
	}
	if n := j.OpenFiles; n != 0 {
		// By syscall: otherwise the program would get this one's old limit.
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("%d open files: %w", n, err)
		}
	}
	var keep uint32
	if j.DropsRights && privileged() {
		keep = 1 << unix.CAP_SETPCAP
	}
	if err := dropRights(keep); err != nil {
		return err
	}
	if !j.NoLandlock {
		if err := j.landlock(); err != nil {
			return err
		}
	}
	// A core file would contain the guest's memory.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("no core dumps: %w", err)
	}
	// Dropping rights may have cleared the caller's setting. If the caller died before this, its end of the socket is
	// closed.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("death signal: %w", err)
	}
	var b [1]byte
	if n, _, err := unix.Recvfrom(sock, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT); n == 0 && err == nil {
		os.Exit(1)
	}
	return fmt.Errorf("%s: %w", j.Args[0], syscall.Exec(j.Args[0], j.Args, j.Env))
}

// makeRoot assembles the jail's file system and makes it this process's root.
func (j *Jail) makeRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w (%v)", errRight, err)
	}
	// The bound files are opened before anything is covered.
	type tree struct {
		Bind
		fd  int
		dir bool
	}
	binds := j.Binds
	for _, d := range jailDevices {
		binds = append(binds, Bind{Path: d, Device: true})
	}
	var trees []tree
	for _, b := range binds {
		fd, err := unix.OpenTree(unix.AT_FDCWD, b.Path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err == unix.ENOENT && b.Optional {
			continue
		}
		if err != nil {
			return fmt.Errorf("showing %s: %w", b.Path, err)
		}
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if b.Device {
			attr.Attr_set = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return fmt.Errorf("showing %s read-only (Linux 5.12 can): %w", b.Path, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return fmt.Errorf("showing %s: %w", b.Path, err)
		}
		trees = append(trees, tree{b, fd, st.Mode&unix.S_IFMT == unix.S_IFDIR})
	}
	if err := unix.Mount("nearmetal", jailRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=1m,nr_inodes=4096,mode=0755"); err != nil {
		return fmt.Errorf("mount namespace: %w (%v)", errRight, err)
	}
	for _, t := range trees {
		at := t.At
		if at == "" {
			at = t.Path
		}
		if err := putAt(t.fd, jailRoot+filepath.Clean("/"+at), t.dir); err != nil {
			return fmt.Errorf("showing %s: %w", t.Path, err)
		}
		unix.Close(t.fd)
	}
	for i, f := range j.Files {
		if f.At == "" {
			continue
		}
		if err := putAt(childFD+i, jailRoot+filepath.Clean("/"+f.At), true); err != nil {
			return fmt.Errorf("showing a tree at %s: %w", f.At, err)
		}
		unix.CloseOnExec(childFD + i)
	}
	if err := j.makeProc(); err != nil {
		return err
	}
	if err := unix.Chdir(jailRoot); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("a root of its own (pivot_root): %w", err)
	}
	// The old root is now on top of the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the host's root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("its root read-only: %w", err)
	}
	return nil
}

// besideProc is where the program's own /proc is mounted if /proc has the files of ProcFiles.
const besideProc = "/.proc"

// makeProc makes /proc: with the program itself, and ProcFiles.
func (j *Jail) makeProc() error {
	at := "/proc"
	if len(j.ProcFiles) > 0 {
		at = besideProc
		if err := os.MkdirAll(jailRoot+"/proc", 0o755); err != nil {
			return err
		}
		if err := os.Symlink(besideProc+"/self", jailRoot+"/proc/self"); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(jailRoot+at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", jailRoot+at, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "subset=pid"); err != nil {
		return fmt.Errorf("a /proc of its own (in a container its /proc has to be free of covers): %w", err)
	}
	for path, text := range j.ProcFiles {
		path = jailRoot + filepath.Clean("/"+path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o444); err != nil {
			return err
		}
	}
	return nil
}

// putAt mounts a tree at path, which is created. A path that already exists in another tree is kept.
func putAt(fd int, path string, dir bool) error {
	var root, st unix.Stat_t
	if err := unix.Stat(jailRoot, &root); err != nil {
		return err
	}
	if err := unix.Lstat(path, &st); err == nil && (st.Dev != root.Dev || !dir) {
		return nil
	}
	parent := path
	if !dir {
		parent = filepath.Dir(path)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	if !dir {
		f, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o444)
		if err != nil {
			return err
		}
		unix.Close(f)
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// securebits permanently remove the capabilities that user 0 otherwise gets at an exec.
const securebits = 1<<0 | 1<<1 | // SECBIT_NOROOT, and locked
	1<<2 | 1<<3 | // SECBIT_NO_SETUID_FIXUP
	1<<5 | // SECBIT_KEEP_CAPS_LOCKED
	1<<6 | 1<<7 // SECBIT_NO_CAP_AMBIENT_RAISE

// dropRights drops all capabilities of this thread except those in keep, a set of the first 32, which the executed
// program also gets; and every way to gain others.
func dropRights(keep uint32) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&h, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	if keep != 0 {
		caps[0].Inheritable |= keep
		if err := unix.Capset(&h, &caps[0]); err != nil {
			return fmt.Errorf("capabilities to be kept: %w", err)
		}
		for c := range uintptr(32) {
			if keep&(1<<c) == 0 {
				continue
			}
			if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
				return fmt.Errorf("capabilities to be kept: %w", err)
			}
		}
	}
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL && c > unix.CAP_SYS_ADMIN {
			break // the last one that this kernel knows was the previous one
		} else if err != nil {
			return fmt.Errorf("dropping capabilities: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, securebits, 0, 0, 0); err != nil {
		return fmt.Errorf("securebits: %w", err)
	}
	caps = [2]unix.CapUserData{{Effective: keep, Permitted: keep, Inheritable: keep}}
	if err := unix.Capset(&h, &caps[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}
