package network

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// HostPorts is the set of this host's TCP ports that the VMs of a cluster can reach through their uplinks. It also
// knows which addresses are this host's.
type HostPorts struct {
	proc string // /proc/net, or a test's directory

	mu     sync.Mutex
	fixed  map[uint16]bool
	opened map[uint16]opened
	own    map[netip.Addr]bool
	looked time.Time // when own was read
}

// opened is a port that was opened for a program that listens on it.
type opened struct {
	inode   uint64 // of its socket
	checked time.Time
	good    bool // result of the check
}

// How long an answer of the kernel is reused. Each costs some 0.1 ms, and a guest can cause it.
const (
	listenerFor  = 100 * time.Millisecond
	addressesFor = time.Second
)

// NewHostPorts returns a set with ports (1 to 65535) that are always open.
func NewHostPorts(ports []int) *HostPorts {
	h := &HostPorts{proc: "/proc/net", fixed: map[uint16]bool{}, opened: map[uint16]opened{}}
	for _, p := range ports {
		h.fixed[uint16(p)] = true
	}
	return h
}

// Open opens a port for as long as the program that listens on it now keeps listening. It fails if no program listens
// on the port, or another user's program.
func (h *HostPorts) Open(port uint16) error {
	inode, uid, err := h.listener(port)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("port %d of this host: who listens on it is user %d, not you", port, uid)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.opened[port] = opened{inode, time.Now(), true}
	return nil
}

// Listens reports whether the program for which a port was opened still listens on it.
func (h *HostPorts) Listens(port uint16) bool { return h.isOpen(port, true) }

// isOpen reports whether a frame may be sent to a port of this host. For a frame that would make a connection (start)
// the kernel is queried again, because the listener must still be the one for which the port was opened.
func (h *HostPorts) isOpen(port uint16, start bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fixed[port] {
		return true
	}
	o, ok := h.opened[port]
	if !ok || !start {
		return ok
	}
	if time.Since(o.checked) > listenerFor {
		inode, _, err := h.listener(port)
		o.checked, o.good = time.Now(), err == nil && inode == o.inode
		h.opened[port] = o
	}
	return o.good
}

// isOwn reports whether an address belongs to one of this host's interfaces.
func (h *HostPorts) isOwn(a netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.own == nil || time.Since(h.looked) > addressesFor {
		list, err := net.InterfaceAddrs()
		if err != nil {
			return true
		}
		h.own, h.looked = map[netip.Addr]bool{}, time.Now()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				h.own[p.Addr().Unmap()] = true
			}
		}
	}
	return h.own[a]
}

var errNoListener = errors.New("no program listens on it")

// OwnPeer reports whether the other end of a connection within this host's IPv4 loopback is a socket that a process of
// this user has open now.
func OwnPeer(c *net.TCPConn) bool {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return false
	}
	return peerUser("/proc/net", remote.AddrPort(), local.AddrPort()) == os.Geteuid()
}

// tcpSocket is a line of /proc/net/tcp or tcp6.
type tcpSocket struct {
	local, remote string // address and port in hexadecimal digits
	state         string
	uid           int
	inode         uint64
}

// States of a tcpSocket (the kernel's include/net/tcp_states.h).
const (
	stateEstablished = "01"
	stateFinWait1    = "04" // with an inode, its process has sent its last byte and still reads
	stateFinWait2    = "05"
	stateListen      = "0A"
)

// eachSocket calls f with each TCP socket that a process has open, the IPv6 sockets first. proc is /proc/net. The
// kernel also lists sockets that every process has closed (FIN_WAIT, TIME_WAIT) and connections that nobody has
// accepted yet. Those have inode 0 and mostly user 0, regardless of who made them, and are left out.
func eachSocket(proc string, f func(tcpSocket)) {
	for _, name := range []string{"tcp6", "tcp"} {
		file, err := os.Open(proc + "/" + name)
		if err != nil {
			continue
		}
		for sc := bufio.NewScanner(file); sc.Scan(); {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			w := strings.Fields(sc.Text())
			if len(w) < 10 {
				continue
			}
			uid, uerr := strconv.Atoi(w[7])
			inode, ierr := strconv.ParseUint(w[9], 10, 64)
			if uerr == nil && ierr == nil && inode != 0 {
				f(tcpSocket{local: w[1], remote: w[2], state: w[3], uid: uid, inode: inode})
			}
		}
		file.Close()
	}
}

// peerUser returns the user whose process has the connected socket with these addresses open, or -1 if there is none.
func peerUser(proc string, own, other netip.AddrPort) int {
	uid := -1
	eachSocket(proc, func(s tcpSocket) {
		switch s.state {
		case stateEstablished, stateFinWait1, stateFinWait2:
			if isAddr(s.local, own) && isAddr(s.remote, other) {
				uid = s.uid
			}
		}
	})
	return uid
}

// isAddr reports whether an address and port of /proc/net/tcp or tcp6 equal a, which is IPv4. tcp6 lists an IPv6 socket
// that is connected to an IPv4 address.
func isAddr(text string, a netip.AddrPort) bool {
	four := procAddr(a)
	return text == four || text == "0000000000000000FFFF0000"+four
}

// procAddr returns an IPv4 address and port in the format of /proc/net/tcp on a little-endian machine.
func procAddr(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}

// listener returns the inode and the user of the socket that listens on a port of this host. A socket on the loopback
// precedes one on any address, because a connection to the loopback reaches that one.
func (h *HostPorts) listener(port uint16) (inode uint64, uid int, err error) {
	err = fmt.Errorf("port %d of this host: %w", port, errNoListener)
	eachSocket(h.proc, func(s tcpSocket) {
		_, hex, _ := strings.Cut(s.local, ":")
		p, bad := strconv.ParseUint(hex, 16, 16)
		if s.state != stateListen || bad != nil || uint16(p) != port {
			return
		}
		if err == nil && !strings.HasPrefix(s.local, "0100007F") {
			return
		}
		inode, uid, err = s.inode, s.uid, nil
	})
	return inode, uid, err
}
