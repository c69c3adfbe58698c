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

// An MPI launcher may run where a cluster's front is, and the VMs be on hosts that ssh reaches. Its daemons call back
// to the address that their uplink has for the host that they are on. There the part listens on the launcher's port, and
// passes each connection on to the front, over the connection that there is: a stream of kind "call".

const (
	// kindCall is a stream by which a part passes a connection on to the front; its header has the launcher's port.
	kindCall = "call"
	keyPort  = "port"
	// maxCallPorts is how many ports of launchers a front has open, and a part listens on.
	maxCallPorts = 1024
	// maxCalls is how many connections a part passes on at a time.
	maxCalls = 4096
)

// calls are the ports of launchers at the front, which the VMs of its hosts may reach.
type calls struct {
	mu    sync.Mutex
	ports map[uint16]bool
	open  *network.HostPorts // who listens on them now is who did when they were opened
}

func newCalls() *calls {
	return &calls{ports: map[uint16]bool{}, open: network.NewHostPorts(nil)}
}

// allow lets the hosts' VMs reach the ports of a command's header, on which programs of the user's listen here.
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
		for p := range k.ports { // what nobody listens on any more
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

// Admit returns the policy of the front's switchboard, over next, which decides who may ask for what: a client's command
// has the VMs reach the ports of this host that its launcher listens on.
func (f *Fleet) Admit(next local.Policy) local.Policy {
	return func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
		h, err := next(from, to, kind, h)
		if err != nil || from != "" {
			return h, err
		}
		return f.allowCalls(to, h)
	}
}

// allowCalls lets a VM reach the ports of a command's header, and returns the header for its host.
func (f *Fleet) allowCalls(vm string, h channel.Fields) (channel.Fields, error) {
	list := h.All(guest.KeyHostPort)
	if len(list) == 0 {
		return h, nil
	}
	for _, x := range f.hosts {
		if slices.Contains(x.vms, vm) && x.facts.Machine == f.machine {
			return h, nil // its VMs reach this host as it is
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

// accept takes the streams that a part opens: its VMs' calls.
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

// join passes bytes between a stream and a connection until both directions have ended, and closes the connection.
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
		conn.Close() // so the other direction ends as well
	} else if t, ok := conn.(*net.TCPConn); ok {
		t.CloseWrite()
	}
	<-done
}

// answering is what a part listens on for launchers at its front.
type answering struct {
	addr   netip.Addr // of the loopback
	mu     sync.Mutex
	mux    *channel.Mux // to the front; nil: not yet
	places chan struct{}
	ports  map[uint16]*net.TCPListener
	order  []uint16 // of ports, the oldest first
}

func newAnswering() *answering {
	return &answering{addr: loopback, places: make(chan struct{}, maxCalls), ports: map[uint16]*net.TCPListener{}}
}

// start makes m the connection to the front.
func (a *answering) start(m *channel.Mux) {
	a.mu.Lock()
	a.mux = m
	a.mu.Unlock()
}

// listen listens on a port of the loopback, as long as the part lives. The VMs reach it by their uplinks.
func (a *answering) listen(port uint16) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ports[port] != nil {
		return nil
	}
	if a.mux == nil {
		return errors.New("the host that started the cluster is not connected yet")
	}
	if len(a.order) >= maxCallPorts { // its launcher has ended long since
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

// serve passes connections on. Those of other users of the host are none of the VMs'.
func (a *answering) serve(l *net.TCPListener, port uint16, m *channel.Mux) {
	for {
		conn, err := l.AcceptTCP()
		if err != nil {
			return
		}
		if !network.OwnPeer(conn) { // it has no place among those that are passed on
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

// close ends the listening; connections end with the front's.
func (a *answering) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.ports {
		l.Close()
	}
	a.ports, a.order, a.mux = map[uint16]*net.TCPListener{}, nil, nil
}
