package network

import (
	"math/rand"
	"net"
	"net/netip"
	"sync"
)

// callers are the connections to an overlay that have not proved yet to be a host of the job's. Any
// program of the network can make such: a source has places of its own, and where they are all
// taken one of its own calls makes room, drawn by lot. So a source that calls without end,
// and never says anything, keeps out no other source, and none of its own host for long.
type callers struct {
	mu   sync.Mutex
	from map[netip.Prefix][]net.Conn
	n    int
}

// Bounds of callers, in connections.
const (
	callersOfSource = 64
	callersAtMost   = 512
)

// add takes a connection in; another may be closed for it.
func (s *callers) add(c net.Conn) {
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

// drop closes a connection of a source; the lock is held.
func (s *callers) drop(src netip.Prefix) {
	if list := s.from[src]; len(list) > 0 {
		c := list[rand.Intn(len(list))]
		c.Close()
		s.take(src, c)
	}
}

// done takes a connection out; it was added before.
func (s *callers) done(c net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(source(c), c)
}

func (s *callers) take(src netip.Prefix, c net.Conn) {
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

// source is where a connection comes from: an IPv4 address, or the 64 bits of an IPv6 one that a site assigns
// to a network as a whole.
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
