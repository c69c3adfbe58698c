package network

import (
	"context"
	"io"
	"net"
	"sync"
)

// DialLater returns a link to a host that Dial makes at the first write, so that hosts that never communicate need no
// connection. The link ends with ctx.
func (m *Overlay) DialLater(ctx context.Context, host int, kind string) io.ReadWriteCloser {
	l := &laterLink{made: make(chan struct{})}
	l.ctx, l.stop = context.WithCancel(ctx)
	l.dial = func() (io.ReadWriteCloser, error) { return m.Dial(l.ctx, host, kind, nil) }
	context.AfterFunc(l.ctx, func() { l.Close() })
	return l
}

type laterLink struct {
	ctx  context.Context
	stop context.CancelFunc
	dial func() (io.ReadWriteCloser, error)
	once sync.Once
	made chan struct{} // closed once link or err is set
	link io.ReadWriteCloser
	err  error
}

// Read waits until the link has been made.
func (l *laterLink) Read(p []byte) (int, error) {
	select {
	case <-l.made:
	case <-l.ctx.Done():
		return 0, net.ErrClosed
	}
	if l.err != nil {
		return 0, l.err
	}
	return l.link.Read(p)
}

// Write makes the link if this is the first write.
func (l *laterLink) Write(p []byte) (int, error) {
	l.once.Do(func() {
		if l.err = l.ctx.Err(); l.err == nil {
			l.link, l.err = l.dial()
		}
		close(l.made)
	})
	if l.err != nil {
		return 0, l.err
	}
	return l.link.Write(p)
}

// Close ends the link, or the attempt to make it.
func (l *laterLink) Close() error {
	l.stop()
	l.once.Do(func() {
		l.err = net.ErrClosed
		close(l.made)
	})
	if l.link != nil {
		return l.link.Close()
	}
	return nil
}
