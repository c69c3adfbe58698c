// Package rootimage unpacks the root of a system from an image into a directory: squashfs, qcow2, an OCI image, a
// SIF. The usual programs unpack it, as the user and without root, into the user's cache. An unpacked image is not
// unpacked again until it changes.
package rootimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/cache"
)

// Image is a root that has to be unpacked.
type Image struct {
	Path string
	Kind Kind
	Tag  string // of an OCI image; "": it has only one
}

// Kind is the format of a packed root.
type Kind string

const (
	Squashfs Kind = "squashfs"
	SIF      Kind = "SIF"
	QCOW2    Kind = "qcow2"
	OCI      Kind = "OCI image"      // a directory with that layout
	Archive  Kind = "archive of OCI" // the same in a tar file, also as written by docker save
)

// Find returns the image at path, or nil for a directory, which needs no unpacking. The path of a directory with an
// OCI image may end with a colon and its tag.
func Find(path string) (*Image, error) {
	tag := ""
	fi, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		if i := strings.LastIndexByte(path, ':'); i > 0 && !strings.Contains(path[i:], "/") {
			if st, e := os.Stat(path[:i]); e == nil && st.IsDir() {
				path, tag, fi, err = path[:i], path[i+1:], st, nil
			}
		}
	}
	switch {
	case err != nil:
		return nil, err
	case fi.IsDir():
		if _, err := os.Stat(filepath.Join(path, layoutFile)); err == nil {
			return &Image{path, OCI, tag}, nil
		}
		if tag != "" {
			return nil, &os.PathError{Op: "stat", Path: path + ":" + tag, Err: unix.ENOENT}
		}
		return nil, nil
	case !fi.Mode().IsRegular():
		return nil, errors.New("it is neither a directory nor a file")
	}
	kind, err := kindOf(path)
	if err != nil {
		return nil, err
	}
	return &Image{path, kind, tag}, nil
}

// kindOf detects the format by the first bytes of a file.
func kindOf(path string) (Kind, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	head = head[:n]
	at := func(offset int, magic string) bool {
		return len(head) >= offset+len(magic) && string(head[offset:offset+len(magic)]) == magic
	}
	switch {
	case at(0, "hsqs"):
		return Squashfs, nil
	case at(0, "QFI\xfb"):
		return QCOW2, nil
	case at(32, sifMagic):
		return SIF, nil
	case at(257, "ustar"):
		return Archive, nil
	}
	return "", errors.New("it is a file, and neither squashfs, qcow2, SIF nor an archive of an OCI image")
}

// key returns a name of an image's current content: by its index for an OCI image, else by the file's owner, size and
// time.
func (i *Image) key() (string, error) {
	h := sha256.New()
	if i.Kind == OCI {
		b, err := readIndex(i.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "oci %q %s", i.Tag, b)
	} else {
		var st unix.Stat_t
		if err := unix.Stat(i.Path, &st); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d %d %d %d %d", i.Kind, st.Dev, st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec)
	}
	return treePrefix + hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// Prefixes of directories in a cache: unpacked ones, and those that are being unpacked.
const (
	treePrefix = "root-"
	workPrefix = "unpack-"
)

// Unpack returns the directory of an image's root in d, which stays there at least while this process lives. When a
// root is unpacked, those that were not used for 30 days are removed. notice is called once with a line if the image
// has to be unpacked.
func (i *Image) Unpack(ctx context.Context, d *cache.Dir, notice func(string)) (string, error) {
	key, err := i.key()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(d.Path(), key)
	if d.Hold(key) == nil {
		return dir, nil
	}
	if err := i.needs(); err != nil {
		return "", err
	}
	d.TrimTrees(cache.TreeAge, treePrefix, workPrefix)
	work, err := os.MkdirTemp(d.Path(), workPrefix)
	if err != nil {
		return "", err
	}
	defer cache.RemoveTree(work)
	if err := d.Hold(filepath.Base(work)); err != nil {
		return "", err
	}
	notice(fmt.Sprintf("unpacking the %s %s into %s, once", i.Kind, i.Path, dir))
	made, err := i.unpack(ctx, work)
	if err != nil {
		return "", err
	}
	if err := whole(made); err != nil {
		return "", err
	}
	// Another start may have been faster.
	if err := os.Rename(made, dir); err != nil {
		if fi, e := os.Lstat(dir); e != nil || !fi.IsDir() {
			return "", err
		}
	}
	return dir, d.Hold(key)
}

// whole checks that the unpacked directory is a system's root, and gives its owner access, because the user owns
// everything below it.
func whole(root string) error {
	fi, err := os.Lstat(root)
	if err != nil || !fi.IsDir() {
		return errors.New("no directory came out of it")
	}
	for _, p := range []string{"bin/sh", "usr/bin/sh"} {
		if _, err := os.Lstat(filepath.Join(root, p)); err == nil {
			return os.Chmod(root, fi.Mode().Perm()|0o700)
		}
	}
	return errors.New("there is no /bin/sh in it: it is not the root of a system")
}
