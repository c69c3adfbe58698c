package image

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// cpioWriter writes a cpio archive in the "newc" format, the kernel's for an initramfs
// (Documentation/driver-api/early-userspace/buffer-format.rst). It keeps its first error.
type cpioWriter struct {
	w    io.Writer
	n    int64 // bytes written
	ino  uint32
	dirs map[string]bool
	err  error
}

func newCpio(w io.Writer) *cpioWriter {
	return &cpioWriter{w: w, dirs: map[string]bool{}}
}

// Types of file in a mode (stat.h).
const (
	modeDir  = 0o040000
	modeChar = 0o020000
	modeFile = 0o100000
)

// file adds a regular file and the directories above it.
func (c *cpioWriter) file(name string, perm uint32, data []byte) {
	c.entry(name, modeFile|perm, 0, 0, data)
}

// dir adds a directory and its parents.
func (c *cpioWriter) dir(name string) {
	if name == "." || name == "/" || name == "" || c.dirs[name] {
		return
	}
	c.dirs[name] = true
	c.entry(name, modeDir|0o755, 0, 0, nil)
}

// char adds a character device.
func (c *cpioWriter) char(name string, perm, major, minor uint32) {
	c.entry(name, modeChar|perm, major, minor, nil)
}

// entry writes one entry. Names are relative to the root, clean, and without NUL.
func (c *cpioWriter) entry(name string, mode, major, minor uint32, data []byte) {
	if c.err == nil && (!fs.ValidPath(name) || name == "." || strings.ContainsRune(name, 0) || len(name) > 4000) {
		c.err = fmt.Errorf("cpio: bad name %.80q", name)
	}
	if c.err == nil && uint64(len(data)) > 0xffffffff {
		c.err = fmt.Errorf("cpio: %s: too large", name)
	}
	if c.err != nil {
		return
	}
	c.dir(path.Dir(name))
	c.header(name, mode, major, minor, data)
}

func (c *cpioWriter) header(name string, mode, major, minor uint32, data []byte) {
	c.ino++
	nlink := 1
	if mode&modeDir == modeDir {
		nlink = 2
	}
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check.
	// There are no times and no owners but root, so the archive depends only on its contents.
	fmt.Fprintf(c, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		c.ino, mode, 0, 0, nlink, 0, len(data), 0, 0, major, minor, len(name)+1, 0, name)
	c.pad()
	c.Write(data)
	c.pad()
}

// close ends the archive.
func (c *cpioWriter) close() error {
	if c.err == nil {
		c.ino = ^uint32(0) // wraps to 0
		c.header("TRAILER!!!", 0, 0, 0, nil)
	}
	return c.err
}

// pad fills up to a multiple of 4 bytes.
func (c *cpioWriter) pad() {
	if r := c.n % 4; r != 0 {
		c.Write(make([]byte, 4-r))
	}
}

// Write counts the archive's bytes; it is not for callers.
func (c *cpioWriter) Write(b []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.err = err
	return n, err
}
