package hosttree

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Unpack writes a captured host, a .tar.gz, into dir with its links and modes (its owner may
// write each file); keep, unless it is nil, chooses by the name in the archive.
func Unpack(dir, archive string, keep func(name string) bool) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	for r := tar.NewReader(z); ; {
		e, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil && (keep == nil || keep(e.Name)) {
			err = unpackOne(dir, e, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
	}
}

func unpackOne(dir string, e *tar.Header, r io.Reader) error {
	at := filepath.Join(dir, filepath.Clean("/"+e.Name))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	switch e.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(at, 0o755)
	case tar.TypeSymlink:
		return os.Symlink(e.Linkname, at)
	case tar.TypeReg:
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return os.WriteFile(at, b, fs.FileMode(e.Mode)&0o777|0o200)
	}
	return nil
}
