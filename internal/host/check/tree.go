package check

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Bounds of one file in bytes and of one directory in names, because a captured tree may contain anything.
const (
	fileMax = 1 << 20
	listMax = 65536
)

// tree is a file system below a directory. Links are resolved as if the directory were the root (openat2(2),
// RESOLVE_IN_ROOT), so that they never lead out of it.
type tree struct {
	dir  int
	path string // "/" for this host
}

func openTree(root string) (*tree, error) {
	if root == "" {
		root = "/"
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	t := &tree{fd, root}
	if t.path != "/" && !t.has("/sys") && !t.has("/proc") {
		t.close()
		return nil, fmt.Errorf("%s: neither sys nor proc is in it", root)
	}
	return t, nil
}

func (t *tree) close() { unix.Close(t.dir) }

func (t *tree) open(name string, flags int) (int, error) {
	flags |= unix.O_CLOEXEC
	for {
		fd, err := unix.Openat2(t.dir, strings.TrimLeft(name, "/"), &unix.OpenHow{
			Flags: uint64(flags), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case (err == unix.ENOSYS || err == unix.EPERM) && t.path == "/":
			return unix.Open(name, flags, 0) // kernels before 5.6, and sandboxes that do not know the call
		}
		return fd, err
	}
}

// read returns at most fileMax bytes of a file. A file that is neither regular nor in /proc or /sys is not read,
// because a FIFO would block.
func (t *tree) read(name string) (string, error) {
	// Without O_NONBLOCK the open of a FIFO waits for a writer.
	fd, err := t.open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", errors.New("not a regular file")
	}
	buf := make([]byte, 4096)
	n := 0
	for {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		n += m
		if m == 0 || n >= fileMax {
			return string(buf[:n]), nil
		}
		if n == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// list returns the names in a directory, sorted; none if it cannot be read.
func (t *tree) list(name string) []string {
	fd, err := t.open(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	names, err := f.Readdirnames(listMax)
	if err != nil && err != io.EOF {
		return nil
	}
	sort.Strings(names)
	return names
}

// has reports whether a path exists; links are followed.
func (t *tree) has(name string) bool {
	fd, err := t.open(name, unix.O_PATH)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// link returns the last component of a symbolic link's target, or "".
func (t *tree) link(name string) string {
	fd, err := t.open(name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return ""
	}
	target := string(buf[:n])
	return target[strings.LastIndexByte(target, '/')+1:]
}
