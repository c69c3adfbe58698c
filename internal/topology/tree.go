package topology

import (
	"archive/tar"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a file system with sysfs and proc: a directory, or an archive in memory. Paths are relative to its root,
// without a leading slash. Links are followed and never lead out of the tree.
type tree interface {
	// read returns a regular file's text: at most its first max bytes, up to the first NUL.
	read(name string, max int) (string, error)
	// list returns the names in a directory, sorted.
	list(name string) ([]string, error)
	// resolve returns the path with all links resolved.
	resolve(name string) (string, error)
}

// fileMax bounds the bytes read of one attribute. The longest are the CPU lists of machines with thousands of CPUs.
const fileMax = 64 << 10

// dirTree is a directory, "/" for the running host.
type dirTree struct {
	root string
	dirs map[string]string // directories already resolved
	fd   *os.File          // the root, for openat2; nil: the kernel does not support it
}

func openDir(root string) (*dirTree, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s: not a directory", root)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	real, err = filepath.Abs(real)
	if err != nil {
		return nil, err
	}
	t := &dirTree{root: real, dirs: map[string]string{}}
	if f, err := os.Open(real); err == nil {
		if fd, err := unix.Openat2(int(f.Fd()), ".", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}); err == nil {
			unix.Close(fd)
			t.fd = f
		} else {
			f.Close()
		}
	}
	return t, nil
}

// quick is read with only four system calls: it follows links as if the root were "/" (openat2(2), RESOLVE_IN_ROOT), so
// that none leads out. A machine with hundreds of CPUs has tens of thousands of attributes.
func (t *dirTree) quick(name string, max int) (string, error) {
	fd, err := unix.Openat2(int(t.fd.Fd()), name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT})
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", fmt.Errorf("%s: not a regular file", name)
	}
	b := make([]byte, min(max, 4096))
	n := 0
	for {
		m, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", &os.PathError{Op: "read", Path: name, Err: err}
		}
		n += m
		if m == 0 || n == max {
			return string(b[:n]), nil
		}
		if n == len(b) {
			b = append(b, make([]byte, min(len(b), max-len(b)))...)
		}
	}
}

func (t *dirTree) resolve(name string) (string, error) {
	p, err := filepath.EvalSymlinks(filepath.Join(t.root, name))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(t.root, p)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("%s: a link that leads out of %s", name, t.root)
	}
	return rel, nil
}

// real returns the path to open. For the root "/" that is the path itself, because links cannot lead out of it.
func (t *dirTree) real(name string) (string, error) {
	if t.root == "/" {
		return "/" + name, nil
	}
	dir, base := path.Split(name)
	at, ok := t.dirs[dir]
	if !ok {
		rel, err := t.resolve(dir)
		if err != nil {
			return "", err
		}
		at = filepath.Join(t.root, rel)
		if len(t.dirs) < 1<<16 {
			t.dirs[dir] = at
		}
	}
	p := filepath.Join(at, base)
	if st, err := os.Lstat(p); err != nil || st.Mode()&os.ModeSymlink == 0 {
		return p, err
	}
	rel, err := t.resolve(name)
	return filepath.Join(t.root, rel), err
}

// upToNUL ends text at its first NUL, as C does. Old kernels, and captures that filled a page, have NULs after a value.
func upToNUL(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

func (t *dirTree) read(name string, max int) (string, error) {
	s, err := t.whole(name, max)
	return upToNUL(s), err
}

// whole is read without regard to NULs.
func (t *dirTree) whole(name string, max int) (string, error) {
	if t.fd != nil {
		return t.quick(name, max)
	}
	p, err := t.real(name)
	if err != nil {
		return "", err
	}
	// A captured tree could contain a FIFO or a device, which would block when opened.
	if st, err := os.Stat(p); err != nil {
		return "", err
	} else if !st.Mode().IsRegular() {
		return "", fmt.Errorf("%s: not a regular file", name)
	}
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(max)))
	return string(b), err
}

func (t *dirTree) list(name string) ([]string, error) {
	p, err := t.real(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(4 * MaxDevices)
	if err == io.EOF {
		err = nil
	}
	sort.Strings(names)
	return names, err
}

// memTree is an archive in memory: path to content, or to a link's target.
type memTree struct {
	files map[string]string
	links map[string]string
	dirs  map[string]map[string]bool
}

func newMemTree() *memTree {
	return &memTree{map[string]string{}, map[string]string{}, map[string]map[string]bool{}}
}

// add adds a file, and the directories above it.
func (t *memTree) add(name, content string) {
	name = path.Clean(name)
	t.files[name] = content
	t.parents(name)
}

// link adds a symbolic link.
func (t *memTree) link(name, target string) {
	name = path.Clean(name)
	t.links[name] = target
	t.parents(name)
}

func (t *memTree) parents(name string) {
	for name != "." && name != "/" {
		dir := path.Dir(name)
		if t.dirs[dir] == nil {
			t.dirs[dir] = map[string]bool{}
		} else if t.dirs[dir][path.Base(name)] {
			return
		}
		t.dirs[dir][path.Base(name)] = true
		name = dir
	}
}

func (t *memTree) resolve(name string) (string, error) {
	const mostLinks = 40 // as in Linux
	rest := strings.Split(path.Clean("/" + name)[1:], "/")
	at := "."
	for n := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if target, ok := t.links[next]; ok {
			if n++; n > mostLinks {
				return "", fmt.Errorf("%s: too many links", name)
			}
			if strings.HasPrefix(target, "/") {
				at = "."
			}
			rest = append(strings.Split(target, "/"), rest...)
			if len(rest) > 1000 {
				return "", fmt.Errorf("%s: path too long", name)
			}
			continue
		}
		at = next
	}
	if _, ok := t.files[at]; !ok && t.dirs[at] == nil {
		return "", fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return at, nil
}

func (t *memTree) read(name string, max int) (string, error) {
	p, err := t.resolve(name)
	if err != nil {
		return "", err
	}
	s, ok := t.files[p]
	if !ok {
		return "", fmt.Errorf("%s: not a regular file", name)
	}
	if len(s) > max {
		s = s[:max]
	}
	return upToNUL(s), nil
}

func (t *memTree) list(name string) ([]string, error) {
	p, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(t.dirs[p]))
	for n := range t.dirs[p] {
		names = append(names, n)
	}
	sort.Strings(names)
	return names, nil
}

// inTree reports whether a path is among those that are read.
func inTree(name string) bool {
	return strings.HasPrefix(name, "sys/") || strings.HasPrefix(name, "proc/")
}

// Bounds of an archive. A tree of a machine with 1,000 CPUs has 60,000 small files.
const (
	tarEntries = 2 << 20
	tarBytes   = 256 << 20 // of all files, unpacked
	tarFile    = 16 << 20  // of one file, kept or not
)

var errTarSize = errors.New("the archive is larger than any captured tree")

// readTar reads a tar archive, compressed by gzip or bzip2 or not at all, into memory, within bounds. It keeps only the
// files below sys/ and proc/.
func readTar(r io.Reader) (*memTree, error) {
	t := newMemTree()
	var magic [2]byte
	n, err := io.ReadFull(r, magic[:])
	if err != nil {
		return nil, errors.New("not a tar archive: too short")
	}
	r = io.MultiReader(strings.NewReader(string(magic[:n])), r)
	if magic == [2]byte{0x1f, 0x8b} {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("gzip: %w", err)
		}
		r = z
	} else if magic == [2]byte{'B', 'Z'} {
		r = bzip2.NewReader(r)
	}
	in := &io.LimitedReader{R: r, N: tarBytes + 1}
	tr := tar.NewReader(in)
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if in.N <= 0 || entries > tarEntries {
			return nil, errTarSize
		}
		if err == io.EOF {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("tar: %w", err)
		}
		if h.Size > tarFile {
			return nil, fmt.Errorf("tar: %s has %d MiB: no file of a captured tree is as large", clip(printable(h.Name)), h.Size>>20)
		}
		name := path.Clean("/" + h.Name)[1:]
		if !inTree(name) {
			// An archive may have one directory above the tree.
			if _, name, _ = strings.Cut(name, "/"); !inTree(name) {
				continue
			}
		}
		if len(name) > 1024 || len(h.Linkname) > 1024 {
			return nil, fmt.Errorf("tar: a name of more than 1024 bytes: %s", clip(name))
		}
		switch h.Typeflag {
		case tar.TypeReg:
			b, err := io.ReadAll(io.LimitReader(tr, fileMax))
			if err != nil {
				return nil, fmt.Errorf("tar: %s: %w", clip(name), err)
			}
			t.add(name, string(b))
		case tar.TypeSymlink:
			t.link(name, h.Linkname)
		}
	}
}
