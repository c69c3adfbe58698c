package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Link is a stream of bytes to another host of an overlay that outlives its TCP connections: when one is reset, the
// calling side makes another, and both sides continue where they were. It is an io.ReadWriteCloser, for one reader and
// one writer.
//
// On a connection, the greeting is followed by records. A record is one of
//
// - a header of 4 bytes, big endian, with the length of the data that follows it (at most maxRecord);
// - recordAck, and 8 bytes with the number of the other side's bytes that have been read;
// - recordBye: the sender has closed the link.
//
// At most linkWindow bytes are sent and not yet read. Each side keeps that many bytes, to send them again.
type Link struct {
	m      *Overlay
	host   int
	kind   string
	id     string
	caller bool

	mu   sync.Mutex
	cond *sync.Cond

	conn net.Conn // nil: no connection at present
	gen  int      // counts the connections; input from earlier ones is ignored

	out   bytes.Buffer // bytes that the other side has not read yet
	acked uint64       // number of bytes before out, which the other side has read
	next  uint64       // number of bytes that were written to this connection or that the other side has

	in    bytes.Buffer // bytes that were received and not read yet
	got   uint64       // number of bytes that were received
	eaten uint64       // number of bytes that were read
	told  uint64       // part of eaten that this connection has reported to the other side

	down     bool // a connection was lost, and no other made yet
	closing  bool // Close was called, or the other side has closed the link
	byeSent  bool
	byeTaken bool
	err      error // set once, when the link has ended; io.EOF after Close
	done     chan struct{}
}

const (
	linkWindow = 256 << 10 // bytes
	maxRecord  = 64 << 10  // bytes
	recordAck  = 1<<32 - 1
	recordBye  = 1<<32 - 2
)

func newLink(m *Overlay, host int, kind, id string, caller bool) *Link {
	l := &Link{m: m, host: host, kind: kind, id: id, caller: caller, done: make(chan struct{})}
	l.cond = sync.NewCond(&l.mu)
	return l
}

// Read reads what the other side wrote. It returns io.EOF when the other side has closed the link.
func (l *Link) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.in.Len() == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.cond.Wait()
	}
	n, _ := l.in.Read(p)
	l.eaten += uint64(n)
	if l.eaten-l.told >= linkWindow/4 {
		l.cond.Broadcast()
	}
	return n, nil
}

// Write returns when all of p is stored for the other side. It waits while the other side does not read or cannot be
// reached.
func (l *Link) Write(p []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		room := linkWindow - l.out.Len()
		switch {
		case l.err != nil:
			if l.err == io.EOF {
				return n, net.ErrClosed
			}
			return n, l.err
		case l.closing:
			return n, net.ErrClosed
		case room <= 0:
			l.cond.Wait()
		default:
			k := min(room, len(p))
			l.out.Write(p[:k])
			p, n = p[k:], n+k
			l.cond.Broadcast()
		}
	}
	return n, nil
}

// Close ends the link. Bytes written before are sent first, if the other side reads them in time.
func (l *Link) Close() error {
	l.mu.Lock()
	first := !l.closing
	l.closing = true
	if l.conn == nil {
		l.end(io.EOF) // no other side to notify
	}
	l.cond.Broadcast()
	l.mu.Unlock()
	if first {
		time.AfterFunc(byeBound, func() { l.fail(io.EOF) })
	}
	return nil
}

// fail ends the link with err.
func (l *Link) fail(err error) {
	l.mu.Lock()
	l.end(err)
	l.mu.Unlock()
}

// end is fail with the lock held.
func (l *Link) end(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.gen++
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	l.cond.Broadcast()
	close(l.done)
	l.m.forget(l)
}

// suspend invalidates the present connection. It returns how many bytes arrived through it and its predecessors, and
// the number by which attach detects that nothing has happened since.
func (l *Link) suspend() (got uint64, gen int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return 0, 0, l.err
	}
	l.gen++
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	return l.got, l.gen, nil
}

// attach continues the link over connection c, whose other side has received that many bytes.
func (l *Link) attach(c net.Conn, gen int, received uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil || l.gen != gen {
		c.Close()
		return net.ErrClosed
	}
	if received < l.acked || received > l.acked+uint64(l.out.Len()) {
		c.Close()
		err := fmt.Errorf("network: the other host has received %d bytes of %d to %d", received, l.acked, l.acked+uint64(l.out.Len()))
		l.end(err)
		return err
	}
	l.conn, l.next, l.told, l.byeSent = c, received, 0, false
	l.cond.Broadcast()
	if !l.m.spawn(func() { l.send(c, gen) }) || !l.m.spawn(func() { l.receive(c, gen) }) {
		l.end(net.ErrClosed)
		return net.ErrClosed
	}
	return nil
}

// up reports that a lost connection has been replaced.
func (l *Link) up() {
	l.mu.Lock()
	was := l.down
	l.down = false
	l.mu.Unlock()
	if was {
		l.m.state(l, nil)
	}
}

// send writes records to a connection until the link uses another one or ends.
func (l *Link) send(c net.Conn, gen int) {
	var buf []byte // as large as the largest record until now, because most links carry little
	for {
		buf = buf[:0]
		l.mu.Lock()
		for {
			if l.gen != gen {
				l.mu.Unlock()
				return
			}
			unsent := l.out.Len() - int(l.next-l.acked)
			if l.eaten-l.told >= linkWindow/4 {
				buf = binary.BigEndian.AppendUint32(buf, recordAck)
				buf = binary.BigEndian.AppendUint64(buf, l.eaten)
				l.told = l.eaten
			}
			if n := min(unsent, maxRecord); n > 0 {
				buf = binary.BigEndian.AppendUint32(buf, uint32(n))
				at := int(l.next - l.acked)
				buf = append(buf, l.out.Bytes()[at:at+n]...)
				l.next += uint64(n)
			} else if l.closing && !l.byeSent {
				buf = binary.BigEndian.AppendUint32(buf, recordBye)
				l.byeSent = true
			}
			if len(buf) > 0 {
				break
			}
			if l.byeSent && l.byeTaken {
				l.end(io.EOF)
				l.mu.Unlock()
				return
			}
			l.cond.Wait()
		}
		l.mu.Unlock()
		if _, err := c.Write(buf); err != nil {
			l.broken(gen, err)
			return
		}
	}
}

// receive reads records from a connection. It never waits for the link's reader, because the buffer has room for all
// that the other side may send.
func (l *Link) receive(c net.Conn, gen int) {
	buf := make([]byte, 512) // grows with the first larger record
	for {
		if _, err := io.ReadFull(c, buf[:4]); err != nil {
			l.broken(gen, err)
			return
		}
		switch n := binary.BigEndian.Uint32(buf); {
		case n == recordBye:
			if !l.take(gen, func() error {
				l.closing, l.byeTaken = true, true
				l.cond.Broadcast()
				return nil
			}) {
				return
			}
		case n == recordAck:
			if _, err := io.ReadFull(c, buf[:8]); err != nil {
				l.broken(gen, err)
				return
			}
			read := binary.BigEndian.Uint64(buf)
			if !l.take(gen, func() error {
				if read < l.acked || read > l.next {
					return errors.New("network: the other host has read what was not sent")
				}
				l.out.Next(int(read - l.acked))
				l.acked = read
				l.cond.Broadcast()
				return nil
			}) {
				return
			}
		case n > maxRecord || n == 0:
			l.take(gen, func() error { return fmt.Errorf("network: the other host sent a record of %d bytes", n) })
			return
		default:
			if int(n) > len(buf) {
				buf = make([]byte, maxRecord)
			}
			if _, err := io.ReadFull(c, buf[:n]); err != nil {
				l.broken(gen, err)
				return
			}
			if !l.take(gen, func() error {
				if l.in.Len()+int(n) > linkWindow {
					return errors.New("network: the other host sent more than was asked for")
				}
				l.in.Write(buf[:n])
				l.got += uint64(n)
				l.cond.Broadcast()
				return nil
			}) {
				return
			}
		}
	}
}

// take runs f under the lock for a record of connection gen. An error of f ends the link. It reports whether the link
// still uses that connection.
func (l *Link) take(gen int, f func() error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gen != gen {
		return false
	}
	if err := f(); err != nil {
		l.end(err)
		return false
	}
	return true
}

// broken reports that connection gen has failed. The calling side makes another; the other side waits for it.
func (l *Link) broken(gen int, err error) {
	l.mu.Lock()
	if l.gen != gen {
		l.mu.Unlock()
		return
	}
	l.gen++
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
	over, first := l.closing, !l.down
	if over {
		l.end(io.EOF)
	}
	l.down = true
	gen = l.gen
	l.mu.Unlock()
	if over {
		return
	}
	if first {
		l.m.state(l, err)
	}
	if !l.m.spawn(func() {
		if l.caller {
			l.m.redial(l)
		} else {
			l.m.expect(l, gen)
		}
	}) {
		l.fail(net.ErrClosed)
	}
}
