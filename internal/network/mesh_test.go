package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// mesh is the hosts of a job, all on this machine, with one secret.
func mesh(t *testing.T, hosts int, secret byte, serve func(self, host int, kind string, c net.Conn)) []*Mesh {
	t.Helper()
	o := MeshOptions{Secret: make([]byte, 32), LowPort: 61000, HighPort: 65535}
	o.Secret[0] = secret
	for i := 0; i < hosts; i++ {
		o.Hosts = append(o.Hosts, MeshHost{fmt.Sprint("n", i), "127.0.0.1"})
	}
	var list []*Mesh
	for i := 0; i < hosts; i++ {
		own := o
		own.Self = i
		own.Serve = func(host int, kind string, c net.Conn) { serve(i, host, kind, c) }
		m, err := NewMesh(own)
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

// Each host finds each other one, though all have one address.
func TestMesh(t *testing.T) {
	list := mesh(t, 3, 1, func(self, host int, kind string, c net.Conn) { fmt.Fprintf(c, "%d %d %s", self, host, kind) })
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

// Who has not the secret gets in nowhere, and holds up nobody; nor does a port that another
// program has.
func TestMeshStrangers(t *testing.T) {
	served := make(chan string, 16)
	list := mesh(t, 2, 1, func(_, _ int, kind string, _ net.Conn) { served <- kind })
	stranger := mesh(t, 2, 2, func(int, int, string, net.Conn) {})[0]
	addr := list[1].ln.Addr().(*net.TCPAddr)
	if c, err := stranger.call(limited(t, 5*time.Second), 1, addr.Port, "stranger"); err == nil {
		c.Close()
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

func TestMeshOptions(t *testing.T) {
	hosts := []MeshHost{{"a", "127.0.0.1"}}
	for _, o := range []MeshOptions{
		{Secret: make([]byte, 31), Hosts: hosts, LowPort: 1, HighPort: 2},
		{Secret: make([]byte, 32), Hosts: hosts, Self: 1, LowPort: 1, HighPort: 2},
		{Secret: make([]byte, 32), Hosts: hosts, LowPort: 2, HighPort: 1},
		{Secret: make([]byte, 32), Hosts: hosts, LowPort: 0, HighPort: 65536},
		{Secret: make([]byte, 32), Hosts: make([]MeshHost, MaxMeshHosts+1), LowPort: 1, HighPort: 2},
	} {
		if m, err := NewMesh(o); err == nil {
			m.Close()
			t.Errorf("%+v is taken", o)
		}
	}
}

// Two switches joined as hosts: a frame to a VM of the other goes there, a broadcast to all, and
// what says to be from another host's VM nowhere.
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
	as[0].Write(frame(all[3].MAC, all[2].MAC, 1)) // not its own
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
