package channel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"nearmetal/internal/text"
)

// Stream is one end of a stream. Reads and writes wait for the other side's credit, so that neither side stores more
// than 256 KiB per lane for the other.
type Stream struct {
	m      *Mux
	id     uint32
	kind   string
	header Fields

	mu       sync.Mutex
	cond     *sync.Cond
	in       [2][]byte // received and unread bytes, of the byte lanes
	messages [][]byte
	allow    [lanes]int // bytes that the other side may still send
	credit   [lanes]int // bytes that this side may still send
	inEOF    [lanes]bool
	outEOF   [lanes]bool
	gotEnd   bool // CLOSE or RESET was received
	sentEnd  bool
	err      error // why no more bytes will arrive; io.EOF after a regular end
	gone     chan struct{}
}

func newStream(m *Mux, kind string, header Fields) *Stream {
	s := &Stream{m: m, kind: kind, header: header, allow: initialCredit, credit: initialCredit, gone: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	return s
}

// Kind returns the kind with which the stream was opened.
func (s *Stream) Kind() string { return s.kind }

// Header returns the header with which the stream was opened.
func (s *Stream) Header() Fields { return s.header }

// Mux returns the Mux that carries the stream.
func (s *Stream) Mux() *Mux { return s.m }

// Gone is closed when the other side has closed or reset the stream, or the carrier has ended: no more bytes will be
// received or accepted.
func (s *Stream) Gone() <-chan struct{} { return s.gone }

// Lane returns a reader and writer of lane LaneData or LaneError.
func (s *Stream) Lane(lane int) *Lane { return &Lane{s, lane} }

// Lane is a byte lane of a stream. Close ends this side's direction only.
type Lane struct {
	s    *Stream
	lane int
}

// Read waits for bytes; it returns io.EOF after the other side's end of the lane.
func (l *Lane) Read(p []byte) (int, error) { return l.s.read(l.lane, p) }

// Write waits for credit; it fails if the other side has closed or reset the stream.
func (l *Lane) Write(p []byte) (int, error) { return l.s.write(l.lane, p) }

// Close tells the other side that no more bytes will be written to the lane.
func (l *Lane) Close() error { return l.s.CloseWrite(l.lane) }

// Read reads LaneData.
func (s *Stream) Read(p []byte) (int, error) { return s.read(LaneData, p) }

// Write writes LaneData.
func (s *Stream) Write(p []byte) (int, error) { return s.write(LaneData, p) }

func (s *Stream) read(lane int, p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.in[lane]) == 0 {
		if s.inEOF[lane] {
			return 0, io.EOF
		}
		if s.err != nil {
			return 0, s.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.cond.Wait()
	}
	n := copy(p, s.in[lane])
	if s.in[lane] = s.in[lane][n:]; len(s.in[lane]) == 0 {
		s.in[lane] = nil
	}
	s.grant(lane, len(s.in[lane]))
	return n, nil
}

// grant sends the other side its missing credit, once that justifies a frame. held is the number of unread bytes.
func (s *Stream) grant(lane, held int) {
	n := maxCredit[lane] - s.allow[lane] - held
	if n < maxCredit[lane]/4 || s.inEOF[lane] || s.gotEnd || s.sentEnd {
		return
	}
	s.allow[lane] += n
	s.m.send(Credit, uint8(lane), s.id, binary.LittleEndian.AppendUint32(nil, uint32(n)))
}

func (s *Stream) write(lane int, p []byte) (int, error) {
	done := 0
	for done < len(p) {
		n, err := s.take(lane, 1, min(len(p)-done, MaxPayload))
		if err != nil {
			return done, err
		}
		if err := s.m.sendWait(queueLocal, Data, uint8(lane), s.id, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// take waits for at least `least` bytes of credit and uses up to most of them.
func (s *Stream) take(lane, least, most int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.outEOF[lane] || s.sentEnd:
			return 0, io.ErrClosedPipe
		case s.gotEnd:
			if s.err != nil && s.err != io.EOF {
				return 0, s.err
			}
			return 0, io.ErrClosedPipe
		case s.credit[lane] >= least:
			n := min(s.credit[lane], most)
			s.credit[lane] -= n
			return n, nil
		}
		s.cond.Wait()
	}
}

// Send sends a message. It waits for credit.
func (s *Stream) Send(f Fields) error {
	b, err := f.Encode()
	if err != nil {
		return err
	}
	if len(b) == 0 || len(b) > MaxMessage {
		return fmt.Errorf("a message of %d bytes; the most is %d", len(b), MaxMessage)
	}
	if _, err := s.take(LaneMessage, len(b), len(b)); err != nil {
		return err
	}
	return s.m.sendWait(queueRelay, Data, LaneMessage, s.id, b)
}

// Receive waits for a message. It returns io.EOF after the other side has closed the stream, or its lane of messages.
func (s *Stream) Receive(ctx context.Context) (Fields, error) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		s.cond.Broadcast()
		s.mu.Unlock()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.messages) == 0 {
		if s.inEOF[LaneMessage] {
			return nil, io.EOF
		}
		if s.err != nil {
			return nil, s.err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.cond.Wait()
	}
	b := s.messages[0]
	if s.messages = s.messages[1:]; len(s.messages) == 0 {
		s.messages = nil
	}
	held := 0
	for _, x := range s.messages {
		held += len(x)
	}
	s.grant(LaneMessage, held)
	return DecodeFields(b)
}

// CloseWrite tells the other side that no more bytes will be written to the lane.
func (s *Stream) CloseWrite(lane int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.outEOF[lane] || s.sentEnd || s.gotEnd {
		return nil
	}
	s.outEOF[lane] = true
	s.cond.Broadcast()
	return s.m.send(EOF, uint8(lane), s.id, nil)
}

// Close ends the stream regularly: no more bytes are sent, and received ones are dropped.
func (s *Stream) Close() error {
	s.end(Close, nil)
	return nil
}

// Reset ends the stream with an error for the other side.
func (s *Stream) Reset(text string) { s.end(Reset, resetText(text)) }

func (s *Stream) end(t FrameType, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in, s.messages = [2][]byte{}, nil
	if s.err == nil {
		s.err = ErrClosed
	}
	s.cond.Broadcast()
	if !s.sentEnd {
		s.sentEnd = true
		s.m.send(t, 0, s.id, payload)
	}
	if s.gotEnd {
		s.m.forget(s.id)
	}
}

func (s *Stream) frame(h FrameHeader, p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gotEnd {
		return nil // the carrier ended in the meantime
	}
	lane := int(h.Lane)
	switch h.Type {
	case Data:
		if s.inEOF[lane] {
			return protocolError("DATA after EOF")
		}
		if s.allow[lane] < len(p) {
			return protocolError("%d bytes with a credit of %d", len(p), s.allow[lane])
		}
		s.allow[lane] -= len(p)
		if s.sentEnd {
			return nil
		}
		if lane == LaneMessage {
			s.messages = append(s.messages, append([]byte(nil), p...))
		} else {
			s.in[lane] = append(s.in[lane], p...)
		}
	case Credit:
		n := binary.LittleEndian.Uint32(p)
		if err := addCredit(&s.credit[lane], n, lane); err != nil {
			return err
		}
	case EOF:
		s.inEOF[lane] = true
	case Close, Reset:
		s.gotEnd = true
		if s.err == nil {
			s.err = io.EOF
			if h.Type == Reset {
				s.err = &ResetError{text.CleanLines(string(p))}
			}
		}
		close(s.gone)
		if !s.sentEnd {
			s.sentEnd = true
			s.m.send(Close, 0, s.id, nil)
		}
		s.m.forget(s.id)
	}
	s.cond.Broadcast()
	return nil
}

// addCredit adds n to the credit of lane, or returns an error if the sum exceeds the lane's maximum.
func addCredit(c *int, n uint32, lane int) error {
	if n == 0 || uint64(n)+uint64(*c) > uint64(maxCredit[lane]) {
		return protocolError("a credit of %d bytes on top of %d", n, *c)
	}
	*c += int(n)
	return nil
}

func (s *Stream) lost(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil || s.err == io.EOF && !s.gotEnd {
		s.err = err
	}
	if !s.gotEnd {
		s.gotEnd = true
		close(s.gone)
	}
	s.sentEnd = true
	s.cond.Broadcast()
}

// IsReset reports whether err is the other side's refusal or error.
func IsReset(err error) bool {
	var r *ResetError
	return errors.As(err, &r)
}
