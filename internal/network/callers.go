package network

import (
	"math/rand"
	"net"
	"net/netip"
	"sync"
)

// Callers are the connections to a listener that have not yet proved that they know its secret. The listener is an
// overlay's, or the agent's in a cloud, and any program on the network can connect to it. Each source has a limited
// number of places; when all are occupied, one of the source's own connections, drawn by lot, is closed to make room.
// Therefore a source that connects without end and never speaks does not keep out other sources, nor honest programs of
// its own host for long. The zero value has no connections.
type Callers struct {
	mu   sync.Mutex
	from map[netip.Prefix][]net.Conn
	n    int
}

// Bounds of Callers, in connections.
const (
	callersOfSource = 64
	callersAtMost   = 512
)

// Add adds a connection, and may close another to make room.
func (s *Callers) Add(c net.Conn) {
	src := source(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		s.from = map[netip.Prefix][]net.Conn{}
	}
	if len(s.from[src]) >= callersOfSource {
		s.drop(src)
	} else if s.n >= callersAtMost {
		most := src
		for p, list := range s.from {
			if len(list) > len(s.from[most]) {
				most = p
			}
		}
		s.drop(most)
	}
	s.from[src] = append(s.from[src], c)
	s.n++
}

// drop closes a connection of a source. The lock must be held.
func (s *Callers) drop(src netip.Prefix) {
	if list := s.from[src]; len(list) > 0 {
		c := list[rand.Intn(len(list))]
		c.Close()
		s.take(src, c)
	}
}

// Done removes a connection, so that it is no longer closed to make room. The connection was added before, and may have
// been closed since.
func (s *Callers) Done(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(source(c), c)
}

func (s *Callers) take(src netip.Prefix, c net.Conn) {
	list := s.from[src]
	for i := range list {
		if list[i] == c {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			s.from[src] = list[:len(list)-1]
			s.n--
			break
		}
	}
	if len(s.from[src]) == 0 {
		delete(s.from, src)
	}
}

// source returns the origin of a connection: an IPv4 address, or the first 64 bits of an IPv6 address, which a site
// assigns to a network as a whole.
func source(c net.Conn) netip.Prefix {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := a.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}
