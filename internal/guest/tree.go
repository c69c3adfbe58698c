package guest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// A tree is sent as records. A record is the length of its fields (4 bytes, little endian, at most maxRecord), the
// fields, and for a file `size` bytes. Fields: type (dir, file, link, end), path (relative to the copy's root, "."
// for the root itself), mode (octal permission bits), mtime (ns since 1970), size, target. A directory precedes its
// contents. `end` is the last record.

const (
	maxRecord = 16 << 10
	maxDepth  = 128
)

// localError is an error of this side's files, as opposed to the stream's.
type localError struct{ err error }

func (e *localError) Error() string {
	var path *os.PathError
	if errors.As(e.err, &path) {
		return path.Path + ": " + path.Err.Error() // without the name of the system call
	}
	return e.err.Error()
}
func (e *localError) Unwrap() error { return e.err }

// sendTree writes the records of a file or directory.
func sendTree(w io.Writer, root string) error {
	bw := bufio.NewWriterSize(w, channel.MaxPayload)
	err := filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return &localError{err}
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return &localError{err}
		}
		return sendEntry(bw, p, rel)
	})
	if err != nil {
		return err
	}
	if err := sendRecord(bw, channel.Fields{{Key: "type", Value: "end"}}); err != nil {
		return err
	}
	return bw.Flush()
}

func sendRecord(w io.Writer, f channel.Fields) error {
	b, err := f.Encode()
	if err != nil {
		return &localError{err}
	}
	if len(b) > maxRecord {
		return &localError{fmt.Errorf("%s: the name is too long to copy", f.Get("path"))}
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(b)))); err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

func sendEntry(w io.Writer, p, rel string) error {
	st, err := os.Lstat(p)
	if err != nil {
		return &localError{err}
	}
	f := channel.Fields{{Key: "path", Value: rel}}
	f.Add("mode", fmt.Sprintf("%o", unixMode(st.Mode())))
	f.AddInt("mtime", st.ModTime().UnixNano())
	switch {
	case st.IsDir():
		f.Add("type", "dir")
		return sendRecord(w, f)
	case st.Mode()&os.ModeSymlink != 0:
		t, err := os.Readlink(p)
		if err != nil {
			return &localError{err}
		}
		f.Add("type", "link")
		f.Add("target", t)
		return sendRecord(w, f)
	case !st.Mode().IsRegular():
		return &localError{fmt.Errorf("%s: neither a file, a directory nor a symbolic link", p)}
	}
	file, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return &localError{err}
	}
	defer file.Close()
	if st, err = file.Stat(); err != nil {
		return &localError{err}
	}
	if !st.Mode().IsRegular() {
		return &localError{fmt.Errorf("%s: is no longer a regular file", p)}
	}
	f.Add("type", "file")
	f.AddInt("size", st.Size())
	if err := sendRecord(w, f); err != nil {
		return err
	}
	src := &countReader{r: io.LimitReader(file, st.Size())}
	if _, err := io.Copy(w, src); err != nil {
		if src.err != nil {
			return &localError{src.err}
		}
		return err
	}
	if src.n != st.Size() {
		return &localError{fmt.Errorf("%s: became shorter while it was copied", p)}
	}
	return nil
}

// countReader counts the bytes read and keeps the reader's own error.
type countReader struct {
	r   io.Reader
	n   int64
	err error
}

func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// unixMode returns the permission bits of m. The set-ID bits are not copied.
func unixMode(m os.FileMode) uint32 {
	n := uint32(m.Perm())
	if m&os.ModeSticky != 0 {
		n |= unix.S_ISVTX
	}
	return n
}

// record is one checked record from the other side.
type record struct {
	kind   string
	path   []string // components; none for the root itself
	name   string   // path as received, for errors
	mode   uint32
	mtime  int64
	size   int64
	target string
}

// readRecord reads the next record's fields.
func readRecord(r io.Reader) (record, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return record{}, cutShort(err)
	}
	size := binary.LittleEndian.Uint32(n[:])
	if size > maxRecord {
		return record{}, fmt.Errorf("the VM sent a record of %d bytes", size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return record{}, cutShort(err)
	}
	f, err := channel.DecodeFields(b)
	if err != nil {
		return record{}, err
	}
	return parseRecord(f)
}

func cutShort(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the copy was cut short")
	}
	return err
}

func parseRecord(f channel.Fields) (record, error) {
	bad := func(what string) (record, error) {
		return record{}, fmt.Errorf("the VM sent a record with %s", what)
	}
	k := record{kind: f.Get("type"), name: text.CleanLines(f.Get("path")), target: f.Get("target")}
	if k.kind == "end" {
		return k, nil
	}
	if k.kind != "dir" && k.kind != "file" && k.kind != "link" {
		return bad(fmt.Sprintf("the type %q", text.CleanLines(k.kind)))
	}
	var err error
	if k.path, err = splitPath(f.Get("path")); err != nil {
		return record{}, err
	}
	mode := uint64(0)
	for _, c := range f.Get("mode") {
		if c < '0' || c > '7' || mode > 0o7777 {
			return bad("a mode that is none")
		}
		mode = mode<<3 | uint64(c-'0')
	}
	k.mode = uint32(mode) & 0o1777
	mtime, err := f.Uint("mtime", 1<<62)
	if err != nil && f.Get("mtime") != "" && f.Get("mtime")[0] != '-' {
		return bad("a time that is none")
	}
	k.mtime = int64(mtime)
	if k.kind == "file" {
		n, err := f.Uint("size", 1<<60)
		if err != nil {
			return bad("a size that is none")
		}
		k.size = int64(n)
	}
	if k.kind == "link" && k.target == "" {
		return bad("a symbolic link to nothing")
	}
	return k, nil
}

// splitPath splits a relative path from the other side. It rejects empty, "." and ".." components, so that the path
// stays below the root. "." by itself is the root.
func splitPath(p string) ([]string, error) {
	if p == "." {
		return nil, nil
	}
	parts := strings.Split(p, "/")
	if len(parts) > maxDepth {
		return nil, fmt.Errorf("the VM sent a path of %d components", len(parts))
	}
	for _, c := range parts {
		if c == "" || c == "." || c == ".." || len(c) > 255 {
			return nil, fmt.Errorf("the VM sent %q, which is not a path below the copy", text.CleanLines(p))
		}
	}
	return parts, nil
}

// maxRecords bounds how many records a VM may send for one copy; a variable for tests.
var maxRecords = 10 << 20

// receiver creates the files of records. It keeps only the open directories on the current path: a directory is
// finished when a record leaves it.
type receiver struct {
	open []openDir // the first is the copy's parent; each other is in the one before it
}

// openDir is a directory in which entries may still be created.
type openDir struct {
	fd    int
	name  string
	mode  uint32
	mtime int64
}

// receiveTree reads records and creates their files at root, whose directory exists. No symbolic link is followed
// below that directory.
func receiveTree(r io.Reader, root string) error {
	root = filepath.Clean(root)
	name := filepath.Base(root)
	if name == "/" || name == "." || name == ".." {
		return &localError{fmt.Errorf("%s: not a name that a copy can have", root)}
	}
	top, err := unix.Open(filepath.Dir(root), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &localError{&os.PathError{Op: "open", Path: filepath.Dir(root), Err: err}}
	}
	v := &receiver{open: []openDir{{fd: top}}}
	defer v.close()
	br := bufio.NewReaderSize(r, channel.MaxPayload)
	for n := 0; ; n++ {
		k, err := readRecord(br)
		if err != nil {
			return err
		}
		if n == maxRecords {
			return fmt.Errorf("the VM sent more than %d files and directories", maxRecords)
		}
		if k.kind == "end" {
			return v.leave(1, filepath.Dir(root))
		}
		k.path = append([]string{name}, k.path...)
		if err := v.enter(&k, filepath.Dir(root)); err != nil {
			return err
		}
		if err := v.receive(br, &k); err != nil {
			var path *os.PathError
			if errors.As(err, &path) {
				path.Path = filepath.Join(filepath.Dir(root), text.CleanLines(strings.Join(k.path, "/")))
				return &localError{err}
			}
			return err
		}
	}
}

// enter finishes the directories that do not contain a record. It rejects a record whose directory has not been sent
// before.
func (v *receiver) enter(k *record, base string) error {
	n := len(k.path) // directories that stay open: the first, and those of the path without its last component
	known := n <= len(v.open)
	for i := 1; known && i < n; i++ {
		known = v.open[i].name == k.path[i-1]
	}
	if !known {
		return fmt.Errorf("the VM sent %q before the directory that it is in", k.name)
	}
	return v.leave(n, base)
}

// leave finishes directories until n are open: they get their modes and times.
func (v *receiver) leave(n int, base string) error {
	for len(v.open) > n {
		d := v.open[len(v.open)-1]
		if err := unix.Fchmod(d.fd, d.mode); err != nil {
			parts := []string{base}
			for _, o := range v.open[1:] {
				parts = append(parts, text.CleanLines(o.name))
			}
			return &localError{&os.PathError{Op: "chmod", Path: filepath.Join(parts...), Err: err}}
		}
		t := unix.NsecToTimeval(d.mtime)
		unix.Futimes(d.fd, []unix.Timeval{t, t})
		unix.Close(d.fd)
		v.open = v.open[:len(v.open)-1]
	}
	return nil
}

func (v *receiver) close() {
	for _, d := range v.open {
		unix.Close(d.fd)
	}
}

// receive creates the file of a record in the last open directory.
func (v *receiver) receive(r io.Reader, k *record) error {
	dir := v.open[len(v.open)-1].fd
	name := k.path[len(k.path)-1]
	switch k.kind {
	case "dir":
		// Writable until its contents are complete.
		if err := unix.Mkdirat(dir, name, 0o700); err != nil && err != unix.EEXIST {
			return &os.PathError{Op: "mkdir", Err: err}
		}
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "mkdir", Err: err}
		}
		v.open = append(v.open, openDir{fd, strings.Clone(name), k.mode, k.mtime})
		return nil
	case "link":
		err := unix.Symlinkat(k.target, dir, name)
		if err == unix.EEXIST && unix.Unlinkat(dir, name, 0) == nil {
			err = unix.Symlinkat(k.target, dir, name)
		}
		if err != nil {
			return &os.PathError{Op: "symlink", Err: err}
		}
		return nil
	}
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return &os.PathError{Op: "stat", Err: err}
	}
	if !st.Mode().IsRegular() {
		return &os.PathError{Op: "create", Err: errors.New("is there and is not a regular file")}
	}
	if err := f.Truncate(0); err != nil {
		return &os.PathError{Op: "truncate", Err: err}
	}
	src := &countReader{r: io.LimitReader(r, k.size)}
	if _, err := io.Copy(f, src); err != nil {
		if src.err != nil {
			return src.err
		}
		return &os.PathError{Op: "write", Err: err}
	}
	if src.n != k.size {
		return errors.New("the copy was cut short")
	}
	if err := unix.Fchmod(fd, k.mode); err != nil {
		return &os.PathError{Op: "chmod", Err: err}
	}
	t := time.Unix(0, k.mtime)
	unix.Futimes(fd, []unix.Timeval{unix.NsecToTimeval(t.UnixNano()), unix.NsecToTimeval(t.UnixNano())})
	if err := f.Close(); err != nil {
		return &os.PathError{Op: "close", Err: err}
	}
	return nil
}
