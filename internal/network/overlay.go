package network

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Overlay is one host's side of the connections between all hosts of a job: TCP with TLS 1.3, for which both ends must
// know the job's secret. The hosts find each other without knowing ports: each listens on the first free one of a few
// ports that follow from the secret, and a caller tries them in order.
//
// A caller first proves, in 32 bytes, that it knows the secret. A connection without that proof costs the host one
// place among callers, for callBound, and nothing else.
type Overlay struct {
	o       OverlayOptions
	ln      net.Listener
	tls     *tls.Config
	ticket  []byte // key of the proof
	ctx     context.Context
	stop    context.CancelFunc
	callers Callers // that have proved nothing
	proven  Callers // that know the secret, or relay what a host sent

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
	links  map[*Link]bool
	taken  map[session]*Link // made by other hosts
	of     map[int]int       // how many links each host has made

	patience time.Duration // giveUp, except in tests
}

// session identifies a link that a host has made.
type session struct {
	host int
	id   string
}

// OverlayHost is a host of a job.
type OverlayHost struct {
	Name string
	Addr string // IP address or name by which the other hosts reach it
}

// OverlayOptions are the settings on which all hosts of a job must agree, and the index of this host.
type OverlayOptions struct {
	Secret []byte // 32 bytes, the job's own
	Hosts  []OverlayHost
	Self   int // index of this host
	// LowPort and HighPort bound the ports to listen on.
	LowPort, HighPort int
	// Serve is called in a goroutine for each link that another host makes, with that host and the link's kind. The
	// link is closed when Serve returns.
	Serve func(host int, kind string, l *Link)
	// State, if set, is called when a link has lost its connection, and with nil when it has another.
	State func(host int, kind string, err error)
}

// Bounds.
const (
	candidates  = 16               // ports that a host may listen on
	callBound   = 5 * time.Second  // until a caller has sent its proof, and until a called host has answered
	helloBound  = 10 * time.Second // until the greeting that follows
	byeBound    = 2 * time.Second  // until a closed link has sent its last bytes
	maxLinks    = 16               // made by one host
	ticketBytes = 16
)

// MaxOverlayHosts is the largest number of hosts of a job whose VMs are connected.
const MaxOverlayHosts = 1024

// NewOverlay listens for the other hosts until Close. It fails if none of the ports is free.
func NewOverlay(o OverlayOptions) (*Overlay, error) {
	if len(o.Secret) != 32 || o.Self < 0 || o.Self >= len(o.Hosts) {
		return nil, errors.New("network: an overlay needs a secret of 32 bytes, and this host among its hosts")
	}
	if len(o.Hosts) > MaxOverlayHosts {
		return nil, fmt.Errorf("network: the VMs of %d hosts cannot be joined: %d are the most", len(o.Hosts), MaxOverlayHosts)
	}
	if o.LowPort < 1 || o.HighPort > 65535 || o.HighPort < o.LowPort {
		return nil, fmt.Errorf("network: %d-%d is not a range of ports", o.LowPort, o.HighPort)
	}
	m := &Overlay{o: o, ticket: Derive(o.Secret, "ticket"), patience: giveUp,
		links: map[*Link]bool{}, taken: map[session]*Link{}, of: map[int]int{}}
	var err error
	if m.tls, err = SecretTLS(o.Secret); err != nil {
		return nil, err
	}
	for _, p := range m.ports(o.Self) {
		if m.ln, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(p))); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("network: no port of %d-%d can be listened on: %w", o.LowPort, o.HighPort, err)
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.spawn(m.listen)
	return m, nil
}

// Addr returns the address on which the overlay listens.
func (m *Overlay) Addr() net.Addr { return m.ln.Addr() }

// spawn runs f in a goroutine that Close waits for. It returns false once Close was called.
func (m *Overlay) spawn(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.wg.Add(1)
	go func() { defer m.wg.Done(); f() }()
	return true
}

// Close ends all links, after the other hosts have been notified or after byeBound, and waits until all goroutines of
// the overlay have ended.
func (m *Overlay) Close() error {
	m.ln.Close()
	links := m.all()
	for _, l := range links {
		l.Close() // returns within byeBound
	}
	for _, l := range links {
		<-l.done
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	for _, l := range m.all() {
		l.fail(net.ErrClosed)
	}
	m.wg.Wait()
	return nil
}

func (m *Overlay) all() []*Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []*Link
	for l := range m.links {
		list = append(list, l)
	}
	return list
}

// forget removes a link that has ended.
func (m *Overlay) forget(l *Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.links[l] {
		return
	}
	delete(m.links, l)
	if !l.caller {
		delete(m.taken, session{l.host, l.id})
		m.of[l.host]--
	}
}

func (m *Overlay) state(l *Link, err error) {
	if m.o.State != nil {
		m.o.State(l.host, l.kind, err)
	}
}

// ports returns the ports on which a host may listen, in the order in which it tries them.
func (m *Overlay) ports(host int) []int {
	n := m.o.HighPort - m.o.LowPort + 1
	var list []int
	seen := map[int]bool{}
	for i := 0; len(list) < min(candidates, n); i++ {
		sum := Derive(m.o.Secret, fmt.Sprintf("port %d %d", host, i))
		p := m.o.LowPort + int(binary.BigEndian.Uint32(sum)%uint32(n))
		if !seen[p] {
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}

// Derive returns a 32-byte key for one use, derived from the secret (HMAC-SHA-256).
func Derive(secret []byte, use string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte(use))
	return h.Sum(nil)
}

// proof returns a caller's answer to the challenge of a host.
func (m *Overlay) proof(challenge []byte, host int) []byte {
	h := hmac.New(sha256.New, m.ticket)
	h.Write(challenge)
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(host)))
	return h.Sum(nil)
}

func (m *Overlay) listen() {
	for {
		c, err := m.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors or memory: ending callers frees what they use
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-m.ctx.Done():
				return
			}
		}
		m.callers.Add(c)
		if !m.spawn(func() { m.answer(c) }) {
			m.callers.Done(c)
			c.Close()
			return
		}
	}
}

// answer handles a call of another host.
func (m *Overlay) answer(raw net.Conn) {
	stop := context.AfterFunc(m.ctx, func() { raw.Close() })
	l, fresh, err := m.admit(raw)
	m.callers.Done(raw)
	m.proven.Done(raw)
	stop()
	if err != nil {
		raw.Close()
		return
	}
	if !fresh {
		l.up()
		return
	}
	if m.o.Serve != nil {
		m.o.Serve(l.host, l.kind, l)
	}
	l.Close()
}

// admit verifies that a caller knows the secret, and attaches its connection to its link; fresh reports that the link
// is new.
func (m *Overlay) admit(raw net.Conn) (l *Link, fresh bool, err error) {
	raw.SetDeadline(time.Now().Add(callBound))
	challenge, answer := make([]byte, ticketBytes), make([]byte, sha256.Size)
	if _, err := rand.Read(challenge); err != nil {
		return nil, false, err
	}
	if _, err := raw.Write(challenge); err != nil {
		return nil, false, err
	}
	if _, err := io.ReadFull(raw, answer); err != nil {
		return nil, false, err
	}
	if !hmac.Equal(answer, m.proof(challenge, m.o.Self)) {
		return nil, false, errors.New("network: rejected a connection without the job's secret")
	}
	m.callers.Done(raw)
	m.proven.Add(raw)
	raw.SetDeadline(time.Now().Add(helloBound))
	c := tls.Server(raw, m.tls)
	line, err := readLine(c)
	if err != nil {
		return nil, false, err
	}
	h, err := parseHello(line)
	if err == nil {
		err = h.check(m.o.Self, len(m.o.Hosts))
	}
	if err != nil {
		fmt.Fprintln(c, "no")
		return nil, false, err
	}
	if l, fresh, err = m.linkFor(h); err != nil {
		fmt.Fprintln(c, answerGone)
		return nil, false, err
	}
	got, gen, err := l.suspend()
	if err == nil {
		_, err = fmt.Fprintf(c, answerYes+"%d\n", got)
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err == nil {
		return l, fresh, l.attach(c, gen, h.received)
	}
	if fresh {
		l.fail(err)
	} else {
		l.broken(gen, err)
	}
	return nil, false, err
}

// linkFor returns the link of a greeting; fresh reports that the link was made for it. The error states why the host that
// greets has no such link.
func (m *Overlay) linkFor(h hello) (l *Link, fresh bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := session{h.from, h.id}
	l = m.taken[key]
	switch {
	case l != nil && l.kind == h.kind:
		return l, false, nil
	case l != nil:
		return nil, false, fmt.Errorf("network: host %d resumed a link as one of another kind", h.from)
	case !h.fresh:
		return nil, false, fmt.Errorf("network: host %d resumed a link that does not exist here", h.from)
	case m.closed:
		return nil, false, errors.New("network: the overlay is closed")
	case m.of[h.from] >= maxLinks:
		return nil, false, fmt.Errorf("network: host %d has as many links as one host may have (%d)", h.from, maxLinks)
	}
	l = newLink(m, h.from, h.kind, h.id, false)
	m.links[l], m.taken[key] = true, l
	m.of[h.from]++
	return l, true, nil
}

// Carry forwards frames between a switch's end for another host (NewSwitch) and the link to that host until either
// ends, and closes both.
func Carry(end, link io.ReadWriteCloser) {
	done := make(chan struct{}, 2)
	copyAll := func(to, from io.ReadWriteCloser) {
		io.Copy(to, from)
		to.Close()
		from.Close()
		done <- struct{}{}
	}
	go copyAll(link, end)
	go copyAll(end, link)
	<-done
	<-done
}

// refusedBy reports whether a call failed because nothing listens on the port.
func refusedBy(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }
