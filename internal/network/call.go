package network

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds and delays of calls.
const (
	stagger    = 250 * time.Millisecond // time after which the next port of a host is called if one does not answer
	firstWait  = 50 * time.Millisecond  // between two calls of a host
	mostWait   = time.Second
	giveUp     = time.Minute      // until a link that lost its connection is given up
	giveUpLate = 10 * time.Minute // the same, if the host accepts connections and does not answer: suspended
	refusals   = 5                // consecutive, by all ports: nothing of the job runs on the host any more
)

var (
	// errNotIt reports that the program listening on a port is not the intended host.
	errNotIt = errors.New("is not the job's host")
	// errSilent reports that a program listens on a port and does not answer.
	errSilent = errors.New("accepts connections and does not answer")
	// errGone reports that the host no longer knows a link.
	errGone = errors.New("the other host has given this connection up")
)

// Dial makes a link to a host. It calls until the host answers or ctx ends. kind is the link's purpose, one word of
// lowercase letters. said, which may be nil, is called with the reason why the host has not answered yet.
func (m *Overlay) Dial(ctx context.Context, host int, kind string, said func(error)) (*Link, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	l := newLink(m, host, kind, hex.EncodeToString(id), true)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, net.ErrClosed
	}
	m.links[l] = true
	m.mu.Unlock()
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		err := m.connect(ctx, l, true)
		if err == nil {
			return l, nil
		}
		if said != nil && ctx.Err() == nil {
			said(err)
		}
		select {
		case <-ctx.Done():
		case <-l.done:
			err = net.ErrClosed
		case <-time.After(wait):
			continue
		}
		l.fail(err)
		return nil, err
	}
}

// redial makes another connection for a link that has lost its own, or ends the link.
func (m *Overlay) redial(l *Link) {
	w := watch{start: time.Now(), patience: m.patience}
	for wait := firstWait; ; wait = min(2*wait, mostWait) {
		err := m.connect(m.ctx, l, false)
		if err == nil {
			l.up()
			return
		}
		if errors.Is(err, errGone) || w.lost(err) {
			l.fail(fmt.Errorf("the connection was lost and cannot be made again: %w", err))
			return
		}
		select {
		case <-l.done:
			return
		case <-time.After(wait):
		}
	}
}

// expect waits until the host that made a link has made another connection for it, or ends the link. In the meantime it
// calls the host to check whether it is still running.
func (m *Overlay) expect(l *Link, gen int) {
	w := watch{start: time.Now(), patience: m.patience}
	for {
		select {
		case <-l.done:
			return
		case <-time.After(mostWait):
		}
		l.mu.Lock()
		over := l.gen != gen
		l.mu.Unlock()
		if over {
			return
		}
		c, err := m.call(m.ctx, l.host, m.ports(l.host))
		if err == nil {
			c.Close()
			err = errSilent // running, and slow to call
		}
		if w.lost(err) {
			l.fail(fmt.Errorf("the connection was lost and the other host has made no other: %w", err))
			return
		}
	}
}

// watch decides when a link that has lost its connection is given up.
type watch struct {
	start    time.Time
	patience time.Duration
	refused  int
}

// lost records why a call failed, and reports whether to give up the link.
func (w *watch) lost(err error) bool {
	if w.refused++; !refusedBy(err) {
		w.refused = 0
	}
	most := w.patience
	if errors.Is(err, errSilent) {
		most *= giveUpLate / giveUp
	}
	return w.refused >= refusals || time.Since(w.start) > most
}

// connect calls the host of a link and attaches the connection to the link; fresh means the link's first connection. A
// port may be answered by another job's host, by another of this job's hosts on the same machine, or by any program
// that speaks first: in these cases connect calls the host's other ports.
func (m *Overlay) connect(ctx context.Context, l *Link, fresh bool) error {
	ports := m.ports(l.host)
	var other error // the error of the last port on which another program answered
	for {
		raw, err := m.call(ctx, l.host, ports)
		if err != nil {
			if other != nil {
				return other
			}
			return err
		}
		if err = m.greet(raw, l, fresh); !errors.Is(err, errNotIt) {
			return err
		}
		other = err
		ports = slices.DeleteFunc(ports, func(p int) bool { return p == raw.RemoteAddr().(*net.TCPAddr).Port })
		if len(ports) == 0 {
			return other
		}
	}
}

// greet attaches a connection to its link, if the connection leads to the link's host.
func (m *Overlay) greet(raw net.Conn, l *Link, fresh bool) error {
	defer context.AfterFunc(m.ctx, func() { raw.Close() })()
	got, gen, err := l.suspend()
	if err != nil {
		raw.Close()
		return err
	}
	raw.SetDeadline(time.Now().Add(helloBound))
	c := tls.Client(raw, m.tls)
	_, err = fmt.Fprintln(c, hello{m.o.Self, l.host, l.kind, l.id, fresh, got})
	line := ""
	if err == nil {
		line, err = readLine(c)
	}
	text, yes := strings.CutPrefix(line, answerYes)
	received, bad := strconv.ParseUint(text, 10, 63)
	if err == nil && yes && bad == nil {
		if err = raw.SetDeadline(time.Time{}); err == nil {
			return l.attach(c, gen, received)
		}
	}
	raw.Close()
	if err == nil && line == answerGone {
		return errGone
	}
	return fmt.Errorf("%s %w", raw.RemoteAddr(), errNotIt)
}

// call calls ports of a host, one after another without waiting for those that are silent. It returns the first
// connection whose other end has asked for the proof and received it. If all ports refuse, the error is ECONNREFUSED.
func (m *Overlay) call(ctx context.Context, host int, ports []int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	type answer struct {
		c   net.Conn
		err error
	}
	answers := make(chan answer, len(ports))
	called := 0
	next := time.NewTimer(0)
	defer next.Stop()
	over := ctx.Done()
	var why error
	for failed := 0; failed < len(ports); {
		var more <-chan time.Time
		if called < len(ports) {
			more = next.C
		}
		select {
		case <-more:
			p := ports[called]
			called++
			go func() {
				c, err := m.callPort(ctx, host, p)
				answers <- answer{c, err}
			}()
			next.Reset(stagger)
		case a := <-answers:
			if a.err == nil {
				go func() { // later answers are not needed
					for failed++; failed < called; failed++ {
						if late := <-answers; late.c != nil {
							late.c.Close()
						}
					}
				}()
				return a.c, nil
			}
			failed++
			if why == nil || refusedBy(why) || errors.Is(a.err, errSilent) {
				why = a.err
			}
			if called < len(ports) {
				if !next.Stop() {
					select {
					case <-next.C:
					default:
					}
				}
				next.Reset(0)
			}
		case <-over:
			ports, over = ports[:called], nil // ends the calls of those ports
		}
	}
	if why == nil {
		why = ctx.Err()
	}
	return nil, why
}

// callPort calls one port of a host, and sends it the proof that it asks for.
func (m *Overlay) callPort(ctx context.Context, host, port int) (net.Conn, error) {
	addr := net.JoinHostPort(m.o.Hosts[host].Addr, strconv.Itoa(port))
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	challenge := make([]byte, ticketBytes)
	if _, err = io.ReadFull(c, challenge); err == nil {
		_, err = c.Write(m.proof(challenge, host))
	}
	if stop() && err == nil {
		return c, nil
	}
	c.Close()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s %w", addr, errSilent)
	}
	return nil, fmt.Errorf("%s %w", addr, errNotIt)
}
