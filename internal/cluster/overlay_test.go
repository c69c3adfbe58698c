package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/spec"
)

// echoVM is a VM's agent that sends back what it gets.
func echoVM(t *testing.T) *channel.Mux {
	t.Helper()
	near, far := net.Pipe()
	vm, err := channel.New(far, channel.Options{Name: "the host", Accept: func(string, channel.Fields) (channel.Route, error) {
		return channel.Route{Handle: func(s *channel.Stream) {
			io.Copy(s.Lane(channel.LaneData), s.Lane(channel.LaneData))
			s.CloseWrite(channel.LaneData)
			<-s.Gone()
		}}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := channel.New(near, channel.Options{Name: "vm", Initiator: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); vm.Close() })
	return m
}

// resetTCP resets every TCP connection of this process, as the network between two hosts may.
func resetTCP(t testing.TB) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		var fd int
		fmt.Sscan(e.Name(), &fd)
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		if err != nil || kind != unix.IPPROTO_TCP {
			continue
		}
		if _, err := unix.Getpeername(fd); err != nil {
			continue // it listens
		}
		// connect(2): an address of AF_UNSPEC dissolves the association; TCP sends a reset.
		unspec := [16]byte{}
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), 16); errno == 0 {
			n++
		}
	}
	return n
}

// Two hosts whose connections are reset again and again: their VMs' frames arrive, and a program's streams are
// whole. Meanwhile the hosts are not joined, and then they are.
func TestOverlayResets(t *testing.T) {
	overlay := Overlay{Secret: bytes.Repeat([]byte{7}, 32), Ports: [2]int{61000, 65535}}
	for i := range 2 {
		overlay.Hosts = append(overlay.Hosts, OverlayHost{Name: fmt.Sprint("n", i), Addr: "127.0.0.1", VMs: []string{fmt.Sprintf("n%d-vm0", i)}})
	}
	n := spec.Network{Type: "auto", Subnet: "10.77.0.0/16", MTU: 1500}
	var cs []*Cluster
	var links []net.Conn
	for i := range 2 {
		own := overlay
		own.Self = i
		w, err := wire(n, [16]byte{byte(i)}, own.Hosts[i].VMs, uplink{}, nil, &own)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.close)
		link, err := net.FileConn(w.files[0][0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close() })
		links = append(links, link)
		c := &Cluster{wiring: w, board: channel.NewSwitchboard(), rec: Record{VMs: []VMRecord{{Name: own.Hosts[i].VMs[0]}}}}
		c.board.AddVM(own.Hosts[i].VMs[0], echoVM(t))
		if err := c.joinHosts(); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	joined := func() bool {
		for _, c := range cs {
			r := c.Record()
			c.mu.Lock()
			r.Overlay = append([]RecordHost(nil), c.rec.Overlay...)
			c.mu.Unlock()
			if r.Joined() != nil {
				return false
			}
		}
		return true
	}
	await := func(what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: never (%+v)", what, cs[0].rec.Overlay)
			}
		}
	}
	await("joined", joined)

	near, far := net.Pipe()
	if _, err := cs[0].board.Client(near, nil); err != nil {
		t.Fatal(err)
	}
	client, err := guest.Dial(context.Background(), far, "the cluster")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p, err := client.VM("n1-vm0").Start(guest.Exec{Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	text := make([]byte, 3<<20)
	for i := range text {
		text[i] = byte(i * i >> 7)
	}
	go func() { p.Stdin.Write(text); p.Stdin.Close() }()
	got, resets := make([]byte, len(text)), 0
	for at := 0; at < len(got); {
		k, err := io.ReadFull(p.Stdout, got[at:min(at+500000, len(got))])
		if err != nil {
			t.Fatalf("after %d bytes: %v", at+k, err)
		}
		if at += k; at < len(got) {
			resets += resetTCP(t)
		}
	}
	if resets == 0 {
		t.Error("no connection was reset")
	}
	if !bytes.Equal(got, text) {
		t.Error("what came back is not what was sent")
	}
	await("joined again", joined)

	// A frame from host 0's VM to host 1's, and one back.
	mac := func(i int) []byte { return cs[i].wiring.addrs[0].MAC }
	for from, to := range []int{1, 0} {
		f := append(append(append([]byte{}, mac(to)...), mac(from)...), 8, 0, byte(from))
		links[from].Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...))
		b := make([]byte, 4+len(f))
		links[to].SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(links[to], b); err != nil || !bytes.Equal(b[4:], f) {
			t.Errorf("frame from host %d: %x, %v", from, b, err)
		}
	}
}

// A host whose link is made again before it was known to be lost is joined.
func TestOverlayNews(t *testing.T) {
	c := &Cluster{wiring: &wiring{overlay: &overlayLinks{Overlay: &Overlay{}, ctx: context.Background(), ready: []bool{false, true}, down: []int{0, 0}}},
		rec: Record{Overlay: []RecordHost{{Self: true, Joined: true}, {Joined: true}}}}
	lost := errors.New("reset")
	for _, news := range [][]error{{nil, lost}, {lost, nil}, {lost, nil, nil, lost}, {lost, lost, nil, nil}} {
		for _, err := range news {
			c.linkState(1, kindStreams, err)
		}
		if err := c.rec.Joined(); err != nil {
			t.Errorf("after %v: %v", news, err)
		}
	}
	c.linkState(1, kindStreams, lost)
	if c.rec.Joined() == nil {
		t.Error("a host whose link is down is joined")
	}
}
