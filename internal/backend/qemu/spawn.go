package qemu

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/isolate"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/sockpair"
)

// firstFD is the number of the first file that a child inherits, after its standard ones.
const firstFD = 3

// child is a QEMU process.
type child struct {
	cmd    *exec.Cmd
	stderr *tailWriter
	done   chan struct{} // closed when it has ended and is reaped
	err    error         // result of Wait, valid once done is closed
}

// spawn starts a program as a child that the kernel kills when this process dies, in its own process group (so that
// the terminal's Ctrl-C does not reach it), with the given files as descriptors from firstFD on and no other file of
// this process. With a jail the files are the jail's.
func spawn(args []string, files []*os.File, jail *isolate.Jail) (*child, error) {
	c := &child{stderr: &tailWriter{}, done: make(chan struct{})}
	enter := func(started error) error { return started }
	if jail == nil {
		c.cmd = &exec.Cmd{Path: args[0], Args: args, Dir: "/", ExtraFiles: files, SysProcAttr: &syscall.SysProcAttr{}}
	} else {
		jail.Args = args
		var err error
		if c.cmd, enter, err = jail.Command(); err != nil {
			return nil, err
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = c.stderr, c.stderr
	c.cmd.SysProcAttr.Pdeathsig, c.cmd.SysProcAttr.Setpgid = syscall.SIGKILL, true
	started := onSpawner(c.cmd.Start)
	err := enter(started)
	switch {
	case err != nil && started == nil:
		c.kill()
		c.cmd.Wait()
		return nil, err
	case err != nil && jail != nil:
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%s: %w", args[0], plainError(err))
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// The death signal is sent when the thread that started the child ends, not the process. Therefore one thread, which
// never ends, starts all children.
var spawner struct {
	once sync.Once
	work chan func()
}

// onSpawner runs a start function on the spawner's thread.
func onSpawner(start func() error) error {
	spawner.once.Do(func() {
		spawner.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range spawner.work {
				f()
			}
		}()
	})
	result := make(chan error)
	spawner.work <- func() {
		// Go opens files close-on-exec; inherited files of this process may not be.
		closeInherited()
		result <- start()
	}
	return <-result
}

// closeInherited marks all files but the standard ones close-on-exec.
func closeInherited() {
	err := unix.CloseRange(firstFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return
	}
	// Linux before 5.11.
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range list {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd >= firstFD {
			unix.CloseOnExec(fd)
		}
	}
}

// kill ends the process at once. It is safe at any time: a reaped child is not signalled.
func (c *child) kill() { c.cmd.Process.Kill() }

// state returns how the process ended, once done is closed.
func (c *child) state() string {
	var ee *exec.ExitError
	if errors.As(c.err, &ee) {
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return fmt.Sprintf("killed by signal %d, %s", int(ws.Signal()), ws.Signal())
		}
		return ee.Error()
	}
	if c.err != nil {
		return c.err.Error()
	}
	return "exit status 0"
}

// signalled returns the signal that ended the process, or 0.
func (c *child) signalled() syscall.Signal {
	var ee *exec.ExitError
	if errors.As(c.err, &ee) {
		if ws, ok := ee.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal()
		}
	}
	return 0
}

// spawnWithSocket starts a program whose first inherited file is one end of a stream socket, and returns the other.
func spawnWithSocket(args []string) (*child, net.Conn, error) {
	ours, theirs, err := sockpair.Conn("qmp")
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	c, err := spawn(args, []*os.File{theirs}, nil)
	if err != nil {
		ours.Close()
		return nil, nil, err
	}
	return c, ours, nil
}

// tailWriter keeps the first and the last bytes written to it.
type tailWriter struct {
	mu         sync.Mutex
	head, tail []byte
	dropped    bool
}

const tailPart = 4 << 10 // bytes of each

// Write never fails.
func (w *tailWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(b)
	if room := tailPart - len(w.head); room > 0 {
		k := min(room, len(b))
		w.head, b = append(w.head, b[:k]...), b[k:]
	}
	w.tail = append(w.tail, b...)
	if over := len(w.tail) - tailPart; over > 0 {
		w.tail = append(w.tail[:0], w.tail[over:]...)
		w.dropped = true
	}
	return n, nil
}

func (w *tailWriter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	mid := ""
	if w.dropped {
		mid = "\n…\n"
	}
	return string(w.head) + mid + string(w.tail)
}

// assertion matches the message of a failed assertion in QEMU or GLib, without QEMU's name before it. The message
// states where the program aborted, not why.
var assertion = lazyregexp.New(`^(.*: )?Assertion .* failed\.$|^(Bail out! )?ERROR:.*: (assertion failed|code should not be reached)|^\*\*$|^Aborted`)

// complaint returns the line of QEMU's output with the reason for its end: the last line under its own name that is
// not a warning, or else the first line. A failed assertion after it is not the reason; it is returned if there is
// nothing else.
func complaint(path, said string) string {
	name := path[strings.LastIndexByte(path, '/')+1:]
	last, asserted := "", ""
	for _, line := range bytes.Split([]byte(said), []byte("\n")) {
		text := strings.TrimSpace(string(line))
		own, isOwn := strings.CutPrefix(text, name+": ")
		if !isOwn { // some of its older parts use this name
			own, isOwn = strings.CutPrefix(text, "qemu: ")
		}
		switch {
		case text == "" || strings.HasPrefix(own, "warning: ") || strings.HasPrefix(own, "info: "):
		case assertion().MatchString(own):
			if len(own) > len(asserted) {
				asserted = own
			}
		case isOwn:
			last = own
		case last == "":
			last = text
		}
	}
	return oneLine(cmp.Or(last, asserted))
}

// grace is how long a process whose monitor is closed may need to write its last output and end.
const grace = 5 * time.Second

// finish ends a process after err: at once, or if the process closed its monitor after its last output.
func (c *child) finish(err error) {
	if errors.Is(err, errQMPClosed) {
		select {
		case <-c.done:
			return
		case <-time.After(grace):
		}
	}
	c.kill()
}
