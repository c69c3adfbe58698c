package qemu

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/host/isolate"
)

// Each export by virtiofs is served by a virtiofsd of its own, a child of this process like QEMU. It ends when its
// QEMU does. If it ends earlier, every access in the VM would wait forever, so the VM is ended.

// served is an export that a virtiofsd serves.
type served struct {
	backend.Export
	tree int // index in Files.Exports, if veiled
}

// startFiles starts a virtiofsd for each such export, and returns QEMU's ends in their order. The caller closes them.
// A veiled export is served from a jail.
func (v *VM) startFiles(m *Machine, f Files, o Options) (ends []*os.File, err error) {
	for _, e := range m.served {
		listener, end, err := socketTo(filepath.Dir(o.ConsoleLog))
		if err != nil {
			return ends, fmt.Errorf("the socket of its virtiofsd: %w", err)
		}
		ends = append(ends, end)
		c, err := m.virtiofsd.start(e.Export, listener, f.Exports, e.tree)
		listener.Close()
		if err != nil {
			return ends, err
		}
		if err := v.addHelper(c, "virtiofsd ("+e.Tag+")", m.virtiofsd.Path, o, "files of "); err != nil {
			return ends, err
		}
	}
	return ends, nil
}

// start starts a virtiofsd that serves e at listener; its veiled export is trees[n].
func (d virtiofsd) start(e backend.Export, listener *os.File, trees []*os.File, n int) (*child, error) {
	if !e.Veiled {
		return spawn(d.args(e, false), []*os.File{listener}, nil)
	}
	if n >= len(trees) {
		return nil, fmt.Errorf("no file for the veiled export %s", e.Tag)
	}
	j, err := d.jail(e, listener, trees[n])
	if err != nil {
		return nil, err
	}
	c, err := spawn(d.args(e, isolate.OneUser()), nil, j)
	if err != nil {
		return nil, fmt.Errorf("its virtiofsd (%s): %w", e.Tag, err)
	}
	return c, nil
}

// socketTo returns a listening socket to which no other process can connect any more, and an end that is connected to
// it. dir is a directory that only the user may enter, where the socket has a name for a moment; ".": a new one.
func socketTo(dir string) (listener, end *os.File, err error) {
	if dir == "." {
		if dir, err = os.MkdirTemp("", "nearmetal-"); err != nil {
			return nil, nil, err
		}
		defer os.Remove(dir)
	}
	d, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, nil, err
	}
	name := "fs-" + hex.EncodeToString(b[:])
	// The directory's own path may be longer than a socket's address.
	addr := &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name)}
	open := func(use func(int) error) (*os.File, error) {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := use(fd); err != nil {
			unix.Close(fd)
			return nil, err
		}
		return os.NewFile(uintptr(fd), "virtiofs"), nil
	}
	listener, err = open(func(fd int) error {
		if err := unix.Bind(fd, addr); err != nil {
			return err
		}
		return unix.Listen(fd, 1)
	})
	if err != nil {
		return nil, nil, err
	}
	end, err = open(func(fd int) error { return unix.Connect(fd, addr) })
	if e := unix.Unlinkat(int(d.Fd()), name, 0); err == nil {
		err = e
	}
	if err != nil {
		listener.Close()
		return nil, nil, err
	}
	return listener, end, nil
}

// helper is a process that a VM depends on.
type helper struct {
	*child
	what string
	path string // of its program
}

// addHelper adds a started process to the VM's helpers, and has it recorded.
func (v *VM) addHelper(c *child, what, path string, o Options, part string) error {
	v.helpers = append(v.helpers, helper{c, what, path})
	if o.Record == nil {
		return nil
	}
	return o.Record(c.cmd.Process.Pid, part)
}

// endHelpers ends the helpers, and waits until they are gone.
func (v *VM) endHelpers() {
	for _, h := range v.helpers {
		h.kill()
	}
	for _, h := range v.helpers {
		<-h.done
	}
}

// lastWords bounds the time between the end of a helper, which QEMU has closed, and QEMU's own end.
const lastWords = 10 * time.Second

// watchHelper ends the VM when a helper ends first, because the rest would wait for answers forever.
func (v *VM) watchHelper(h helper) {
	select {
	case <-v.child.done:
		return
	case <-h.done:
	}
	if h.child.err == nil {
		select {
		case <-v.child.done: // QEMU closed it at its own end
			return
		case <-time.After(lastWords):
		}
	}
	v.mu.Lock()
	v.lost = fmt.Errorf("its %s ended: %s", h.what, h.words(h.path))
	v.mu.Unlock()
	v.child.kill()
}

// failedHelper returns the error of a helper that ended before QEMU was up; nil: none.
func (v *VM) failedHelper() error {
	for _, h := range v.helpers {
		select {
		case <-h.done:
			if h.child.err != nil {
				return fmt.Errorf("its %s ended: %s", h.what, h.words(h.path))
			}
		default:
		}
	}
	return nil
}
