package fleet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"nearmetal/internal/cluster/local"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/network"
	"nearmetal/internal/text"
)

// An MPI launcher may run on the host of a cluster's front, while the VMs are on hosts reached by ssh. Its daemons
// connect back to the address that their uplink has for the host of their VM. On that host, the part listens on the
// launcher's port and passes each connection on to the front, as a stream of kind "call" over their existing
// connection.

const (
	// kindCall is the kind of the streams by which a part passes connections on to the front; the header has the
	// launcher's port.
	kindCall = "call"
	keyPort  = "port"
	// maxCallPorts bounds the launchers' ports that a front opens, and those that a part listens on.
	maxCallPorts = 1024
	// maxCalls bounds the connections that a part passes on at a time.
	maxCalls = 4096
)

// calls are the ports of launchers on the front's host that the VMs of its hosts may reach.
type calls struct {
	mu    sync.Mutex
	ports map[uint16]bool
	open  *network.HostPorts // valid as long as the same programs listen on them as when they were opened
}

func newCalls() *calls {
	return &calls{ports: map[uint16]bool{}, open: network.NewHostPorts(nil)}
}

// allow lets the hosts' VMs reach the ports in a command's header, on which programs of the user listen on this host.
func (k *calls) allow(list []string) error {
	ports, err := local.ParsePorts(list)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range ports {
		if err := k.open.Open(p.Number); err != nil && !p.Optional {
			return err
		}
		k.ports[p.Number] = true
	}
	if len(k.ports) > maxCallPorts {
		for p := range k.ports { // drop ports on which no program listens any more
			if !k.open.Listens(p) {
				delete(k.ports, p)
			}
		}
	}
	if len(k.ports) > maxCallPorts {
		return fmt.Errorf("more than %d ports of MPI launchers on this host are open to the VMs", maxCallPorts)
	}
	return nil
}

// Admit returns the policy of the front's switchboard, which wraps next: a client's command lets the VMs reach the
// ports of this host on which its launcher listens.
func (f *Fleet) Admit(next local.Policy) local.Policy {
	return func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
		h, err := next(from, to, kind, h)
		if err != nil || from != "" {
			return h, err
		}
		return f.allowCalls(to, h)
	}
}

// allowCalls lets a VM reach the ports in a command's header, and returns the header for the VM's host.
func (f *Fleet) allowCalls(vm string, h channel.Fields) (channel.Fields, error) {
	list := h.All(guest.KeyHostPort)
	if len(list) == 0 {
		return h, nil
	}
	for _, x := range f.hosts {
		if slices.Contains(x.vms, vm) && x.facts.Machine == f.machine {
			return h, nil // its VMs can reach this host directly
		}
	}
	if err := f.calls.allow(list); err != nil {
		return nil, err
	}
	h = h.Without(guest.KeyHostPort)
	for _, p := range list {
		h.Add(local.KeyFrontPort, p)
	}
	return h, nil
}

// accept serves the streams that a part opens: connections from its VMs.
func (k *calls) accept(kind string, h channel.Fields) (channel.Route, error) {
	if kind != kindCall {
		return channel.Route{}, fmt.Errorf("a host may not open streams of kind %s", text.CleanLines(kind))
	}
	n, err := strconv.ParseUint(h.Get(keyPort), 10, 16)
	if err != nil {
		return channel.Route{}, errors.New("a call to no port")
	}
	k.mu.Lock()
	known := k.ports[uint16(n)]
	k.mu.Unlock()
	if !known || !k.open.Listens(uint16(n)) {
		return channel.Route{}, fmt.Errorf("port %d of the front is not open", n)
	}
	return channel.Route{Handle: func(s *channel.Stream) {
		conn, err := net.Dial("tcp", netip.AddrPortFrom(loopback, uint16(n)).String())
		if err != nil {
			s.Reset(err.Error())
			return
		}
		join(s, conn)
	}}, nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// join copies bytes between a stream and a connection until both directions have ended, and closes the connection.
func join(s *channel.Stream, conn net.Conn) {
	defer conn.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.Copy(s, conn); err != nil {
			s.Reset("the connection has broken")
			return
		}
		s.CloseWrite(channel.LaneData)
	}()
	if _, err := io.Copy(conn, s); err != nil {
		conn.Close() // ends the other direction too
	} else if t, ok := conn.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	<-done
}

// answering listens, in a part, on the ports of launchers at its front.
type answering struct {
	addr   netip.Addr // a loopback address
	mu     sync.Mutex
	mux    *channel.Mux // to the front; nil: not connected yet
	places chan struct{}
	ports  map[uint16]*net.TCPListener
	order  []uint16 // the keys of ports, oldest first
}

func newAnswering() *answering {
	return &answering{addr: loopback, places: make(chan struct{}, maxCalls), ports: map[uint16]*net.TCPListener{}}
}

// start sets the connection to the front.
func (a *answering) start(m *channel.Mux) {
	a.mu.Lock()
	a.mux = m
	a.mu.Unlock()
}

// listen listens on a port of the loopback until the part ends. The VMs reach it through their uplinks.
func (a *answering) listen(port uint16) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ports[port] != nil {
		return nil
	}
	if a.mux == nil {
		return errors.New("the host that started the cluster is not connected yet")
	}
	if len(a.order) >= maxCallPorts { // the launcher of the oldest port has ended long ago
		a.ports[a.order[0]].Close()
		delete(a.ports, a.order[0])
		a.order = a.order[1:]
	}
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a.addr, port)))
	if err != nil {
		return fmt.Errorf("the MPI launcher's port %d is not free here, where its daemons call back: %w (start it again, it takes another)", port, err)
	}
	a.ports[port], a.order = l, append(a.order, port)
	go a.serve(l, port, a.mux)
	return nil
}

// serve passes connections on to the front. It closes those of other users of the host, which cannot come from the
// VMs.
func (a *answering) serve(l *net.TCPListener, port uint16, m *channel.Mux) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		if !network.OwnPeer(conn) { // closed without using one of the places for passed-on connections
			conn.Close()
			continue
		}
		select {
		case a.places <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		go func() {
			defer func() { <-a.places }()
			s, err := m.Open(kindCall, channel.Fields{{Key: keyPort, Value: strconv.Itoa(int(port))}})
			if err != nil {
				conn.Close()
				return
			}
			defer s.Close()
			join(s, conn)
		}()
	}
}

// close stops listening; open connections end with that to the front.
func (a *answering) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.ports {
		l.Close()
	}
	a.ports, a.order, a.mux = map[uint16]*net.TCPListener{}, nil, nil
}
