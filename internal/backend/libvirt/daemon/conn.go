package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/console"
)

// Conn is a connection to a libvirtd. Its methods may be called from several goroutines. A call ends with its
// context; the requested operation may then still be done.
type Conn struct {
	Address Address
	rpc     *lv.Libvirt
	gone    chan struct{}
}

// NoDaemon reports that no libvirtd answers at an address.
type NoDaemon struct {
	Address Address
	Err     error
}

func (e *NoDaemon) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("libvirtd's %s may not be reached: %v; be in the group that its socket belongs to (libvirt), or say libvirt:///session", e.Address, e.Err)
	case e.Address.Session && os.Geteuid() == 0:
		return "root has no libvirtd of its own: say libvirt:///system"
	case e.Address.Session:
		return fmt.Sprintf("no libvirtd answers at %s, and none could be started: %v", e.Address, e.Err)
	}
	return fmt.Sprintf("no libvirtd answers at %s: %v; start it (systemctl start libvirtd, or virtqemud), or say libvirt:///session", e.Address, e.Err)
}

func (e *NoDaemon) Unwrap() error { return e.Err }

// ErrLost is the error of a call whose connection ended before its answer: the daemon was stopped or restarted.
var ErrLost = errors.New("the connection to libvirtd ended: it was stopped or restarted")

// wonBound bounds how long the socket may be missing of a daemon that was started at the same time as one that has
// ended.
const wonBound = 2 * time.Second

// connectTimeout bounds a daemon's first answer. A new daemon first queries QEMU's capabilities.
const connectTimeout = 60 * time.Second

// openTries bounds how often a connection that ended before its first answer is made again.
const openTries = 3

// Dial connects to the daemon at a. A user's own daemon that does not run is started, as virsh does; such a daemon
// exits after two minutes without clients and domains. *NoDaemon: no daemon runs. ErrLost: the daemons there close
// the connections that they accept.
func Dial(ctx context.Context, a Address) (*Conn, error) {
	return reach(ctx, a, a.Session && a.Socket == "" && os.Geteuid() != 0)
}

// Reach is Dial, but starts no daemon.
func Reach(ctx context.Context, a Address) (*Conn, error) { return reach(ctx, a, false) }

// reach connects to the daemon at a, and may start it. The socket of a daemon that is being killed still accepts
// connections: one that ends before its first answer has requested nothing and is made again.
func reach(ctx context.Context, a Address, start bool) (*Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("nothing came in %v", connectTimeout))
	defer cancel()
	for try := 1; ; try++ {
		raw, err := connect(ctx, a)
		if err != nil && start && !errors.Is(err, fs.ErrPermission) {
			var ended <-chan struct{}
			if ended, err = startSession(); err == nil {
				raw, err = await(ctx, a, ended)
			}
		}
		if err != nil {
			return nil, &NoDaemon{a, err}
		}
		c, err := open(ctx, a, raw)
		if try == openTries || !errors.Is(err, ErrLost) {
			return c, err
		}
	}
}

// open begins a session over a connected socket, which it then owns.
func open(ctx context.Context, a Address, raw net.Conn) (*Conn, error) {
	w := &watched{Conn: raw, gone: make(chan struct{})}
	c := &Conn{Address: a, rpc: lv.NewWithDialer(w), gone: w.gone}
	_, err := call(ctx, c, func() (struct{}, error) { return struct{}{}, c.rpc.ConnectToURI(lv.ConnectURI(a.path())) })
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("libvirtd at %s: %w", a, err)
	}
	return c, nil
}

// watched is a socket that signals its end. It is its own dialer.
type watched struct {
	net.Conn
	once sync.Once
	gone chan struct{}
}

func (w *watched) Dial() (net.Conn, error) { return w, nil }

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err != nil {
		w.once.Do(func() { close(w.gone) })
	}
	return n, err
}

// connect opens the first of a's sockets on which a daemon listens.
func connect(ctx context.Context, a Address) (net.Conn, error) {
	var first error
	for _, path := range a.sockets() {
		var d net.Dialer
		raw, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return raw, nil
		}
		// A socket without permission is more informative than a missing one.
		if first == nil || errors.Is(first, fs.ErrNotExist) {
			first = err
		}
	}
	return nil, plain(first)
}

// plain removes the repetitions of a network error.
func plain(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Addr == nil {
		return err
	}
	var sys *os.SyscallError
	if errors.As(op.Err, &sys) {
		return fmt.Errorf("%s: %w", op.Addr, sys.Err)
	}
	return fmt.Errorf("%s: %w", op.Addr, op.Err)
}

// await connects to a daemon that has just been started.
func await(ctx context.Context, a Address, ended <-chan struct{}) (net.Conn, error) {
	for {
		raw, err := connect(ctx, a)
		if err == nil {
			return raw, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-ended: // it has failed, or another daemon that was started at the same time has won
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, wonBound)
			defer cancel()
			ended = nil
		case <-time.After(20 * time.Millisecond): // no event reports that the daemon has made its socket
		}
	}
}

// Gone is closed when the connection has ended.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// Close ends the connection, and the domains that were made to end with it.
func (c *Conn) Close() error {
	select {
	case <-c.gone:
		return nil
	default:
	}
	return c.rpc.Disconnect()
}

// call runs f, and returns earlier if ctx is done.
func call[T any](ctx context.Context, c *Conn, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f()
		done <- answer{v, err}
	}()
	var none T
	select {
	case a := <-done:
		return a.v, said(a.err)
	case <-ctx.Done():
		return none, fmt.Errorf("libvirtd does not answer: %w", context.Cause(ctx))
	}
}

// Said is an error in libvirtd's own words.
type Said struct {
	Code lv.ErrorNumber
	Text string
}

func (e *Said) Error() string { return e.Text }

// said turns an error of the library into one line that is harmless to print.
func said(err error) error {
	var e lv.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return &Said{lv.ErrorNumber(e.Code), console.Harmless(strings.Join(strings.Fields(e.Message), " "), 600)}
	case errors.Is(err, lv.ErrInterrupted), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET), errors.Is(err, net.ErrClosed):
		return ErrLost
	}
	return err
}

// is reports whether err is libvirtd's error of that number.
func is(err error, code lv.ErrorNumber) bool {
	var e *Said
	return errors.As(err, &e) && e.Code == code
}

// IsNoDomain reports whether err means that the domain does not exist.
func IsNoDomain(err error) bool { return is(err, lv.ErrNoDomain) }

// IsNotRunning reports whether err means that a domain does not run.
func IsNotRunning(err error) bool { return is(err, lv.ErrOperationInvalid) }

// IsTaken reports whether err means that a domain of that name already exists.
func IsTaken(err error) bool {
	var e *Said
	return is(err, lv.ErrDomExist) || errors.As(err, &e) && e.Code == lv.ErrOperationFailed && strings.Contains(e.Text, "already exists")
}

// IsBusy reports whether err means that another call held the domain for longer than libvirtd waits.
func IsBusy(err error) bool { return is(err, lv.ErrOperationTimeout) }
