package isolate

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/linejson"
)

// maxScratch is how many of the user's own entries of /tmp are visible.
const maxScratch = 4096

// hostTrees belong to the host, regardless of what is mounted there.
var hostTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run"}

// scratchTrees are directories in which users have their own files among those of others.
var scratchTrees = []string{"/tmp", "/var/tmp"}

// pseudo are file systems that present a kernel's state instead of files.
var pseudo = map[string]bool{
	"proc": true, "sysfs": true, "devtmpfs": true, "devpts": true, "cgroup": true, "cgroup2": true,
	"securityfs": true, "debugfs": true, "tracefs": true, "configfs": true, "fusectl": true, "mqueue": true,
	"bpf": true, "pstore": true, "efivarfs": true, "selinuxfs": true, "binfmt_misc": true, "rpc_pipefs": true,
	"hugetlbfs": true, "nfsd": true, "resctrl": true, "smackfs": true,
}

// veiled is the set of covers that the child has made.
type veiled struct {
	locked  bool
	trees   bool
	covered map[string]bool
	scratch []*scratch
}

// veilChild makes a veil in the namespace that it was started in, and keeps it until its socket is closed.
func veilChild() error {
	unix.CloseRange(childFD+1, math.MaxUint32, 0) // files that this program inherited
	sock := os.NewFile(childFD, "veil")
	in := bufio.NewReader(sock)
	var o veilOrder
	switch err := linejson.Read(in, &o); {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return nil // the caller has exited
	case err != nil:
		return err
	}
	v := &veiled{locked: o.Locked, trees: o.Trees, covered: map[string]bool{}}
	files, err := v.begin(o)
	if err != nil {
		return linejson.Write(sock, veilAnswer{err.Error()})
	}
	var dirs []int
	if o.Trees {
		dirs, files = files[:len(o.Dirs)], files[len(o.Dirs):]
	}
	for _, f := range files {
		if sendFile(f) != nil {
			return nil
		}
	}
	for {
		order, err := in.ReadByte()
		if err != nil {
			return nil
		}
		if order == 't' {
			var i, tree int
			if _, err = fmt.Fscanf(in, "%d\n", &i); err != nil || i < 0 || i >= len(dirs) {
				return nil
			}
			if tree, err = lockedTree(dirs[i], o.Dirs[i], slices.Contains(o.Write, o.Dirs[i])); err != nil {
				err = linejson.Write(sock, veilAnswer{err.Error()})
			} else {
				err = sendFile(tree)
			}
		} else {
			v.refresh()
			_, err = sock.Write([]byte{'k'})
		}
		if err != nil {
			return nil
		}
	}
}

// sendFile sends a file to the caller, and closes it.
func sendFile(fd int) error {
	defer unix.Close(fd)
	return unix.Sendmsg(childFD, []byte{'f'}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
}

// begin makes the mounts and opens the directories, followed by the namespace.
func (v *veiled) begin(o veilOrder) ([]int, error) {
	// A file system that is mounted on the host later (autofs) also appears here; nothing propagates back.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("mount namespace: %w", err)
	}
	if v.trees {
		// Later mounts here propagate to the trees that are copied from here.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
			return nil, fmt.Errorf("mount namespace: %w", err)
		}
	}
	// /proc itself will be covered: it stays the working directory.
	if err := unix.Chdir("/proc"); err != nil {
		return nil, fmt.Errorf("/proc: %w", err)
	}
	ns, err := unix.Open("self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount namespace: %w", err)
	}
	// The directories come first: one that is itself in a covered tree was requested.
	var files []int
	for _, dir := range o.Dirs {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		files = append(files, fd)
	}
	for _, path := range append(append([]string{}, hostTrees...), o.Hidden...) {
		if err := v.cover(path); err != nil {
			return nil, err
		}
	}
	if err := v.coverMounts(); err != nil {
		return nil, err
	}
	for _, path := range scratchTrees {
		if err := v.coverScratch(path); err != nil {
			return nil, err
		}
	}
	if o.Locked {
		for i, dir := range o.Dirs {
			if files[i], err = lockDir(files[i], dir, slices.Contains(o.Write, dir)); err != nil {
				return nil, err
			}
		}
		if err := v.lock(); err != nil {
			return nil, err
		}
	}
	return append(files, ns), nil
}

// lockDir returns fd's directory as a tree of its own without a parent; / already is one. The kernel permits writes
// there only if write is set.
func lockDir(fd int, dir string, write bool) (int, error) {
	if dir == "/" && !write {
		return fd, nil
	}
	defer unix.Close(fd)
	return lockedTree(fd, dir, write)
}

// lockedTree is lockDir for any directory, which stays open.
func lockedTree(fd int, dir string, write bool) (int, error) {
	tree, err := unix.OpenTree(fd, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("%s as a tree of its own: %w", dir, err)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !write {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		unix.Close(tree)
		return -1, fmt.Errorf("%s as a tree of its own (Linux 5.12 can): %w", dir, err)
	}
	return tree, nil
}

// lock makes all mounts of the namespace read-only.
func (v *veiled) lock() error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("the view read-only (Linux 5.12 can): %w", err)
	}
	return nil
}

// refresh updates the view. Entries that cannot be updated now stay covered, or are retried the next time.
func (v *veiled) refresh() {
	v.coverMounts()
	for _, s := range v.scratch {
		s.update()
	}
	if v.locked {
		v.lock()
	}
}

// cover puts an empty directory over a directory. A missing or unreachable one needs none.
func (v *veiled) cover(path string) error {
	path = filepath.Clean(path)
	if v.isCovered(path) {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil
	}
	if err := unix.Mount("nearmetal", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=2,mode=0555"); err != nil {
		return fmt.Errorf("covering %s: %w", path, err)
	}
	v.covered[path] = true
	return nil
}

// isCovered reports whether path, or a parent of it, is covered.
func (v *veiled) isCovered(path string) bool {
	for ; ; path = filepath.Dir(path) {
		if v.covered[path] {
			return true
		}
		if path == "/" || path == "." {
			return false
		}
	}
}

// coverMounts covers all pseudo file systems.
func (v *veiled) coverMounts() error {
	text, err := os.ReadFile("self/mountinfo")
	if err != nil {
		return fmt.Errorf("the list of mounts: %w", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		// 36 35 98:0 /root /mount/point options … - type source options
		f := strings.Fields(line)
		for i := 6; i+1 < len(f); i++ {
			if f[i] == "-" {
				if pseudo[f[i+1]] {
					if err := v.cover(unescape(f[4])); err != nil {
						return err
					}
				}
				break
			}
		}
	}
	return nil
}

// unescape decodes \040 in a path of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// scratch is a directory like /tmp, in which only the user's own entries are visible.
type scratch struct {
	path  string
	old   *os.File          // the directory itself
	shown map[string]unixID // visible entries, by name
	// readOnly: entries are read-only from the start, for trees that get them at once.
	readOnly bool
}

// unixID identifies a file.
type unixID struct {
	dev, ino uint64
	mode     uint32 // its type
}

// coverScratch covers a directory and makes the user's own entries in it visible.
func (v *veiled) coverScratch(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || v.isCovered(path) {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return v.cover(path) // the user cannot list it either
	}
	old := os.NewFile(uintptr(fd), path)
	if err := unix.Mount("nearmetal", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=1777"); err != nil {
		return fmt.Errorf("covering %s: %w", path, err)
	}
	s := &scratch{path, old, map[string]unixID{}, v.trees}
	v.scratch = append(v.scratch, s)
	s.update()
	return nil
}

// update makes exactly the user's current entries visible. The user is 0 in the namespace, or root.
func (s *scratch) update() {
	if _, err := s.old.Seek(0, 0); err != nil {
		return
	}
	names, err := s.old.Readdirnames(-1)
	if err != nil {
		return
	}
	unix.Mount("", s.path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, "")
	defer unix.Mount("", s.path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_RDONLY, "")
	there := make(map[string]bool, len(names))
	for _, name := range names {
		fd, err := unix.Openat(int(s.old.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Uid == 0 {
			id := unixID{st.Dev, st.Ino, st.Mode & unix.S_IFMT}
			was, ok := s.shown[name]
			if ok && was != id {
				s.hide(name)
				ok = false
			}
			there[name] = ok || len(s.shown) < maxScratch && s.show(name, fd, id)
		}
		unix.Close(fd)
	}
	for name := range s.shown {
		if !there[name] {
			s.hide(name)
		}
	}
}

// show makes the entry that fd has open visible.
func (s *scratch) show(name string, fd int, id unixID) bool {
	at := filepath.Join(s.path, name)
	switch id.mode {
	case unix.S_IFLNK:
		b := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, "", b)
		if err != nil || unix.Symlink(string(b[:n]), at) != nil {
			return false
		}
		s.shown[name] = id
		return true
	case unix.S_IFDIR:
		if unix.Mkdir(at, 0o700) != nil {
			return false
		}
	case unix.S_IFREG:
		f, err := unix.Open(at, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return false
		}
		unix.Close(f)
	default:
		return false // sockets, pipes and devices are not files
	}
	s.shown[name] = id
	if s.bind(fd, at) != nil {
		s.hide(name)
		return false
	}
	return true
}

// bind mounts the file or directory that fd has open at a path.
func (s *scratch) bind(fd int, at string) error {
	if !s.readOnly {
		return unix.Mount(fmt.Sprintf("self/fd/%d", fd), at, "", unix.MS_BIND|unix.MS_REC, "")
	}
	tree, err := lockedTree(fd, at, false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// hide removes an entry from the view.
func (s *scratch) hide(name string) {
	at := filepath.Join(s.path, name)
	unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if s.shown[name].mode == unix.S_IFDIR {
		unix.Rmdir(at)
	} else {
		unix.Unlink(at)
	}
	delete(s.shown, name)
}
