package channel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"nearmetal/internal/text"
)

// Options of a Mux.
type Options struct {
	// Name is the name of the other side in errors: "vm0", "cluster demo".
	Name string
	// Initiator makes the streams of this side odd; the other side's must be even. The host is the initiator towards
	// a VM, a client towards a cluster's owner.
	Initiator bool
	// Hello is sent to the other side, in addition to `protocol`.
	Hello Fields
	// Accept routes each stream that the other side opens; nil rejects all. It is called by the goroutine that reads
	// the carrier and must not block.
	Accept func(kind string, header Fields) (Route, error)
	// Quiet delays HELLO until another frame is sent: nothing is written to the carrier before.
	Quiet bool
	// MaxStreams is the maximum number of concurrent streams of the other side; 0: 1024.
	MaxStreams int
	// MaxHeaders is the maximum total size of the headers of the other side's streams in bytes; 0: 4 MiB.
	MaxHeaders int
	// Explain returns text that is appended to the error when the carrier ends (the last lines of a console); nil:
	// none. It has 5 s.
	Explain func() string
	// StallTimeout is how long the other side may read nothing while relayed data waits for it, before its carrier is
	// ended; 0: 60 s.
	StallTimeout time.Duration
}

// Route is the destination of a stream that the other side opened: a handler, or another Mux.
type Route struct {
	Handle func(*Stream) // run in a goroutine; the stream is closed when it returns
	Mux    *Mux          // where a stream of the same kind is opened
	Header Fields        // the header it is opened with
}

const (
	// queueLocal is how many bytes may be queued for the carrier before a Write of this process blocks.
	queueLocal = 256 << 10
	// queueRelay is the same limit for frames that are relayed.
	queueRelay = 1 << 20
	// queueMost is the limit for all queued bytes: answers, which cannot wait, may exceed queueRelay. A carrier with
	// more is ended.
	queueMost = 4 << 20
)

// Mux carries streams over one carrier. Its methods may be called from any goroutine.
type Mux struct {
	o    Options
	conn io.ReadWriteCloser

	mu      sync.Mutex
	cond    *sync.Cond // signals changes of the queue, closing or err
	queue   []byte     // frames that wait for the carrier
	held    int        // bytes of it that wait for more data: HELLO, if Options.Quiet
	writing bool       // a batch is being written
	moved   time.Time  // when the carrier last accepted a batch
	streams map[uint32]endpoint
	next    uint32 // ID of the next stream of this side
	remote  int    // streams of the other side, including running handlers
	headers int    // size of their headers in bytes
	closing bool
	failing bool
	err     error

	openMu sync.Mutex // held while the frames of one OPEN are queued

	hello     Fields
	helloDone chan struct{}
	done      chan struct{}

	pingMu sync.Mutex
	pong   chan uint64
	pings  uint64
}

// endpoint is one stream's end at a Mux.
type endpoint interface {
	// frame handles a frame of the stream; the payload is valid only during the call. An error is a violation of the
	// protocol and ends the carrier. Only a relay may wait, for another carrier.
	frame(h FrameHeader, payload []byte) error
	// lost reports that the carrier has ended.
	lost(err error)
}

// New starts a Mux on conn, which it owns from now on. HELLO is sent at once.
func New(conn io.ReadWriteCloser, o Options) (*Mux, error) {
	if o.MaxStreams == 0 {
		o.MaxStreams = 1024
	}
	if o.MaxHeaders == 0 {
		o.MaxHeaders = 4 << 20
	}
	if o.StallTimeout == 0 {
		o.StallTimeout = 60 * time.Second
	}
	hello := append(Fields{{"protocol", fmt.Sprint(Version)}}, o.Hello...)
	b, err := hello.Encode()
	if err != nil {
		return nil, err
	}
	if len(b) > maxHello {
		return nil, fmt.Errorf("a HELLO of %d bytes; the most is %d", len(b), maxHello)
	}
	m := &Mux{
		o: o, conn: conn, streams: map[uint32]endpoint{}, next: 2,
		helloDone: make(chan struct{}), done: make(chan struct{}), pong: make(chan uint64, 1),
		moved: time.Now(),
	}
	if o.Initiator {
		m.next = 1
	}
	m.cond = sync.NewCond(&m.mu)
	m.queue = AppendFrame(nil, Hello, 0, 0, b)
	if o.Quiet {
		m.held = len(m.queue)
	}
	go m.write()
	go m.read()
	return m, nil
}

// Name returns Options.Name.
func (m *Mux) Name() string { return m.o.Name }

// Done is closed when the carrier has ended; Err then returns the cause.
func (m *Mux) Done() <-chan struct{} { return m.done }

// Err returns nil while the carrier lives, ErrClosed after Close, else a *CarrierError.
func (m *Mux) Err() error {
	select {
	case <-m.done:
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.err
	default:
		return nil
	}
}

// Hello waits for the other side's HELLO and returns its fields.
func (m *Mux) Hello(ctx context.Context) (Fields, error) {
	select {
	case <-m.helloDone:
		return m.hello, nil
	case <-m.done:
		return nil, m.Err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Ping returns the round-trip time to the other side.
func (m *Mux) Ping(ctx context.Context) (time.Duration, error) {
	m.pingMu.Lock()
	defer m.pingMu.Unlock()
	m.pings++
	start := time.Now()
	if err := m.send(Ping, 0, 0, binary.LittleEndian.AppendUint64(nil, m.pings)); err != nil {
		return 0, err
	}
	for {
		select {
		case n := <-m.pong:
			if n == m.pings {
				return time.Since(start), nil
			}
		case <-m.done:
			return 0, m.Err()
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// Open opens a stream of a kind. It does not wait for the other side, which may still reject the stream.
func (m *Mux) Open(kind string, header Fields) (*Stream, error) {
	b, err := encodeOpen(kind, header)
	if err != nil {
		return nil, err
	}
	s := newStream(m, kind, header)
	if err := m.open(b, s, func(id uint32) { s.id = id }); err != nil {
		return nil, err
	}
	return s, nil
}

// open assigns e an ID, passes it to set before e can be called, and sends OPEN.
func (m *Mux) open(payload []byte, e endpoint, set func(id uint32)) error {
	m.openMu.Lock()
	defer m.openMu.Unlock()
	m.mu.Lock()
	if err := m.ended(); err != nil {
		m.mu.Unlock()
		return err
	}
	id := m.next
	for m.streams[id] != nil || id == 0 {
		id += 2
	}
	m.next = id + 2
	set(id)
	m.streams[id] = e
	m.mu.Unlock()
	for len(payload) > 0 {
		n, more := len(payload), uint8(0)
		if n > MaxPayload {
			n, more = MaxPayload, 1
		}
		if err := m.sendWait(queueRelay, Open, more, id, payload[:n]); err != nil {
			return err
		}
		payload = payload[n:]
	}
	return nil
}

// forget removes a stream whose ID neither side uses any more.
func (m *Mux) forget(id uint32) {
	m.mu.Lock()
	delete(m.streams, id)
	m.mu.Unlock()
}

// ended returns the error if the carrier has ended. mu is held.
func (m *Mux) ended() error {
	if m.err != nil {
		return m.err
	}
	if m.closing || m.failing {
		return ErrClosed
	}
	return nil
}

// send queues a frame that cannot wait.
func (m *Mux) send(t FrameType, lane uint8, id uint32, payload []byte) error {
	m.mu.Lock()
	if err := m.ended(); err != nil {
		m.mu.Unlock()
		return err
	}
	if len(m.queue) > queueMost {
		m.mu.Unlock()
		err := errors.New("peer stopped reading")
		go m.fail(err)
		return err
	}
	m.queue = AppendFrame(m.queue, t, lane, id, payload)
	m.cond.Broadcast()
	m.mu.Unlock()
	return nil
}

// sendWait queues a frame once at most `most` bytes are queued before it. A carrier that accepts nothing for
// StallTimeout in the meantime is ended.
func (m *Mux) sendWait(most int, t FrameType, lane uint8, id uint32, payload []byte) error {
	m.mu.Lock()
	if len(m.queue) > most && m.ended() == nil {
		since := time.Now()
		stop := make(chan struct{})
		defer close(stop)
		go m.watchStall(since, stop)
		for len(m.queue) > most && m.ended() == nil {
			m.cond.Wait()
		}
	}
	if err := m.ended(); err != nil {
		m.mu.Unlock()
		return err
	}
	m.queue = AppendFrame(m.queue, t, lane, id, payload)
	m.cond.Broadcast()
	m.mu.Unlock()
	return nil
}

// watchStall ends the carrier if from since on it accepts nothing for StallTimeout.
func (m *Mux) watchStall(since time.Time, stop <-chan struct{}) {
	for {
		m.mu.Lock()
		last := m.moved
		m.mu.Unlock()
		if last.Before(since) {
			last = since
		}
		left := m.o.StallTimeout - time.Since(last)
		if left <= 0 {
			m.fail(fmt.Errorf("the other side read nothing for %v", m.o.StallTimeout))
			return
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-stop:
			t.Stop()
			return
		case <-m.done:
			t.Stop()
			return
		}
	}
}

// write writes the queue to the carrier, all queued bytes at a time.
func (m *Mux) write() {
	var batch []byte
	for {
		m.mu.Lock()
		m.writing = false
		for len(m.queue) <= m.held && !m.closing && !m.failing {
			m.cond.Wait()
		}
		if m.failing || len(m.queue) <= m.held {
			m.queue = nil
			m.cond.Broadcast()
			m.mu.Unlock()
			return
		}
		if cap(batch) > 2*queueLocal {
			batch = nil // frees the memory after a burst
		}
		batch, m.queue, m.held = m.queue, batch[:0], 0
		m.writing = true
		m.cond.Broadcast()
		m.mu.Unlock()
		for b := batch; len(b) > 0; {
			n, err := m.conn.Write(b[:min(len(b), MaxPayload)])
			if err != nil {
				m.fail(err)
				return
			}
			b = b[n:]
			m.mu.Lock()
			m.moved = time.Now()
			m.mu.Unlock()
		}
	}
}

// Close sends the queued bytes, for at most a second, and ends the carrier.
func (m *Mux) Close() error {
	m.mu.Lock()
	m.closing = true
	m.cond.Broadcast()
	late := time.AfterFunc(time.Second, func() { m.fail(ErrClosed) })
	for (len(m.queue) > 0 || m.writing) && !m.failing {
		m.cond.Wait()
	}
	m.mu.Unlock()
	late.Stop()
	m.fail(ErrClosed)
	<-m.done
	return nil
}

// fail ends the carrier; only the first call has an effect.
func (m *Mux) fail(cause error) {
	m.mu.Lock()
	if m.failing {
		m.mu.Unlock()
		return
	}
	m.failing = true
	if m.closing {
		cause = ErrClosed
	}
	m.cond.Broadcast()
	m.mu.Unlock()
	m.conn.Close()

	err := cause
	if cause != ErrClosed {
		err = &CarrierError{Name: m.o.Name, Cause: cause, Detail: m.explain()}
	}
	m.mu.Lock()
	m.err = err
	streams := m.streams
	m.streams = map[uint32]endpoint{}
	m.queue = nil
	m.mu.Unlock()
	close(m.done)
	for _, e := range streams {
		e.lost(err)
	}
	m.mu.Lock()
	m.cond.Broadcast()
	m.mu.Unlock()
}

// explainTimeout bounds Options.Explain.
const explainTimeout = 5 * time.Second

func (m *Mux) explain() string {
	if m.o.Explain == nil {
		return ""
	}
	c := make(chan string, 1)
	go func() { c <- m.o.Explain() }()
	t := time.NewTimer(explainTimeout)
	defer t.Stop()
	select {
	case s := <-c:
		return s
	case <-t.C:
		return ""
	}
}

// read reads frames from the carrier until it ends.
func (m *Mux) read() {
	r := bufio.NewReaderSize(m.conn, 64<<10)
	payload := make([]byte, MaxPayload)
	var head [HeaderSize]byte
	var in incoming
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			m.fail(err)
			return
		}
		h, err := DecodeHeader(head[:])
		if err != nil {
			m.fail(err)
			return
		}
		p := payload[:h.Length]
		if _, err := io.ReadFull(r, p); err != nil {
			m.fail(err)
			return
		}
		if err := m.take(h, p, &in); err != nil {
			m.fail(err)
			return
		}
	}
}

// incoming is an OPEN of more than one frame.
type incoming struct {
	id      uint32
	payload []byte
}

// take handles one frame.
func (m *Mux) take(h FrameHeader, p []byte, in *incoming) error {
	if h.Stream == 0 {
		return m.takeControl(h, p)
	}
	if m.hello == nil {
		return protocolError("%s before HELLO", h.Type)
	}
	if h.Type == Open {
		return m.takeOpen(h, p, in)
	}
	m.mu.Lock()
	e := m.streams[h.Stream]
	m.mu.Unlock()
	if e == nil {
		return nil // late frames of a stream that this side has finished
	}
	return e.frame(h, p)
}

func (m *Mux) takeControl(h FrameHeader, p []byte) error {
	switch h.Type {
	case Reset:
		return &ResetError{text.CleanLines(string(p))}
	case Hello:
		if m.hello != nil {
			return protocolError("a second HELLO")
		}
		f, err := DecodeFields(p)
		if err != nil {
			return err
		}
		if v := f.Get("protocol"); v != fmt.Sprint(Version) {
			return protocolError("version %q of the protocol; this side speaks version %d", text.CleanLines(v), Version)
		}
		m.hello = f
		close(m.helloDone)
	case Ping:
		// A flood of PINGs ends at queueMost.
		m.send(Pong, 0, 0, p)
	case Pong:
		select {
		case m.pong <- binary.LittleEndian.Uint64(p):
		default:
		}
	}
	return nil
}

func (m *Mux) takeOpen(h FrameHeader, p []byte, in *incoming) error {
	if m.o.Initiator == (h.Stream%2 == 1) {
		return protocolError("OPEN of stream %d, a number of this side", h.Stream)
	}
	if in.id != 0 && in.id != h.Stream {
		return protocolError("OPEN of stream %d within that of stream %d", h.Stream, in.id)
	}
	if len(in.payload)+len(p) > MaxHeader {
		return protocolError("a header of more than %d bytes", MaxHeader)
	}
	if h.Lane == 1 {
		in.id = h.Stream
		in.payload = append(in.payload, p...)
		return nil
	}
	if in.id != 0 {
		p = append(in.payload, p...)
		*in = incoming{}
	}
	kind, header, err := decodeOpen(p)
	if err != nil {
		return err
	}
	size := len(p)
	m.mu.Lock()
	if m.streams[h.Stream] != nil {
		m.mu.Unlock()
		return protocolError("OPEN of stream %d, which is open", h.Stream)
	}
	full := m.remote >= m.o.MaxStreams || m.headers+size > m.o.MaxHeaders
	if !full {
		m.remote++
		m.headers += size
	}
	m.mu.Unlock()
	if full {
		return m.refuse(h.Stream, errors.New("too many streams are open"))
	}
	place := 1
	release := func() { // may be called more than once
		m.mu.Lock()
		m.remote -= place
		m.headers -= size
		place, size = 0, 0
		m.mu.Unlock()
	}
	passed := func() { // a relay keeps no header
		m.mu.Lock()
		m.headers -= size
		size = 0
		m.mu.Unlock()
	}
	var route Route
	err = fmt.Errorf("streams of kind %s are not for you", kind)
	if m.o.Accept != nil {
		route, err = m.o.Accept(kind, header)
	}
	switch {
	case err != nil:
		release()
		return m.refuse(h.Stream, err)
	case route.Mux != nil:
		if err := relayTo(m, h.Stream, route.Mux, kind, route.Header, release); err != nil {
			release()
			return m.refuse(h.Stream, err)
		}
		passed()
	default:
		s := newStream(m, kind, header)
		s.id = h.Stream
		m.mu.Lock()
		m.streams[s.id] = s
		m.mu.Unlock()
		go func() {
			defer release()
			defer s.Close()
			route.Handle(s)
		}()
	}
	return nil
}

// refuse answers an OPEN with a RESET; this side keeps no state of the stream.
func (m *Mux) refuse(id uint32, err error) error {
	m.send(Reset, 0, id, resetText(err.Error()))
	return nil
}

// resetText returns s as the payload of RESET.
func resetText(s string) []byte {
	return []byte(s[:min(len(s), maxText)])
}
