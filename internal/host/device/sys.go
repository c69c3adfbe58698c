package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

const (
	pciDevices = "/sys/bus/pci/devices"
	pciDrivers = "/sys/bus/pci/drivers"
	attrMax    = 4096  // bytes of an attribute
	namesMax   = 65536 // names in a directory
)

// path joins parts below the host's root.
func (h *Host) path(parts ...string) string {
	return filepath.Join(append([]string{h.root + "/"}, parts...)...)
}

// dev returns a path below a function's directory.
func (h *Host) dev(address string, parts ...string) string {
	return h.path(append([]string{pciDevices, address}, parts...)...)
}

// there reports whether a function exists.
func (h *Host) there(address string) bool {
	_, err := os.Stat(h.dev(address))
	return err == nil
}

// attr reads an attribute's first line; "" if it cannot be read.
func (h *Host) attr(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.LimitReader(f, attrMax))
	s, _, _ := strings.Cut(string(b), "\n")
	return text.ASCII(strings.TrimSpace(s))
}

// number reads an attribute as a number, decimal or 0x.
func (h *Host) number(path string) (int, bool) {
	n, err := strconv.ParseInt(h.attr(path), 0, 64)
	return int(n), err == nil
}

// target returns the last component of a link's target, "" if the path is not a link.
func (h *Host) target(path string) string {
	p, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return text.ASCII(filepath.Base(p))
}

// names returns the names in a directory, sorted.
func (h *Host) names(path string) ([]string, error) {
	f, err := os.Open(h.path(strings.TrimPrefix(path, h.root)))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(namesMax)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	sort.Strings(names)
	return names, err
}

// poll is the time between two polls of a state that no event announces.
const poll = 5 * time.Millisecond

// until waits for an action of the kernel, at most h.wait. f returns false while it is not complete, and an error if
// it never will be. It is called once more after that time, because the whole machine may have been suspended in the
// meantime.
func (h *Host) until(ctx context.Context, what string, f func() (bool, error)) error {
	end := time.Now().Add(h.wait)
	for {
		over := time.Now().After(end)
		ok, err := f()
		if ok || err != nil {
			return err
		}
		if over {
			return fmt.Errorf("timed out after %v waiting for %s", h.wait, what)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// write writes an attribute in one write, as the kernel requires.
func (h *Host) write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	if bad := f.Close(); err == nil {
		err = bad
	}
	return err
}

// reason removes the path from a file's error.
func reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
