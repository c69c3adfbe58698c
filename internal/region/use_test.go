package region

import (
	"bytes"
	"encoding/binary"
	"math/rand"
	"testing"
)

// layout returns a layout area of four slots in a region of 1 MiB, as the provider would write it.
func layout() (h Header, b []byte, area uint64) {
	h = Header{LayoutOffset: HeaderBytes, LayoutBytes: 1<<20 - HeaderBytes}
	b = make([]byte, 1<<20)
	const pages = 40
	binary.LittleEndian.PutUint64(b[HeaderBytes:], LayoutVersion<<56|2<<48|pages)
	return h, b, pages * layoutPage
}

func TestReadUse(t *testing.T) {
	h, b, area := layout()
	le := binary.LittleEndian
	read := func() Use {
		t.Helper()
		u, err := h.ReadUse(bytes.NewReader(b), 0)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	if u := read(); u.Ranks != 0 || u.Lines == nil || *u.Lines != 0 {
		t.Errorf("nobody is there: %+v", u)
	}
	base := uint64(HeaderBytes)
	slot := func(i uint64, epoch, state uint64) {
		le.PutUint64(b[base+layoutPage+i*layoutSlotBytes:], epoch<<2|state)
	}
	slot(0, 7, slotLive)
	slot(1, 9, slotLive)
	slot(2, 1, 1) // being set up
	conns := base + layoutPage + 4*layoutSlotBytes
	areas := conns + 4*4*layoutConnBytes + 4*(LayoutMRCount+1)*LayoutLineBytes
	ring := func(to, from, epoch, offset, lines uint64) {
		c := conns + (to*4+from)*layoutConnBytes
		le.PutUint32(b[c:], uint32(offset/LayoutLineBytes)+1)
		le.PutUint32(b[c+12:], uint32(epoch))
		if at := areas + from*area + offset; at+8 <= uint64(len(b)) {
			le.PutUint64(b[at:], lines)
		}
	}
	ring(0, 1, 9, 8192, 100)
	ring(1, 0, 7, 4096, 11)
	ring(1, 1, 8, 4096, 5000) // of an earlier rank
	if u := read(); u.Ranks != 2 || u.Lines == nil || *u.Lines != 111 {
		t.Errorf("%+v, lines %v", u, u.Lines)
	}
	ring(0, 1, 9, 1<<37, 0) // beyond its area
	if u := read(); *u.Lines != 11 {
		t.Errorf("a ring outside: %v", *u.Lines)
	}
	for name, word := range map[string]uint64{
		"version": (LayoutVersion+1)<<56 | 2<<48 | 40, "slots": LayoutVersion<<56 | 11<<48 | 40,
		"area": LayoutVersion<<56 | 2<<48 | (1<<48 - 1), "table": LayoutVersion<<56 | 10<<48 | 1,
	} {
		le.PutUint64(b[base:], word)
		h := h
		if name == "table" {
			h.LayoutBytes = 8192
		}
		if _, err := h.ReadUse(bytes.NewReader(b), 0); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Reading ends regardless of what ranks write there.
func TestReadUseOfAnything(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for i := 0; i < 200; i++ {
		h, b, _ := layout()
		word := binary.LittleEndian.Uint64(b[HeaderBytes:])
		r.Read(b[HeaderBytes : HeaderBytes+64<<10])
		binary.LittleEndian.PutUint64(b[HeaderBytes:], word^uint64(r.Intn(1<<20)))
		h.ReadUse(bytes.NewReader(b), 0)
	}
}
