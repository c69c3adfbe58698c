package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// DialTCP opens a TCP connection from inside a VM ("" for the client's own) to an IPv4 or IPv6 address and port,
// "127.0.0.1:80", as seen in the VM. If the VM's kernel refuses the connection, the error wraps its errno, as in
// errors.Is(err, unix.ECONNREFUSED).
func (c *Client) DialTCP(ctx context.Context, vm, addr string) (net.Conn, error) {
	s, f, err := c.ask(ctx, "tcp", vm, channel.Fields{{Key: "addr", Value: addr}})
	if err != nil {
		return nil, err
	}
	return newStreamConn(s, f.Get("local"), f.Get("peer")), nil
}

// Listener is a TCP port inside a VM.
type Listener struct {
	Addr string // address and port in the VM
	s    *channel.Stream
	done chan struct{}
}

// ListenTCP listens on an address inside a VM ("127.0.0.1:0" for any free port) and calls serve in a goroutine for
// each accepted connection.
func (c *Client) ListenTCP(ctx context.Context, vm, addr string, serve func(net.Conn)) (*Listener, error) {
	s, f, err := c.ask(ctx, "listen", vm, channel.Fields{{Key: "addr", Value: addr}})
	if err != nil {
		return nil, err
	}
	l := &Listener{Addr: text.CleanLines(f.Get("local")), s: s, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer s.Close()
		for {
			a, err := c.open("accept", vm, channel.Fields{{Key: "listener", Value: f.Get("listener")}})
			if err != nil {
				return
			}
			// The next connection may take long; the end of the listener ends the wait.
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				select {
				case <-s.Gone():
				case <-ctx.Done():
				}
				cancel()
			}()
			g, err := a.Receive(ctx)
			cancel()
			if err != nil {
				a.Close()
				return
			}
			conn := newStreamConn(a, g.Get("local"), g.Get("peer"))
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return l, nil
}

// Close ends the listener; accepted connections stay open.
func (l *Listener) Close() error {
	l.s.Close()
	<-l.done
	return nil
}

// ask opens a stream to the agent of vm and returns it with the agent's answer; the agent's refusal is an error.
func (c *Client) ask(ctx context.Context, kind, vm string, h channel.Fields) (*channel.Stream, channel.Fields, error) {
	s, err := c.open(kind, vm, h)
	if err != nil {
		return nil, nil, err
	}
	f, err := s.Receive(ctx)
	switch {
	case err == io.EOF:
		err = errors.New("the agent refused the connection without a reason")
	case err == nil && f.Get("error") != "":
		n, _ := f.Uint("errno", maxErrno)
		err = &guestError{text.CleanLines(f.Get("error")), syscall.Errno(n)}
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return s, f, nil
}

// maxErrno is the highest errno of Linux (MAX_ERRNO).
const maxErrno = 4095

// ErrNoNumber matches an error that an agent reported without its errno, as agents of older releases do.
var ErrNoNumber = errors.New("the agent reports no error number")

// guestError is an error that an agent reports, with its errno; 0: none.
type guestError struct {
	text  string
	errno syscall.Errno
}

func (e *guestError) Error() string { return e.text }

func (e *guestError) Is(target error) bool {
	if e.errno == 0 {
		return target == ErrNoNumber
	}
	return e.errno == target
}

// streamConn is a stream as a net.Conn.
type streamConn struct {
	s           *channel.Stream
	local, peer tcpAddr
	mu          sync.Mutex
	timers      [2]*time.Timer
	late        [2]bool
}

type tcpAddr string

func (a tcpAddr) Network() string { return "tcp" }
func (a tcpAddr) String() string  { return string(a) }

func newStreamConn(s *channel.Stream, local, peer string) *streamConn {
	return &streamConn{s: s, local: tcpAddr(text.CleanLines(local)), peer: tcpAddr(text.CleanLines(peer))}
}

func (c *streamConn) LocalAddr() net.Addr  { return c.local }
func (c *streamConn) RemoteAddr() net.Addr { return c.peer }
func (c *streamConn) Close() error         { return c.s.Close() }

// CloseWrite ends this side's direction of the connection.
func (c *streamConn) CloseWrite() error { return c.s.CloseWrite(channel.LaneData) }

func (c *streamConn) Read(p []byte) (int, error) {
	n, err := c.s.Read(p)
	return n, c.deadline(0, err)
}

func (c *streamConn) Write(p []byte) (int, error) {
	n, err := c.s.Write(p)
	return n, c.deadline(1, err)
}

func (c *streamConn) deadline(dir int, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.late[dir] {
		return os.ErrDeadlineExceeded
	}
	return err
}

// set sets a deadline. One that passes ends the connection, because a stream cannot be continued after an interrupted
// read.
func (c *streamConn) set(dir int, t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timers[dir] != nil {
		c.timers[dir].Stop()
		c.timers[dir] = nil
	}
	if t.IsZero() {
		return
	}
	c.timers[dir] = time.AfterFunc(time.Until(t), func() {
		c.mu.Lock()
		c.late[dir] = true
		c.mu.Unlock()
		c.s.Close()
	})
}

func (c *streamConn) SetDeadline(t time.Time) error {
	c.set(0, t)
	c.set(1, t)
	return nil
}
func (c *streamConn) SetReadDeadline(t time.Time) error  { c.set(0, t); return nil }
func (c *streamConn) SetWriteDeadline(t time.Time) error { c.set(1, t); return nil }
