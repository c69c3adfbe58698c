package channel

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pair connects two Muxes; b accepts streams as its Options decide.
func pair(t *testing.T, a, b Options) (*Mux, *Mux) {
	t.Helper()
	c1, c2 := net.Pipe()
	a.Initiator = true
	ma, err := New(c1, a)
	if err != nil {
		t.Fatal(err)
	}
	mb, err := New(c2, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ma.Close(); mb.Close() })
	return ma, mb
}

func handle(f func(*Stream)) func(string, Fields) (Route, error) {
	return func(string, Fields) (Route, error) { return Route{Handle: f}, nil }
}

func echo(s *Stream) {
	io.Copy(s, s)
	s.CloseWrite(LaneData)
	<-s.Gone()
}

func TestHello(t *testing.T) {
	a, b := pair(t, Options{Hello: Fields{{"who", "a"}}}, Options{Hello: Fields{{"who", "b"}}})
	for m, want := range map[*Mux]string{a: "b", b: "a"} {
		if f, err := m.Hello(context.Background()); err != nil || f.Get("who") != want || f.Get("protocol") != "1" {
			t.Errorf("%v, %v", f, err)
		}
	}
	if _, err := a.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// counting counts the bytes that are written to a carrier.
type counting struct {
	net.Conn
	writes atomic.Int32
}

func (c *counting) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestQuiet: a quiet Mux writes nothing until it has more to send than HELLO, and then sends HELLO first.
func TestQuiet(t *testing.T) {
	near, far := net.Pipe()
	go io.Copy(io.Discard, far)
	c := &counting{Conn: near}
	m, err := New(c, Options{Initiator: true, Quiet: true})
	if err != nil {
		t.Fatal(err)
	}
	if m.Close(); c.writes.Load() != 0 {
		t.Errorf("%d writes of a Mux that was not used", c.writes.Load())
	}
	a, b := pair(t, Options{Quiet: true}, Options{Accept: handle(echo)})
	s, err := a.Open("echo", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Write([]byte("x"))
	s.CloseWrite(LaneData)
	if got, err := io.ReadAll(s); err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Hello(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestStreamsBothWays(t *testing.T) {
	a, b := pair(t, Options{Accept: handle(echo)}, Options{Accept: handle(echo)})
	data := make([]byte, 3<<20)
	rand.Read(data)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, err := []*Mux{a, b}[i%2].Open("echo", nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			go func() {
				s.Write(data)
				s.CloseWrite(LaneData)
			}()
			if got, err := io.ReadAll(s); err != nil || !bytes.Equal(got, data) {
				t.Errorf("stream %d: %d bytes, %v", i, len(got), err)
			}
		}()
	}
	wg.Wait()
}

func TestLongHeaderAndMessages(t *testing.T) {
	long := strings.Repeat("v", 300_000)
	got := make(chan Fields, 2)
	a, _ := pair(t, Options{}, Options{Accept: handle(func(s *Stream) {
		got <- s.Header()
		for {
			f, err := s.Receive(context.Background())
			if err != nil {
				return
			}
			s.Send(f)
		}
	})})
	s, err := a.Open("long", Fields{{"k", long}, {"k", "two"}})
	if err != nil {
		t.Fatal(err)
	}
	if h := <-got; len(h) != 2 || h.Get("k") != long || h.All("k")[1] != "two" {
		t.Error("another header came")
	}
	for i := range 500 { // many times the lane's credit
		want := fmt.Sprint(i, strings.Repeat("m", 1000))
		if err := s.Send(Fields{{"n", want}}); err != nil {
			t.Fatal(err)
		}
		if f, err := s.Receive(context.Background()); err != nil || f.Get("n") != want {
			t.Fatal(f, err)
		}
	}
	if err := s.Send(Fields{{"n", long}}); err == nil {
		t.Error("a message that is too long was sent")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Receive(ctx); err != context.Canceled {
		t.Error(err)
	}
}

func TestCreditHoldsTheWriter(t *testing.T) {
	taken := make(chan *Stream, 1)
	a, _ := pair(t, Options{}, Options{Accept: handle(func(s *Stream) { taken <- s; <-s.Gone() })})
	s, err := a.Open("sink", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := make(chan int)
	go func() {
		k, _ := s.Write(make([]byte, 10<<20))
		n <- k
	}()
	far := <-taken
	// Reading one byte restores the window's full size, and no more.
	io.ReadFull(far, make([]byte, 1))
	if _, err := a.Ping(context.Background()); err != nil { // other frames still pass
		t.Fatal(err)
	}
	s.Close()
	if k := <-n; k > maxCredit[LaneData]+1 {
		t.Errorf("%d bytes were written that nobody read", k)
	}
}

func TestRefusalAndReset(t *testing.T) {
	a, _ := pair(t, Options{}, Options{Accept: func(kind string, h Fields) (Route, error) {
		if kind == "no" {
			return Route{}, errors.New("not\x1b[31m you")
		}
		return Route{Handle: func(s *Stream) { s.Reset("that was enough") }}, nil
	}})
	for kind, want := range map[string]string{"no": "not?[31m you", "yes": "that was enough"} {
		s, err := a.Open(kind, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); !IsReset(err) || err.Error() != want {
			t.Errorf("%s: %v", kind, err)
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Errorf("%s: a write went through", kind)
		}
	}
}

func TestLimits(t *testing.T) {
	a, b := pair(t, Options{}, Options{MaxStreams: 2, MaxHeaders: 100, Accept: handle(func(s *Stream) { <-s.Gone() })})
	var open []*Stream
	for range 2 {
		s, err := a.Open("x", nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	refused := func(h Fields) {
		t.Helper()
		s, err := a.Open("x", h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); err == nil || err.Error() != "too many streams are open" {
			t.Error(err)
		}
	}
	refused(nil)
	for _, s := range open {
		s.Close()
	}
	// The stream's slot is free once the handler has returned.
	for {
		b.mu.Lock()
		n := b.remote
		b.mu.Unlock()
		if n == 0 {
			break
		}
		runtime.Gosched()
	}
	refused(Fields{{"k", strings.Repeat("v", 200)}})
}

func TestCarrierEnds(t *testing.T) {
	a, b := pair(t, Options{Name: "vm4", Explain: func() string { return "Kernel panic" }}, Options{Accept: handle(func(s *Stream) { <-s.Gone() })})
	s, err := a.Open("x", nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Hello(context.Background())
	b.Close()
	_, err = s.Read(make([]byte, 1))
	var lost *CarrierError
	if !errors.As(err, &lost) || err.Error() != "vm4: has ended\nKernel panic" {
		t.Errorf("%v", err)
	}
	<-a.Done()
	if a.Err() != err {
		t.Error(a.Err())
	}
	if _, err := a.Open("x", nil); err != a.Err() {
		t.Error(err)
	}
	if b.Err() != ErrClosed {
		t.Error(b.Err())
	}
}

// raw returns a Mux whose other side the test simulates.
func raw(t *testing.T, o Options) (*Mux, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	m, err := New(near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close(); m.Close() })
	go io.Copy(io.Discard, far)
	return m, far
}

var hello = AppendFrame(nil, Hello, 0, 0, []byte("protocol=1\x00"))

// breaches are violations that a hostile side sends after HELLO, with a word of the resulting error.
var breaches = map[string]struct {
	frames []byte
	want   string
}{
	"garbage":           {[]byte("GET / HTTP/1.1\r\n\r\n"), "not a frame"},
	"other version":     {[]byte{magic, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, "version 2"},
	"second HELLO":      {hello, "second HELLO"},
	"huge payload":      {[]byte{magic, 1, byte(Data), 0, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, "payload of 4294967295"},
	"unknown type":      {AppendFrame(nil, 99, 0, 1, nil), "unknown type 99"},
	"wrong lane":        {AppendFrame(nil, Data, 3, 1, []byte("x")), "lane 3"},
	"empty DATA":        {AppendFrame(nil, Data, 0, 1, nil), "DATA of 0"},
	"DATA on 0":         {AppendFrame(nil, Data, 0, 0, []byte("x")), "on stream 0"},
	"our number":        {AppendFrame(nil, Open, 0, 3, []byte("x\x00")), "number of this side"},
	"no kind":           {AppendFrame(nil, Open, 0, 2, []byte("nothing")), "without a kind"},
	"bad fields":        {AppendFrame(nil, Open, 0, 2, []byte("x\x00a=b")), "without an end"},
	"interleaved":       {AppendFrame(AppendFrame(nil, Open, 1, 2, []byte("x\x00")), Open, 1, 4, []byte("x\x00")), "within"},
	"open twice":        {AppendFrame(AppendFrame(nil, Open, 0, 2, []byte("x\x00")), Open, 0, 2, []byte("x\x00")), "which is open"},
	"beyond credit":     {beyond(), "with a credit of"},
	"DATA after EOF":    {AppendFrame(AppendFrame(AppendFrame(nil, Open, 0, 2, []byte("x\x00")), EOF, 0, 2, nil), Data, 0, 2, []byte("x")), "after EOF"},
	"credit of nothing": {AppendFrame(AppendFrame(nil, Open, 0, 2, []byte("x\x00")), Credit, 0, 2, make([]byte, 4)), "credit of 0"},
	"credit beyond":     {AppendFrame(AppendFrame(nil, Open, 0, 2, []byte("x\x00")), Credit, 0, 2, []byte{0xff, 0xff, 0xff, 0xff}), "credit of"},
	"endless header":    {endless(), "header of more"},
	"goodbye":           {AppendFrame(nil, Reset, 0, 0, []byte("no root")), "no root"},
}

func beyond() []byte {
	b := AppendFrame(nil, Open, 0, 2, []byte("x\x00"))
	for range 3 {
		b = AppendFrame(b, Data, 0, 2, make([]byte, 40000))
	}
	return b
}

func endless() []byte {
	b := AppendFrame(nil, Open, 1, 2, []byte("x\x00"))
	for range 20 {
		b = AppendFrame(b, Open, 1, 2, bytes.Repeat([]byte("k"), MaxPayload))
	}
	return b
}

func TestBreaches(t *testing.T) {
	for name, c := range breaches {
		t.Run(name, func(t *testing.T) {
			m, far := raw(t, Options{Name: "vm0", Initiator: true, Accept: handle(func(s *Stream) { <-s.Gone() })})
			far.Write(hello)
			far.Write(c.frames)
			<-m.Done()
			if err := m.Err(); !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "vm0: ") {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("before HELLO", func(t *testing.T) {
		m, far := raw(t, Options{})
		far.Write(AppendFrame(nil, Data, 0, 1, []byte("x")))
		<-m.Done()
		if !strings.Contains(m.Err().Error(), "before HELLO") {
			t.Error(m.Err())
		}
	})
}

// TestFlood sends requests and never reads the answers: the Mux ends the carrier instead of storing them.
func TestFlood(t *testing.T) {
	for name, frame := range map[string][]byte{
		"pings": AppendFrame(nil, Ping, 0, 0, make([]byte, 8)),
		"opens": AppendFrame(nil, Open, 0, 2, []byte("x\x00")),
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			m, err := New(near, Options{Name: "vm0", Initiator: true})
			if err != nil {
				t.Fatal(err)
			}
			defer far.Close()
			batch := bytes.Repeat(frame, 1000)
			far.Write(hello)
			for n := 0; ; n++ {
				if _, err := far.Write(batch); err != nil {
					break
				}
				if n > 1000 {
					t.Fatal("taken without end")
				}
			}
			<-m.Done()
			if !strings.Contains(m.Err().Error(), "peer stopped reading") {
				t.Error(m.Err())
			}
		})
	}
}

// board returns a switchboard with two VMs that echo, and a client.
func board(t *testing.T, accept func(*Stream)) (*Switchboard, *Mux, [2]*Mux) {
	t.Helper()
	sb := NewSwitchboard()
	var guests [2]*Mux
	for i, name := range []string{"vm0", "vm1"} {
		h, g := pair(t, Options{Name: name, Accept: sb.FromVM(name)}, Options{Accept: handle(accept)})
		sb.AddVM(name, h)
		guests[i] = g
	}
	c1, c2 := net.Pipe()
	if _, err := sb.Client(c1, nil); err != nil {
		t.Fatal(err)
	}
	client, err := New(c2, Options{Name: "cluster", Initiator: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return sb, client, guests
}

func TestSwitchboard(t *testing.T) {
	sb, client, guests := board(t, echo)
	sb.Handle("control", func(s *Stream) { s.Send(Fields{{"answer", s.Header().Get("q")}}) })
	s, err := client.Open("control", Fields{{"q", "42"}})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := s.Receive(context.Background()); err != nil || f.Get("answer") != "42" {
		t.Error(f, err)
	}
	data := make([]byte, 2<<20)
	rand.Read(data)
	through := func(m *Mux, to string) {
		t.Helper()
		s, err := m.Open("exec", Fields{{KeyVM, to}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		go func() {
			s.Write(data)
			s.CloseWrite(LaneData)
		}()
		if b, err := io.ReadAll(s); err != nil || !bytes.Equal(b, data) {
			t.Errorf("to %s: %d bytes, %v", to, len(b), err)
		}
	}
	through(client, "vm0")
	through(client, "vm1")
	through(guests[0], "vm1")
	through(guests[0], "vm0")
	refused := func(m *Mux, kind, to, want string) {
		t.Helper()
		s, err := m.Open(kind, Fields{{KeyVM, to}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s to %q: %v", kind, to, err)
		}
	}
	refused(client, "exec", "vm9", `no VM "vm9"`)
	refused(client, "dance", "", "no VM is named")
	refused(guests[0], "push", "vm1", "may not open")
	refused(guests[0], "control", "", "may not open")
	refused(guests[0], "exec", "", "no VM is named")
	sb.EndVM("vm1", "vm1 ended: its kernel panicked")
	refused(client, "exec", "vm1", "vm1 ended: its kernel panicked")
}

func TestSwitchboardPolicy(t *testing.T) {
	got := make(chan Fields, 1)
	sb, client, guests := board(t, func(s *Stream) { got <- s.Header() })
	sb.Policy = func(from, to, kind string, h Fields) (Fields, error) {
		if to == "vm1" && from != "" {
			return nil, errors.New("vm1 is closed")
		}
		h = h.Without("uid")
		h.Add("uid", "1000")
		return h, nil
	}
	if _, err := client.Open("exec", Fields{{KeyVM, "vm0"}, {"uid", "0"}, {"arg", "a"}}); err != nil {
		t.Fatal(err)
	}
	if h := <-got; fmt.Sprint(h) != "[{arg a} {uid 1000}]" {
		t.Error(h)
	}
	s, err := guests[0].Open("exec", Fields{{KeyVM, "vm1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(make([]byte, 1)); err == nil || err.Error() != "vm1 is closed" {
		t.Error(err)
	}
}

func TestSwitchboardLosesVM(t *testing.T) {
	started := make(chan *Stream, 1)
	_, client, guests := board(t, func(s *Stream) { started <- s; <-s.Gone() })
	s, err := client.Open("exec", Fields{{KeyVM, "vm1"}})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	guests[1].Close()
	if _, err := s.Read(make([]byte, 1)); err == nil || err.Error() != "vm1: has ended" {
		t.Error(err)
	}
	// The end of the client's stream is passed to the VM.
	if _, err = client.Open("exec", Fields{{KeyVM, "vm0"}}); err != nil {
		t.Fatal(err)
	}
	far := <-started
	client.Close()
	<-far.Gone()
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("the VM does not learn that the client has gone")
	}
}

// TestSwitchboardForgets opens and ends many streams: no state of them remains.
func TestSwitchboardForgets(t *testing.T) {
	sb, client, guests := board(t, func(s *Stream) { s.Write([]byte("x")) })
	for _, m := range []*Mux{client, guests[0]} {
		for range 300 {
			s, err := m.Open("exec", Fields{{KeyVM, "vm1"}})
			if err != nil {
				t.Fatal(err)
			}
			io.ReadAll(s)
			s.Close()
		}
	}
	for deadline := time.Now().Add(time.Minute); ; {
		n := 0
		for _, m := range []*Mux{client, guests[0], guests[1], sb.vms["vm0"], sb.vms["vm1"]} {
			m.mu.Lock()
			n += len(m.streams) + m.remote + m.headers
			m.mu.Unlock()
		}
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are left", n)
		}
		runtime.Gosched()
	}
}

// TestRelayedBreaches sends violations that are only possible in a relayed stream.
func TestRelayedBreaches(t *testing.T) {
	open := AppendFrame(nil, Open, 0, 2, []byte("exec\x00vm=vm1\x00"))
	for want, frames := range map[string][]byte{
		"with a credit of": AppendFrame(AppendFrame(AppendFrame(nil, Data, 0, 2, make([]byte, 60000)),
			Data, 0, 2, make([]byte, 60000)), Data, 0, 2, make([]byte, 60000)),
		"after EOF":   AppendFrame(AppendFrame(nil, EOF, 0, 2, nil), Data, 0, 2, []byte("x")),
		"a credit of": AppendFrame(nil, Credit, 0, 2, []byte{0, 0, 0, 1}),
	} {
		sb := NewSwitchboard()
		h, g := pair(t, Options{Name: "vm1"}, Options{Accept: handle(func(s *Stream) { <-s.Gone() })})
		sb.AddVM("vm1", h)
		m, far := raw(t, Options{Name: "vm0", Initiator: true, Accept: sb.FromVM("vm0")})
		far.Write(hello)
		far.Write(open)
		go far.Write(frames)
		select {
		case <-m.Done():
			if !strings.Contains(m.Err().Error(), want) {
				t.Errorf("%s: %v", want, m.Err())
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: was taken", want)
		}
		if _, err := g.Ping(context.Background()); err != nil {
			t.Errorf("%s: the other VM: %v", want, err)
		}
	}
}

// TestStalledVM relays to a VM that grants credit and reads nothing: its carrier is ended.
func TestStalledVM(t *testing.T) {
	sb := NewSwitchboard()
	near, far := net.Pipe() // unbuffered: unread bytes stay in the Mux
	vm, err := New(near, Options{Name: "vm0", Initiator: true, StallTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	sb.AddVM("vm0", vm)
	c1, c2 := net.Pipe()
	if _, err := sb.Client(c1, nil); err != nil {
		t.Fatal(err)
	}
	client, err := New(c2, Options{Name: "cluster", Initiator: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var last *Stream
	for range 40 {
		s, err := client.Open("exec", Fields{{KeyVM, "vm0"}})
		if err != nil {
			t.Fatal(err)
		}
		go s.Write(make([]byte, 64<<10))
		last = s
	}
	if _, err := last.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "read nothing for") {
		t.Error(err)
	}
	if _, err := client.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeHeader(f *testing.F) {
	for _, c := range breaches {
		f.Add(c.frames)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHeader(b)
		if err != nil {
			return
		}
		if h.Length > MaxPayload || h.Lane >= lanes {
			t.Fatalf("%+v", h)
		}
		again := AppendFrame(nil, h.Type, h.Lane, h.Stream, make([]byte, h.Length))
		if !bytes.Equal(again[:HeaderSize], b[:HeaderSize]) {
			t.Fatalf("%x became %x", b[:HeaderSize], again[:HeaderSize])
		}
	})
}

func FuzzDecodeFields(f *testing.F) {
	f.Add([]byte("a=b\x00c==\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := DecodeFields(b)
		if err != nil {
			return
		}
		if again, err := x.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q: %v", b, again, err)
		}
	})
}

// FuzzMux connects a switchboard with a VM that sends arbitrary bytes. The other VM and the client must not be
// affected.
func FuzzMux(f *testing.F) {
	for _, c := range breaches {
		f.Add(append(append([]byte(nil), hello...), c.frames...))
	}
	relayed := append([]byte(nil), hello...)
	relayed = AppendFrame(relayed, Open, 0, 2, []byte("exec\x00vm=vm1\x00"))
	relayed = AppendFrame(relayed, Data, 0, 2, []byte("to vm1"))
	relayed = AppendFrame(relayed, Credit, 0, 2, []byte{1, 0, 0, 0})
	relayed = AppendFrame(relayed, Reset, 0, 2, []byte("enough"))
	f.Add(append(relayed, AppendFrame(nil, Data, 1, 1, []byte("stderr"))...))
	f.Fuzz(func(t *testing.T, b []byte) {
		sb := NewSwitchboard()
		h, g := pair(t, Options{Name: "vm1", Accept: sb.FromVM("vm1")}, Options{Accept: handle(echo)})
		sb.AddVM("vm1", h)
		near, far := net.Pipe()
		m, err := New(near, Options{Name: "vm0", Initiator: true, Accept: sb.FromVM("vm0"), MaxStreams: 8})
		if err != nil {
			t.Fatal(err)
		}
		sb.AddVM("vm0", m)
		go io.Copy(io.Discard, far)
		s, err := m.Open("exec", nil)
		if err != nil {
			t.Fatal(err)
		}
		far.Write(b)
		far.Close()
		<-m.Done()
		s.Read(make([]byte, 1))
		s.Receive(context.Background())
		s.Close()
		if _, err := h.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
}
