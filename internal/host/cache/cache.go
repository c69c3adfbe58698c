// Package cache stores files that can be made again at any time, in the user's cache directory. Every entry contains
// its length and SHA-256, which are verified at each use, as are its owner, mode and number of links; an entry that
// does not match is made again. Entries are written under a temporary name and renamed, so that processes need no
// locks.
package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// An entry is the data, padded to trailerAlign, then the trailer: magic, length of the data, and the SHA-256 of
// the data followed by the trailer's first 16 bytes.
const (
	magic        = "nmcache2"
	trailerHead  = 16
	trailerSize  = trailerHead + sha256.Size
	trailerAlign = 8
	maxEntry     = 1 << 30 // bytes; nearmetal's entries are far smaller
)

// ErrCorrupt is Open's error for an entry that is damaged, or that another user made or could change.
var ErrCorrupt = errors.New("corrupted cache entry")

// Dir is a cache directory.
type Dir struct {
	path string
}

// Open returns the user's cache directory and creates it if necessary: $XDG_CACHE_HOME/nearmetal, else
// ~/.cache/nearmetal, else (no home, or not writable) /var/tmp/nearmetal-UID, which must be this user's own.
func Open() (*Dir, error) {
	var tried error
	for _, p := range homes() {
		d, err := At(p)
		if err == nil {
			return d, nil
		}
		tried = errors.Join(tried, err)
	}
	own := "/var/tmp/nearmetal-" + strconv.Itoa(os.Getuid())
	d, err := At(own)
	if err != nil {
		return nil, fmt.Errorf("no cache directory (set XDG_CACHE_HOME to one that you can write): %w", errors.Join(tried, err))
	}
	return d, nil
}

// homes returns the cache directories that the environment names.
func homes() []string {
	if x := os.Getenv("XDG_CACHE_HOME"); filepath.IsAbs(x) {
		return []string{filepath.Join(x, "nearmetal")}
	}
	if h := os.Getenv("HOME"); filepath.IsAbs(h) {
		return []string{filepath.Join(h, ".cache", "nearmetal")}
	}
	return nil
}

// At returns the cache in a directory and creates it (0700) if necessary. It fails unless the directory is this
// user's own and nobody else can write to it, because its contents are executed.
func At(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return nil, fmt.Errorf("%s: not a directory", path)
	case int(st.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s: belongs to user %d, not to you", path, st.Uid)
	case st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%s: others can write to it (chmod go-w %s)", path, path)
	}
	if err := unix.Access(path, unix.W_OK); err != nil {
		return nil, &os.PathError{Op: "write", Path: path, Err: err}
	}
	return &Dir{path: path}, nil
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Open returns a verified entry, read-only, and its length in bytes without the trailer. The error is os.ErrNotExist
// if the entry does not exist and ErrCorrupt if it is damaged or not exclusively this user's (it is then removed).
// Reads beyond the data return padding and the trailer, which readers of ELF and bzImage ignore.
func (d *Dir) Open(name string) (*os.File, int64, error) {
	p, err := d.file(name)
	if err != nil {
		return nil, 0, err
	}
	// Links are not followed, and a pipe does not block.
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		os.Remove(p)
		return nil, 0, fmt.Errorf("%s: %w: it is a symbolic link", p, ErrCorrupt)
	}
	if err != nil {
		return nil, 0, err
	}
	n, err := verify(f)
	if err != nil {
		f.Close()
		if errors.Is(err, ErrCorrupt) {
			os.Remove(p)
		}
		return nil, 0, fmt.Errorf("%s: %w", p, err)
	}
	// Trim uses the time of use to select entries. It is only a hint, so errors are ignored.
	now := time.Now()
	os.Chtimes(p, now, now)
	return f, n, nil
}

// verify checks the file's owner, the trailer and the data's SHA-256, and returns the data's length.
func verify(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, fmt.Errorf("%w: it is not a file", ErrCorrupt)
	case int(st.Uid) != os.Geteuid():
		return 0, fmt.Errorf("%w: it belongs to user %d", ErrCorrupt, st.Uid)
	case st.Mode&0o022 != 0:
		return 0, fmt.Errorf("%w: others can write to it (mode %04o)", ErrCorrupt, st.Mode&0o7777)
	case st.Nlink > 1: // 0: replaced by another writer since it was opened
		return 0, fmt.Errorf("%w: it has %d names", ErrCorrupt, st.Nlink)
	case st.Size < trailerSize || st.Size > maxEntry+2*trailerSize:
		return 0, ErrCorrupt
	}
	var t [trailerSize]byte
	if _, err := f.ReadAt(t[:], st.Size-trailerSize); err != nil {
		return 0, err
	}
	n := int64(binary.LittleEndian.Uint64(t[len(magic):]))
	if string(t[:len(magic)]) != magic || n < 0 || n > st.Size-trailerSize || padded(n)+trailerSize != st.Size {
		return 0, ErrCorrupt
	}
	sum := sha256.New()
	// Cache files are replaced, never truncated; if one is, a read fails cleanly, unlike a fault in a mapping.
	if _, err := io.CopyBuffer(sum, io.NewSectionReader(f, 0, n), make([]byte, min(n+1, 1<<20))); err != nil {
		return 0, err
	}
	sum.Write(t[:trailerHead])
	if !bytes.Equal(sum.Sum(nil), t[trailerHead:]) {
		return 0, ErrCorrupt
	}
	return n, nil
}

func padded(n int64) int64 { return (n + trailerAlign - 1) &^ (trailerAlign - 1) }

// Put writes an entry, replacing one with that name, and returns it open as Open does.
func (d *Dir) Put(name string, data []byte) (*os.File, error) {
	p, err := d.file(name)
	if err != nil {
		return nil, err
	}
	if len(data) > maxEntry {
		return nil, fmt.Errorf("%s: %d bytes are more than a cache entry holds", p, len(data))
	}
	f, err := os.CreateTemp(d.path, tmpPrefix+"*")
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) {
		f.Close()
		os.Remove(f.Name())
		return nil, fmt.Errorf("cache: %w", err)
	}
	tail := make([]byte, padded(int64(len(data)))-int64(len(data))+trailerSize)
	t := tail[len(tail)-trailerSize:]
	copy(t, magic)
	binary.LittleEndian.PutUint64(t[len(magic):], uint64(len(data)))
	sum := sha256.New()
	sum.Write(data)
	sum.Write(t[:trailerHead])
	copy(t[trailerHead:], sum.Sum(nil))
	for _, b := range [][]byte{data, tail} {
		if _, err := f.Write(b); err != nil {
			return fail(err)
		}
	}
	if err := os.Rename(f.Name(), p); err != nil {
		return fail(err)
	}
	// Reopened read-only, so that nobody who receives the file can write the cache.
	ro, err := os.Open(p)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	return ro, nil
}

// file returns the path of an entry. Names contain only letters, digits, - _ . and no leading dot.
func (d *Dir) file(name string) (string, error) {
	if name == "" || name[0] == '.' || strings.ContainsAny(name, "/\x00") || len(name) > 200 {
		return "", fmt.Errorf("cache: bad entry name %q", name)
	}
	return filepath.Join(d.path, name), nil
}
