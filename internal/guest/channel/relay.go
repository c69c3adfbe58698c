package channel

import (
	"encoding/binary"
	"sync"
)

// relay connects a stream of one Mux to a stream of another. Frames are passed on unchanged except for the stream's
// number. The credit is that of the two far ends, and the relay only enforces it.
type relay struct {
	mu   sync.Mutex
	half [2]relayHalf // the opener's side, the target's side
}

// relayHalf is the endpoint at one of the two Muxes.
type relayHalf struct {
	r       *relay
	side    int
	m       *Mux
	id      uint32
	allow   [lanes]int // bytes that the far end behind this Mux may still send
	eof     [lanes]bool
	gotEnd  bool
	sentEnd bool
	release func() // called when the stream is over; may be nil
}

// relayTo opens a stream on `to` for stream id of `from` and connects them.
func relayTo(from *Mux, id uint32, to *Mux, kind string, header Fields, release func()) error {
	b, err := encodeOpen(kind, header)
	if err != nil {
		return err
	}
	r := &relay{}
	r.half[0] = relayHalf{r: r, side: 0, m: from, id: id, allow: initialCredit, release: release}
	r.half[1] = relayHalf{r: r, side: 1, m: to, allow: initialCredit}
	from.mu.Lock()
	if err := from.ended(); err != nil {
		from.mu.Unlock()
		return err
	}
	from.streams[id] = &r.half[0]
	from.mu.Unlock()
	if err := to.open(b, &r.half[1], func(id uint32) { r.half[1].id = id }); err != nil {
		from.forget(id)
		return err
	}
	return nil
}

func (h *relayHalf) frame(f FrameHeader, p []byte) error {
	other := &h.r.half[1-h.side]
	h.r.mu.Lock()
	if h.gotEnd {
		h.r.mu.Unlock()
		return nil
	}
	pass := !other.sentEnd
	lane := int(f.Lane)
	over := false
	switch f.Type {
	case Data:
		if h.eof[lane] {
			h.r.mu.Unlock()
			return protocolError("DATA after EOF")
		}
		if h.allow[lane] < len(p) {
			defer h.r.mu.Unlock()
			return protocolError("%d bytes with a credit of %d", len(p), h.allow[lane])
		}
		h.allow[lane] -= len(p)
	case Credit:
		if pass {
			if err := addCredit(&other.allow[lane], binary.LittleEndian.Uint32(p), lane); err != nil {
				h.r.mu.Unlock()
				return err
			}
		}
	case EOF:
		pass = pass && !h.eof[lane]
		h.eof[lane] = true
	case Close, Reset:
		h.gotEnd = true
		other.sentEnd = true
		over = h.sentEnd
	}
	h.r.mu.Unlock()
	if over {
		h.finish()
	}
	if pass {
		// If the carrier has ended, it informs this side by its own call of lost.
		other.m.sendWait(queueRelay, f.Type, f.Lane, other.id, p)
		if f.Type == Close || f.Type == Reset {
			h.r.mu.Lock()
			over = other.gotEnd
			h.r.mu.Unlock()
			if over {
				other.finish()
			}
		}
	}
	return nil
}

// finish removes a half whose both directions have ended.
func (h *relayHalf) finish() {
	h.m.forget(h.id)
	h.r.mu.Lock()
	f := h.release
	h.release = nil
	h.r.mu.Unlock()
	if f != nil {
		f()
	}
}

// lost resets the other half with the reason.
func (h *relayHalf) lost(err error) {
	other := &h.r.half[1-h.side]
	h.r.mu.Lock()
	h.gotEnd, h.sentEnd = true, true
	tell := !other.sentEnd
	other.sentEnd = true
	over := other.gotEnd
	h.r.mu.Unlock()
	if tell {
		other.m.send(Reset, 0, other.id, resetText(err.Error()))
	}
	if over {
		other.finish()
	}
	h.finish()
}
