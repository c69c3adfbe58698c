package network

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// overlay returns the hosts of a job, all on this machine, with one secret.
func overlay(t *testing.T, hosts int, secret byte, serve func(self, host int, kind string, c *Link)) []*Overlay {
	t.Helper()
	o := OverlayOptions{Secret: make([]byte, 32), LowPort: 61000, HighPort: 65535}
	o.Secret[0] = secret
	for i := 0; i < hosts; i++ {
		o.Hosts = append(o.Hosts, OverlayHost{fmt.Sprint("n", i), "127.0.0.1"})
	}
	var list []*Overlay
	for i := 0; i < hosts; i++ {
		own := o
		own.Self = i
		own.Serve = func(host int, kind string, c *Link) { serve(i, host, kind, c) }
		m, err := NewOverlay(own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		list = append(list, m)
	}
	return list
}

func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Each host finds every other one, although all have the same address.
func TestOverlay(t *testing.T) {
	list := overlay(t, 3, 1, func(self, host int, kind string, c *Link) { fmt.Fprintf(c, "%d %d %s", self, host, kind) })
	for from := range list {
		for to := range list {
			if from == to {
				continue
			}
			c, err := list[from].Dial(limited(t, 10*time.Second), to, "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := io.ReadAll(c)
			if want := fmt.Sprintf("%d %d test", to, from); string(got) != want {
				t.Errorf("%q, want %q", got, want)
			}
			c.Close()
		}
	}
}

// The first byte makes a link for later, which ends without one if nothing is written.
func TestDialLater(t *testing.T) {
	list := overlay(t, 2, 5, func(_, _ int, kind string, c *Link) {
		if kind == "later" {
			io.Copy(c, c)
		}
	})
	ctx, cancel := context.WithCancel(limited(t, 10*time.Second))
	defer cancel()
	links := func() int { return len(list[0].all()) }
	l := list[0].DialLater(ctx, 1, "later")
	time.AfterFunc(10*time.Millisecond, func() { // the reader waits in the meantime
		if n := links(); n != 0 {
			t.Errorf("%d links before the first byte", n)
		}
		l.Write([]byte("x"))
	})
	b := make([]byte, 1)
	if _, err := io.ReadFull(l, b); err != nil || b[0] != 'x' || links() != 1 {
		t.Errorf("%q, %v, %d links", b, err, links())
	}
	l.Close()
	if _, err := io.ReadAll(l); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}

	unused := list[0].DialLater(ctx, 1, "later")
	unused.Close()
	_, err1 := unused.Read(b)
	_, err2 := unused.Write(b)
	if err1 == nil || err2 == nil {
		t.Errorf("a closed link reads and writes: %v, %v", err1, err2)
	}

	list[1].Close() // no such host, so making the link ends with ctx
	never := list[0].DialLater(ctx, 1, "later")
	ended := make(chan error)
	go func() { _, err := never.Write(b); ended <- err }()
	cancel()
	if err := <-ended; err == nil {
		t.Error("a link to a host that has gone")
	}
	if _, err := never.Read(b); err == nil {
		t.Error("a link to a host that has gone is read")
	}
}

// Hosts whose clocks are decades apart still connect, because the proof of the secret has no date.
func TestOverlayClocks(t *testing.T) {
	list := overlay(t, 2, 3, func(self, host int, kind string, c *Link) { fmt.Fprint(c, "here") })
	for i, year := range []int{1971, 2199} {
		list[i].tls.Time = func() time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	}
	for from := range list {
		c, err := list[from].Dial(limited(t, 10*time.Second), 1-from, "test", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := io.ReadAll(c); string(got) != "here" {
			t.Errorf("from host %d: %q", from, got)
		}
		c.Close()
	}
}

// A caller without the secret is rejected and delays nobody. A port occupied by another program delays nobody either.
func TestOverlayStrangers(t *testing.T) {
	served := make(chan string, 16)
	list := overlay(t, 2, 1, func(_, _ int, kind string, _ *Link) { served <- kind })
	stranger := overlay(t, 2, 2, func(int, int, string, *Link) {})[0]
	addr := list[1].ln.Addr().(*net.TCPAddr)
	stranger.o.LowPort, stranger.o.HighPort = addr.Port, addr.Port
	if l, err := stranger.Dial(limited(t, time.Second), 1, "stranger", nil); err == nil {
		l.Close()
		t.Error("a host with another secret got in")
	}
	for _, text := range []string{"", "\x16\x03\x01\xff\xff", "GET / HTTP/1.0\r\n\r\n"} {
		c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", addr.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, text)
	}
	c, err := list[0].Dial(limited(t, 10*time.Second), 1, "friend", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if kind := <-served; kind != "friend" {
		t.Errorf("%q was served", kind)
	}
}

// Another program, or another job's host, that listens on a host's first port and speaks first does not keep the others
// from that host.
func TestOverlayPortTaken(t *testing.T) {
	o := OverlayOptions{Secret: make([]byte, 32), LowPort: 61000, HighPort: 65535}
	o.Secret[0] = 3
	first := (&Overlay{o: o}).ports(1)[0]
	ln, err := net.Listen("tcp", fmt.Sprint(":", first))
	if err != nil {
		t.Skip(err) // the port is occupied already
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "220 a server that greets who calls\r\n")
			go func() { io.Copy(io.Discard, io.LimitReader(c, 40)); c.Close() }()
		}
	}()
	list := overlay(t, 2, 3, func(int, int, string, *Link) {})
	l, err := list[0].Dial(limited(t, 10*time.Second), 1, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestOverlayOptions(t *testing.T) {
	hosts := []OverlayHost{{"a", "127.0.0.1"}}
	for _, o := range []OverlayOptions{
		{Secret: make([]byte, 31), Hosts: hosts, LowPort: 1, HighPort: 2},
		{Secret: make([]byte, 32), Hosts: hosts, Self: 1, LowPort: 1, HighPort: 2},
		{Secret: make([]byte, 32), Hosts: hosts, LowPort: 2, HighPort: 1},
		{Secret: make([]byte, 32), Hosts: hosts, LowPort: 0, HighPort: 65536},
		{Secret: make([]byte, 32), Hosts: make([]OverlayHost, MaxOverlayHosts+1), LowPort: 1, HighPort: 2},
	} {
		if m, err := NewOverlay(o); err == nil {
			m.Close()
			t.Errorf("%+v is taken", o)
		}
	}
}

// Two switches connected as hosts: a frame to a VM of the other host is sent there, a broadcast to all VMs, and a frame
// that claims to be from another host's VM is dropped.
func TestSwitchHosts(t *testing.T) {
	all, err := Addresses([16]byte{9}, netip.MustParsePrefix("10.1.0.0/24"), []string{"a0", "a1", "b0", "b1"})
	if err != nil {
		t.Fatal(err)
	}
	join := func(own, other []Address) (vms []net.Conn, host net.Conn) {
		s, ends, err := NewSwitch(own, other)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		for i, e := range ends {
			c, err := net.FileConn(e)
			e.Close()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if i < len(own) {
				vms = append(vms, c)
			} else {
				host = c
			}
		}
		return vms, host
	}
	as, toB := join(all[:2], all[2:])
	bs, toA := join(all[2:], all[:2])
	go Carry(toB, toA)
	frame := func(from, to []byte, mark byte) []byte {
		f := append(append(append([]byte{0, 0, 0, 15}, to...), from...), 8, 0, mark)
		return f
	}
	next := func(c net.Conn) byte {
		t.Helper()
		b := make([]byte, 19)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
		return b[18]
	}
	everyone := []byte{255, 255, 255, 255, 255, 255}
	as[0].Write(frame(all[3].MAC, all[2].MAC, 1)) // not its own MAC
	as[0].Write(frame(all[0].MAC, all[3].MAC, 2))
	as[0].Write(frame(all[0].MAC, everyone, 3))
	for _, want := range []byte{2, 3} {
		if got := next(bs[1]); got != want {
			t.Errorf("b1 got frame %d, want %d", got, want)
		}
	}
	if got := next(bs[0]); got != 3 {
		t.Errorf("b0 got frame %d", got)
	}
	if got := next(as[1]); got != 3 {
		t.Errorf("a1 got frame %d", got)
	}
	bs[0].Write(frame(all[2].MAC, all[0].MAC, 4))
	if got := next(as[0]); got != 4 {
		t.Errorf("a0 got frame %d: its own broadcast came back", got)
	}
}

// flood keeps connections to an overlay open from several addresses that send text, or nothing. When one is closed it
// makes another.
func flood(t *testing.T, port int, text string, sources ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range 320 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(sources[i%len(sources)])}}
		ready := make(chan bool, 1)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp", fmt.Sprint("127.0.0.1:", port))
				select {
				case ready <- true:
				default:
				}
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				io.WriteString(c, text)
				io.Copy(io.Discard, c) // until the overlay closes it
				stop()
				c.Close()
				select { // as often as a hostile program can, within reason
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}()
		<-ready
	}
}

// Hundreds of connections that send nothing, made again as soon as they are closed, do not keep a host of the job from
// joining: neither from other addresses, nor from their own.
func TestOverlayFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	for name, c := range map[string]struct {
		text    string
		sources []string
	}{
		"idle, from two other hosts":  {"", []string{"127.0.0.2", "127.0.0.3"}},
		"idle, from the host's own":   {"", []string{"127.0.0.1"}},
		"wrong proofs, from its own":  {strings.Repeat("x", 32), []string{"127.0.0.1"}},
		"TLS, from its own and other": {"\x16\x03\x01\x02\x00", []string{"127.0.0.1", "127.0.0.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			served := make(chan string, 16)
			list := overlay(t, 2, 1, func(_, _ int, kind string, _ *Link) { served <- kind })
			flood(t, list[1].ln.Addr().(*net.TCPAddr).Port, c.text, c.sources...)
			for range 3 {
				l, err := list[0].Dial(limited(t, time.Minute), 1, "friend", nil)
				if err != nil {
					t.Fatal(err)
				}
				l.Close()
				<-served
			}
		})
	}
}

// A caller has a short time to prove that it knows the secret, however it uses that time, and then some time for its
// greeting. A wrong proof gets no answer, and no TLS handshake.
func TestOverlayCallerBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the bounds of a caller")
	}
	m := overlay(t, 2, 1, func(int, int, string, *Link) { t.Error("a caller without a greeting was served") })[1]
	greeting := &written{}
	tls.Client(greeting, m.tls).Handshake()
	trickle := func(c net.Conn, text []byte) { // so slowly that a proof would outlast the test
		for i := range text {
			if _, err := c.Write(text[i : i+1]); err != nil {
				return
			}
			time.Sleep(2 * time.Second)
		}
	}
	prove := func(c net.Conn, challenge []byte) { c.Write(m.proof(challenge, m.o.Self)) }
	for name, does := range map[string]func(c net.Conn, challenge []byte){
		"silent":                        func(net.Conn, []byte) {},
		"slow":                          func(c net.Conn, challenge []byte) { trickle(c, m.proof(challenge, m.o.Self)) },
		"a wrong proof, then TLS":       func(c net.Conn, _ []byte) { c.Write(append(make([]byte, 32), greeting.Bytes()...)) },
		"a proof for another host":      func(c net.Conn, challenge []byte) { c.Write(append(m.proof(challenge, 0), greeting.Bytes()...)) },
		"a proof, then silent":          prove,
		"a proof, then a slow greeting": func(c net.Conn, challenge []byte) { prove(c, challenge); trickle(c, greeting.Bytes()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", m.ln.Addr().(*net.TCPAddr).Port))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			c.SetReadDeadline(time.Now().Add(time.Minute)) // ends a hanging test
			challenge := make([]byte, ticketBytes)
			if _, err := io.ReadFull(c, challenge); err != nil {
				t.Fatal(err)
			}
			go does(c, challenge)
			n, err := io.Copy(io.Discard, c)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it has its place for ever")
			}
			if n != 0 {
				t.Errorf("%d bytes were said to it", n)
			}
		})
	}
}

// written keeps the bytes that are written to it, and has nothing to read.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Write(b []byte) (int, error)    { return w.Buffer.Write(b) }
func (*written) Read([]byte) (int, error)         { return 0, io.EOF }
func (*written) Close() error                     { return nil }
func (*written) SetWriteDeadline(time.Time) error { return nil }

// A source has a share of the places of callers without proof, and not more.
func TestCallers(t *testing.T) {
	var s Callers
	from := func(ip string, n int) (list []*fakeCaller) {
		for range n {
			c := &fakeCaller{addr: net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
			s.Add(c)
			list = append(list, c)
		}
		return list
	}
	open := func(list []*fakeCaller) (n int) {
		for _, c := range list {
			if !c.closed {
				n++
			}
		}
		return n
	}
	friend := from("10.0.0.1", 1)
	if n := open(from("10.0.0.2", 1000)); n != callersOfSource {
		t.Errorf("a source has %d places", n)
	}
	six := append(from("2001:db8:0:1::1", 500), from("2001:db8:0:1:ffff::2", 500)...)
	if n := open(six); n != callersOfSource {
		t.Errorf("a network of IPv6 has %d places", n)
	}
	var many []*fakeCaller
	for i := range 100 {
		many = append(many, from(fmt.Sprintf("10.1.0.%d", i), 20)...)
	}
	if n := open(many) + open(six) + open(friend); n > callersAtMost || s.n != callersAtMost || open(friend) != 1 {
		t.Errorf("%d callers, %d counted; the friend's %d", n, s.n, open(friend))
	}
	for _, c := range append(append(many, six...), friend...) {
		if !c.closed {
			s.Done(c)
		}
		s.Done(c) // twice, as if it had been closed in the meantime
	}
	if got := len(s.from); got > 1 {
		t.Errorf("%d sources are left", got)
	}
}

type fakeCaller struct {
	net.Conn
	addr   net.TCPAddr
	closed bool
}

func (f *fakeCaller) RemoteAddr() net.Addr { return &f.addr }
func (f *fakeCaller) Close() error         { f.closed = true; return nil }
