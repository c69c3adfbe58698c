package fleet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"nearmetal/internal/cluster/local"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/test/nobody"
)

// frontAndPart returns a front with one host "n2", and the listener of its part as on a separate host; a connection
// joins both.
func frontAndPart(t *testing.T) (front *Fleet, part *answering) {
	t.Helper()
	front = newFleet([]string{"n2"})
	front.hosts[0].vms = []string{"vm1"}
	part = newAnswering()
	a, b := net.Pipe()
	ma, err := channel.New(a, channel.Options{Name: "host n2", Initiator: true, Accept: front.calls.accept})
	if err != nil {
		t.Fatal(err)
	}
	mb, err := channel.NewSwitchboard().Client(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	part.start(mb)
	t.Cleanup(func() { part.close(); ma.Close(); mb.Close() })
	return front, part
}

// listenOn makes a part listen on the ports of a header.
func listenOn(part *answering, list []string) error {
	ports, err := local.ParsePorts(list)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if err := part.listen(p.Number); err != nil {
			return err
		}
	}
	return nil
}

// launcher listens on a port, and answers each connection with the received text in capitals.
func launcher(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				all, _ := io.ReadAll(conn) // until the peer has sent everything
				conn.Write([]byte(strings.ToUpper(string(all))))
			}()
		}
	}()
	return l.(*net.TCPListener)
}

// call sends a text to a port of the part, and returns the answer.
func call(t *testing.T, port, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp4", "127.0.0.9:"+port)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer conn.Close()
	conn.Write([]byte(text))
	conn.(*net.TCPConn).CloseWrite()
	all, _ := io.ReadAll(conn)
	return string(all)
}

func port(l *net.TCPListener) string {
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}

// Checks that a daemon's message on a host reached by ssh arrives at the launcher at the front, and that the answer
// returns, both over the existing connection. Another user's connection, a port that was not requested, and a port
// whose launcher has ended are refused.
func TestCallBack(t *testing.T) {
	front, part := frontAndPart(t)
	l := launcher(t)
	h, err := front.allowCalls("vm1", channel.Fields{{Key: guest.KeyHostPort, Value: port(l)}})
	if err != nil {
		t.Fatal(err)
	}
	if h.Get(guest.KeyHostPort) != "" || h.Get(local.KeyFrontPort) != port(l) {
		t.Fatalf("the header for the part: %v", h)
	}
	part.addr = loopback
	if err := listenOn(part, h.All(local.KeyFrontPort)); err == nil || !strings.Contains(err.Error(), "is not free here") {
		t.Errorf("the launcher's own port: %v", err)
	}
	// Front and part are on one host here, so the part gets another loopback address.
	part.addr = netip.MustParseAddr("127.0.0.9")
	if err := listenOn(part, h.All(local.KeyFrontPort)); err != nil {
		t.Fatal(err)
	}
	if got := call(t, port(l), "who are you"); got != "WHO ARE YOU" {
		t.Errorf("the launcher said %q", got)
	}
	if os.Getuid() == 0 {
		nobody.Do(t, func() {
			if got := call(t, port(l), "i am nobody"); got != "" {
				t.Errorf("another user was answered %q", got)
			}
		})
	}
	other := launcher(t)
	if err := listenOn(part, []string{port(other)}); err != nil {
		t.Fatal(err)
	}
	if got := call(t, port(other), "let me in"); got != "" {
		t.Errorf("a port that nobody opened answered %q", got)
	}
	l.Close()
	if got := call(t, port(l), "still there"); got != "" {
		t.Errorf("a launcher that has ended answered %q", got)
	}
	if _, err := front.allowCalls("vm1", h); err != nil { // the header has no ports any more
		t.Error(err)
	}
	ended := launcher(t)
	ended.Close()
	if _, err := front.allowCalls("vm1", channel.Fields{{Key: guest.KeyHostPort, Value: port(ended)}}); err == nil {
		t.Error("a port on which nobody listens was opened")
	}
}

// Checks that a part keeps at most maxCallPorts ports, and closes the oldest first.
func TestCallBackBound(t *testing.T) {
	_, part := frontAndPart(t)
	part.addr = netip.MustParseAddr("127.0.0.9")
	for n := range maxCallPorts + 2 {
		if err := part.listen(uint16(20000 + n)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(part.ports); n != maxCallPorts || part.ports[20000] != nil || part.ports[20002] == nil {
		t.Errorf("%d ports", n)
	}
	part.close()
	if err := part.listen(20000); err == nil {
		t.Error("a part that has ended listens")
	}
}
