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

// HostPorts is which TCP ports of this host the VMs of a cluster reach by their uplinks, and
// which addresses are this host's.
type HostPorts struct {
	proc string // /proc/net, or a test's

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
	good    bool // what the check said
}

// How long an answer of the kernel's is good. Each costs some 0.1 ms, and a guest can ask for it.
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

// Open opens a port for as long as the program that listens on it now does. It is an error
// when there is none, or when it is another user's.
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

// isOpen reports whether a frame for a port of this host may go there. One that would make a
// connection (start) is asked for anew: the listener must still be the one that the port was opened for.
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

// isOwn reports whether an address is one of this host's interfaces.
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

// OwnPeer reports whether the other end of a connection within this host's IPv4 loopback is a process of this user.
func OwnPeer(c *net.TCPConn) bool {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return false
	}
	return peerUser("/proc/net/tcp", remote.AddrPort(), local.AddrPort()) == os.Geteuid()
}

// peerUser returns the user of the socket with these addresses in a file as /proc/net/tcp, -1 where there is none.
func peerUser(file string, own, other netip.AddrPort) int {
	f, err := os.Open(file)
	if err != nil {
		return -1
	}
	defer f.Close()
	want := [2]string{procAddr(own), procAddr(other)}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) >= 10 && w[1] == want[0] && w[2] == want[1] {
			if uid, err := strconv.Atoi(w[7]); err == nil {
				return uid
			}
		}
	}
	return -1
}

// procAddr is an IPv4 address and port as /proc/net/tcp has them, on a little-endian machine.
func procAddr(a netip.AddrPort) string {
	b := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], a.Port())
}

// listener finds the socket that listens on a port of this host's, by its inode, and its user. One on
// the loopback goes before one on any address: that is whom a connection there reaches.
func (h *HostPorts) listener(port uint16) (inode uint64, uid int, err error) {
	err = fmt.Errorf("port %d of this host: %w", port, errNoListener)
	for _, file := range []string{"tcp6", "tcp"} {
		f, ferr := os.Open(h.proc + "/" + file)
		if ferr != nil {
			continue
		}
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
			w := strings.Fields(sc.Text())
			if len(w) < 10 || w[3] != "0A" {
				continue
			}
			_, hex, ok := strings.Cut(w[1], ":")
			p, perr := strconv.ParseUint(hex, 16, 16)
			n, nerr := strconv.ParseUint(w[9], 10, 64)
			u, uerr := strconv.Atoi(w[7])
			if !ok || uint16(p) != port || perr != nil || nerr != nil || uerr != nil {
				continue
			}
			if err == nil && !strings.HasPrefix(w[1], "0100007F") {
				continue
			}
			inode, uid, err = n, u, nil
		}
		f.Close()
	}
	return inode, uid, err
}
