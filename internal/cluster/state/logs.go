package state

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Logs writes the console of a VM to w, with control characters made harmless. With follow it continues until the
// cluster or ctx ends.
func Logs(ctx context.Context, r *Record, vm string, follow bool, w io.Writer) error {
	base, err := Base()
	if err != nil {
		return err
	}
	path := filepath.Join(base, r.Name, ConsoleFile(vm))
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if !follow {
		_, err := io.Copy(Harmless(w), f)
		return err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return err
	}
	events := os.NewFile(uintptr(fd), "inotify")
	defer events.Close()
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY|unix.IN_DELETE_SELF|unix.IN_ATTRIB); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { events.Close() })
	defer stop()
	buf := make([]byte, 4096)
	for {
		if _, err := io.Copy(Harmless(w), f); err != nil {
			return err
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil // the cluster has ended
		}
		if _, err := events.Read(buf); err != nil {
			return context.Cause(ctx)
		}
	}
}

// Harmless returns a writer to w that drops the characters that can control a terminal.
func Harmless(w io.Writer) io.Writer { return harmless{w} }

// harmless drops the characters that can control a terminal.
type harmless struct{ w io.Writer }

func (h harmless) Write(b []byte) (int, error) {
	clean := bytes.Map(func(r rune) rune {
		if r == '\r' {
			return -1
		}
		if r != '\n' && r != '\t' && (r < ' ' || r >= 0x7f && r < 0xa0) {
			return '?'
		}
		return r
	}, b)
	if _, err := h.w.Write(clean); err != nil {
		return 0, err
	}
	return len(b), nil
}
