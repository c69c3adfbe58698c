// Package rootimage makes a folder of the root of a system that comes in an image: squashfs, qcow2, an OCI image, a SIF.
// The usual programs unpack it, as the user and without root, into his cache. An image that was unpacked once is not unpacked
// again until it changes.
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
	Tag  string // of an OCI image; "": it has one alone
}

// Kind is how a root is packed.
type Kind string

const (
	Squashfs Kind = "squashfs"
	SIF      Kind = "SIF"
	QCOW2    Kind = "qcow2"
	OCI      Kind = "OCI image"      // a folder of that layout
	Archive  Kind = "archive of OCI" // the same in a tar file, also as docker save writes it
)

// Find says what the root at path is: an image, or nil: a folder, which needs no unpacking. A folder that is an OCI image
// may have its tag behind a colon.
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
		return nil, errors.New("it is neither a folder nor a file")
	}
	kind, err := kindOf(path)
	if err != nil {
		return nil, err
	}
	return &Image{path, kind, tag}, nil
}

// kindOf looks at the first bytes of a file.
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

// key names what an image holds now: by its index if it is an OCI image, else by whose file it is, its size and time.
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

// Prefixes of directories in a cache: what was unpacked, and what is being unpacked.
const (
	treePrefix = "root-"
	workPrefix = "unpack-"
)

// Unpack returns the folder of an image's root in d, which stays there at least as long as this process lives. Roots that
// were not used for 30 days are removed when one is unpacked. notice says that it is being unpacked, once, if it is.
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

// whole looks whether what was unpacked is a system's root, and lets its owner in, since everything below is his.
func whole(root string) error {
	fi, err := os.Lstat(root)
	if err != nil || !fi.IsDir() {
		return errors.New("no folder came out of it")
	}
	for _, p := range []string{"bin/sh", "usr/bin/sh"} {
		if _, err := os.Lstat(filepath.Join(root, p)); err == nil {
			return os.Chmod(root, fi.Mode().Perm()|0o700)
		}
	}
	return errors.New("there is no /bin/sh in it: it is not the root of a system")
}
