package wiring

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

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/spec"
)

// echoVM is a VM's agent that sends back what it receives.
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

// resetTCP resets every TCP connection of this process, as the network between two hosts may do.
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
			continue // a listening socket
		}
		// connect(2): an address of AF_UNSPEC dissolves the association; TCP sends a reset.
		unspec := [16]byte{}
		if _, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspec)), 16); errno == 0 {
			n++
		}
	}
	return n
}

// Checks that frames of the VMs arrive and that a program's streams are complete while the connections of two hosts
// are reset repeatedly. The record shows the hosts as not joined in between, and as joined afterwards.
func TestOverlayResets(t *testing.T) {
	overlay := Overlay{Secret: bytes.Repeat([]byte{7}, 32), Ports: [2]int{61000, 65535}}
	for i := range 2 {
		overlay.Hosts = append(overlay.Hosts, OverlayHost{Name: fmt.Sprint("n", i), Addr: "127.0.0.1", VMs: []string{fmt.Sprintf("n%d-vm0", i)}})
	}
	n := spec.Network{Type: "auto", Subnet: "10.77.0.0/16", MTU: 1500}
	var cs []*Net
	var owns []*state.Owned
	var boards []*channel.Switchboard
	var links []net.Conn
	for i := range 2 {
		own := overlay
		own.Self = i
		w, err := Make(Request{Network: n, ID: [16]byte{byte(i)}, Names: own.Hosts[i].VMs, Overlay: &own})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		link, err := net.FileConn(w.files[0][0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { link.Close() })
		links = append(links, link)
		rec := state.InMemory(state.Record{VMs: []state.VMRecord{{Name: own.Hosts[i].VMs[0]}}})
		board := channel.NewSwitchboard()
		board.AddVM(own.Hosts[i].VMs[0], echoVM(t))
		if err := w.Joined.Start(rec, board); err != nil {
			t.Fatal(err)
		}
		cs, owns, boards = append(cs, w), append(owns, rec), append(boards, board)
	}
	joined := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, o := range owns {
			if r, err := o.Await(ctx, func(r *state.Record) bool { return r.Joined() == nil }); err != nil {
				t.Fatalf("%s: never (%+v)", what, r.Overlay)
			}
		}
	}
	joined("joined")

	near, far := net.Pipe()
	if _, err := boards[0].Client(near, nil); err != nil {
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
	joined("joined again")

	// A frame from host 0's VM to host 1's, and one back.
	mac := func(i int) []byte { return cs[i].addrs[0].MAC }
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

// Checks that a host whose link reconnects before its loss is noticed is joined.
func TestOverlayNews(t *testing.T) {
	own := state.InMemory(state.Record{Across: state.Across{Overlay: []state.RecordHost{{Self: true, Joined: true}, {Joined: true}}}})
	c := &Joined{Overlay: &Overlay{}, own: own, ctx: context.Background(), ready: []bool{false, true}, down: []int{0, 0}}
	isJoined := func() error { r := own.Record(); return r.Joined() }
	lost := errors.New("reset")
	for _, news := range [][]error{{nil, lost}, {lost, nil}, {lost, nil, nil, lost}, {lost, lost, nil, nil}} {
		for _, err := range news {
			c.linkState(1, kindStreams, err)
		}
		if err := isJoined(); err != nil {
			t.Errorf("after %v: %v", news, err)
		}
	}
	c.linkState(1, kindStreams, lost)
	if isJoined() == nil {
		t.Error("a host whose link is down is joined")
	}
}
