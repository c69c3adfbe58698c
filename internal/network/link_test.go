package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// reset ends a link's connection as a reset of the network does: no more bytes pass in either direction.
func reset(l *Link) bool {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c == nil {
		return false
	}
	raw := c.(*tls.Conn).NetConn().(*net.TCPConn)
	raw.SetLinger(0)
	raw.Close()
	return true
}

// pair makes a link between two hosts of a job, and returns both its ends.
func pair(t *testing.T, state func(self int, err error)) (list []*Overlay, a, b *Link) {
	t.Helper()
	ends := make(chan *Link)
	hold := make(chan struct{})
	list = overlay(t, 2, 1, func(_, _ int, _ string, l *Link) { ends <- l; <-hold })
	if state != nil {
		for i, m := range list {
			m.o.State = func(_ int, _ string, err error) { state(i, err) }
		}
	}
	t.Cleanup(func() { close(hold) })
	a, err := list[0].Dial(limited(t, time.Minute), 1, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return list, a, <-ends
}

// noise returns n bytes without early repetition.
func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

// Bytes arrive completely and in order in both directions although either side resets the connection again and again,
// at any position.
func TestLinkSurvivesResets(t *testing.T) {
	var mu sync.Mutex
	lost, found := 0, 0
	_, a, b := pair(t, func(_ int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			lost++
		} else {
			found++
		}
	})
	const size = 6 << 20
	ab, ba := noise(1, size), noise(2, size)
	var wg sync.WaitGroup
	send := func(l *Link, data []byte) {
		defer wg.Done()
		r := rand.New(rand.NewSource(int64(len(data))))
		for len(data) > 0 {
			n := min(1+r.Intn(100000), len(data))
			if _, err := l.Write(data[:n]); err != nil {
				t.Error(err)
				return
			}
			data = data[n:]
		}
	}
	receive := func(l *Link, want []byte, every int) {
		defer wg.Done()
		got := make([]byte, size)
		for n, due := 0, every; n < size; {
			k, err := l.Read(got[n:min(n+70000, size)])
			if err != nil {
				t.Errorf("after %d bytes: %v", n, err)
				return
			}
			if n += k; n > due {
				due += every
				reset(l)
			}
		}
		if !bytes.Equal(got, want) {
			t.Error("what arrived is not what was sent")
		}
	}
	wg.Add(4)
	go send(a, ab)
	go send(b, ba)
	go receive(b, ab, 900001)
	go receive(a, ba, 1400003)
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	if lost == 0 || found == 0 {
		t.Errorf("lost %d, found %d", lost, found)
	}
}

// Bytes written before Close arrive, followed by the end; writing to a link that the other side has closed fails.
func TestLinkCloses(t *testing.T) {
	list, a, b := pair(t, nil)
	text := noise(3, 200000)
	if _, err := a.Write(text); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	<-a.done
	<-b.done
	for i, m := range list {
		if n := len(m.all()) + len(m.taken); n != 0 {
			t.Errorf("host %d: %d links are left", i, n)
		}
	}
}

// A writer whose other side does not read waits, and is woken by the link's end.
func TestLinkIsBounded(t *testing.T) {
	_, a, b := pair(t, nil)
	ended := make(chan error)
	go func() {
		_, err := a.Write(make([]byte, 4<<20))
		ended <- err
	}()
	for { // until all that may be in flight has arrived
		b.mu.Lock()
		n := b.in.Len()
		b.mu.Unlock()
		if n == linkWindow {
			break
		}
		time.Sleep(time.Millisecond)
	}
	a.mu.Lock()
	if n := a.out.Len(); n > linkWindow {
		t.Errorf("%d bytes are kept", n)
	}
	a.mu.Unlock()
	select {
	case err := <-ended:
		t.Fatal("more was taken than may be on the way: ", err)
	default:
	}
	b.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// A host that is gone is given up, from both sides, because nothing listens on its ports.
func TestLinkGivesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for _, caller := range []bool{true, false} {
		t.Run(fmt.Sprint("caller ", caller), func(t *testing.T) {
			list, a, b := pair(t, nil)
			gone, l := list[1], a
			if !caller {
				gone, l = list[0], b
			}
			// Like the kernel when it ends a killed program: no farewell, and nothing listens any more.
			gone.ln.Close()
			gone.mu.Lock()
			gone.closed = true
			gone.mu.Unlock()
			for _, x := range gone.all() {
				reset(x)
			}
			gone.stop()
			_, err := l.Read(make([]byte, 1))
			if err == nil || !strings.Contains(err.Error(), "the connection was lost") || !strings.Contains(err.Error(), "refused") {
				t.Error(err)
			}
		})
	}
}

// A restarted host does not know its earlier links, and they end.
func TestLinkAfterRestart(t *testing.T) {
	list, a, b := pair(t, nil)
	list[1].forget(b)
	reset(b)
	if _, err := a.Read(make([]byte, 1)); !errors.Is(err, errGone) {
		t.Error(err)
	}
}

// dialRaw proves itself a host of the job and greets with h. It returns the answer and the connection.
func dialRaw(t *testing.T, m *Overlay, host int, h string) (string, net.Conn) {
	t.Helper()
	raw, err := m.call(limited(t, time.Minute), host, m.ports(host))
	if err != nil {
		t.Fatal(err)
	}
	c := tls.Client(raw, m.tls)
	t.Cleanup(func() { raw.Close() })
	fmt.Fprintln(c, h)
	line, _ := readLine(c)
	return line, c
}

// Another host of the job cannot get a link that is not its own. A violation of a link's rules ends that link, and
// nothing is kept of it.
func TestLinkHostile(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	hold := make(chan struct{})
	ends := make(chan *Link, 100)
	list := overlay(t, 3, 1, func(_, _ int, _ string, l *Link) { ends <- l; <-hold })
	defer close(hold)
	hi := func(from int, kind, id string, fresh bool, received uint64) string {
		return hello{from, 0, kind, id, fresh, received}.String()
	}
	if line, _ := dialRaw(t, list[1], 0, hi(1, "test", id, true, 0)); line != "yes 0" {
		t.Fatal(line)
	}
	mine := <-ends
	for name, c := range map[string]struct{ hello, answer string }{
		"another host's":  {hi(2, "test", id, false, 0), answerGone},
		"another kind":    {hi(1, "other", id, false, 0), answerGone},
		"one not there":   {hi(1, "test", strings.Repeat("f", 32), false, 9), answerGone},
		"the host itself": {hi(0, "test", id, true, 0), "no"},
		"no host":         {hi(7, "test", id, true, 0), "no"},
		"a kind too long": {hi(1, strings.Repeat("k", 17), id, true, 0), "no"},
		"no kind":         {hi(1, "", id, true, 0), "no"},
		"no number":       {strings.Replace(hi(1, "test", id, true, 0), " 0 ", " x ", 1), "no"},
		"a sign":          {strings.Replace(hi(1, "test", id, true, 0), " 1 ", " +1 ", 1), "no"},
		"a version":       {strings.Replace(hi(1, "test", id, true, 0), "overlay 2", "overlay 9", 1), "no"},
		"no end":          {strings.Repeat("x", 4000), ""},
	} {
		if line, _ := dialRaw(t, list[1], 0, c.hello); line != c.answer {
			t.Errorf("%s: %q", name, line)
		}
	}
	for want, h := range map[string]hello{
		"host 1 resumed a link that does not exist here": {1, 0, "test", strings.Repeat("f", 32), false, 9},
		"host 1 resumed a link as one of another kind":   {1, 0, "other", id, false, 0},
	} {
		if _, _, err := list[0].linkFor(h); err == nil || err.Error() != "network: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	mine.mu.Lock()
	if mine.err != nil {
		t.Error("another's call ended the link: ", mine.err)
	}
	mine.mu.Unlock()
	u32, u64 := binary.BigEndian.AppendUint32, binary.BigEndian.AppendUint64
	ack := uint32(recordAck)
	for name, record := range map[string][]byte{
		"too long":            u32(nil, maxRecord+1),
		"empty":               u32(nil, 0),
		"read what was not":   u64(u32(nil, ack), 1),
		"read less than none": u64(u32(nil, ack), 1<<63),
		"more than a window":  bytes.Repeat(append(u32(nil, maxRecord), make([]byte, maxRecord)...), linkWindow/maxRecord+1),
	} {
		line, c := dialRaw(t, list[1], 0, hi(1, "test", id[:31]+"e", true, 0))
		if line != "yes 0" {
			t.Fatal(line)
		}
		l := <-ends
		go c.Write(record)
		<-l.done
		if l.err == nil || l.err == io.EOF || l.in.Len() > linkWindow {
			t.Errorf("%s: %v, %d bytes kept", name, l.err, l.in.Len())
		}
		c.Close()
	}
	// At most maxLinks links of one host.
	for i := range 2 * maxLinks {
		line, _ := dialRaw(t, list[2], 0, hi(2, "test", fmt.Sprintf("%032x", i), true, 0))
		if want := i < maxLinks; (line == "yes 0") != want {
			t.Errorf("link %d of a host: %q", i, line)
		}
	}
	if _, _, err := list[0].linkFor(hello{2, 0, "test", id, true, 0}); err == nil || !strings.Contains(err.Error(), "host 2 has as many links as one host may have") {
		t.Error(err)
	}
	// A claim to have received more than was sent also ends the link.
	if line, _ := dialRaw(t, list[1], 0, hi(1, "test", id, false, 1)); line != "yes 0" {
		t.Error(line)
	}
	<-mine.done
}

// A link to a host that is stopped for a while, as in a suspended job, is not given up.
func TestLinkToSuspended(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := watch{start: time.Now().Add(-2 * giveUp), patience: giveUp}
	if w.lost(fmt.Errorf("x %w", errSilent)) {
		t.Error("a host that is silent is given up after the time of one that is not there")
	}
	if !w.lost(errNotIt) {
		t.Error("a host that is not there is not given up")
	}
	// The kernel accepts connections for a stopped program, and nobody answers.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	m := overlay(t, 2, 1, func(int, int, string, *Link) {})[0]
	m.o.LowPort = ln.Addr().(*net.TCPAddr).Port
	m.o.HighPort = m.o.LowPort
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if _, err := m.call(short, 1, m.ports(1)); !errors.Is(err, errSilent) {
		t.Error(err)
	}
	ln.Close()
	if _, err := m.call(ctx, 1, m.ports(1)); !refusedBy(err) {
		t.Error(err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(hello{1, 0, "frames", "0123456789abcdef0123456789abcdef", true, 0}.String())
	f.Add(hello{0, 3, "streams", "0123456789abcdef0123456789abcdef", false, 1 << 40}.String())
	f.Add("nearmetal-overlay 2 1 0 k 0 new 0")
	f.Fuzz(func(t *testing.T, line string) {
		h, err := parseHello(line)
		if err == nil && (h.String() != line || len(h.kind) > 16 || len(h.id) != 32 || h.check(h.from, MaxOverlayHosts) == nil) {
			t.Errorf("%q is taken as %+v", line, h)
		}
	})
}

// FuzzLink feeds a link with data that another host sends over its connection.
func FuzzLink(f *testing.F) {
	u32, u64 := binary.BigEndian.AppendUint32, binary.BigEndian.AppendUint64
	ack, bye := uint32(recordAck), uint32(recordBye)
	f.Add(append(u32(nil, 3), "abc"...), []byte("to send"))
	f.Add(append(u64(u32(nil, ack), 3), u32(nil, bye)...), []byte("abc"))
	f.Add(append(u32(nil, bye), u32(nil, bye)...), []byte{})
	m := &Overlay{links: map[*Link]bool{}, taken: map[session]*Link{}, of: map[int]int{}}
	m.closed = false
	f.Fuzz(func(t *testing.T, b, send []byte) {
		l := newLink(m, 1, "fuzz", "", true)
		l.closing = true // no other connection is made
		l.out.Write(send[:min(len(send), linkWindow)])
		near, far := net.Pipe()
		if err := l.attach(near, 0, 0); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, far)
		far.Write(b)
		far.Close()
		got, _ := io.ReadAll(l)
		if len(got) > len(b) || l.acked > l.next || l.out.Len() > linkWindow {
			t.Errorf("%d bytes of %d, %+v", len(got), len(b), l)
		}
		m.wg.Wait()
	})
}
