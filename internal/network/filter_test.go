package network

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/test/nobody"
)

var userNet = netip.MustParsePrefix("10.0.2.0/24")

// startSlirp starts a real QEMU, without a machine, whose user network is connected to the link end.
func startSlirp(t *testing.T, end *os.File) {
	t.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs qemu-system-x86_64")
	}
	var out bytes.Buffer
	cmd := exec.Command(qemu, "-M", "none", "-nodefaults", "-display", "none",
		"-netdev", "stream,id=link,server=off,addr.type=fd,addr.str=3",
		"-netdev", "user,id=user,net=10.0.2.0/24,host=10.0.2.2,ipv6=off",
		"-netdev", "hubport,id=h0,hubid=0,netdev=link",
		"-netdev", "hubport,id=h1,hubid=0,netdev=user")
	cmd.ExtraFiles = []*os.File{end}
	cmd.Stderr = &out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end.Close()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Log("QEMU said:", strings.TrimSpace(out.String()))
		}
	})
}

// packet returns an Ethernet frame with an IPv4 packet to dst, preceded by its length.
func packet(proto byte, dst netip.Addr, port uint16, change func(frame []byte) []byte) []byte {
	body := make([]byte, 20)
	binary.BigEndian.PutUint16(body, 40000+uint16(port%1000))
	binary.BigEndian.PutUint16(body[2:], port)
	switch proto {
	case protoTCP:
		body[12], body[13] = 5<<4, flagSYN
		binary.BigEndian.PutUint16(body[14:], 65535)
	case protoUDP:
		body = append(body[:8], "attack"...)
		binary.BigEndian.PutUint16(body[4:], uint16(len(body)))
	}
	ip := make([]byte, ipHeader)
	ip[0], ip[8], ip[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(ip[2:], uint16(ipHeader+len(body)))
	copy(ip[12:], []byte{10, 0, 2, 15})
	d := dst.As4()
	copy(ip[16:], d[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	if proto == protoTCP {
		pseudo := append(append([]byte{}, ip[12:20]...), 0, proto, 0, byte(len(body)))
		binary.BigEndian.PutUint16(body[16:], checksum(append(pseudo, body...)))
	}
	frame := append([]byte{0x52, 0x55, 10, 0, 2, 2, 0x56, 0, 0, 0, 0, 1, 8, 0}, append(ip, body...)...)
	if change != nil {
		frame = change(frame)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

func checksum(b []byte) uint16 { return internetSum(b, 0) }

// listen opens a TCP listener, and returns its port.
func listen(t *testing.T, addr string) (*net.TCPListener, uint16) {
	t.Helper()
	ln, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*net.TCPListener), uint16(ln.Addr().(*net.TCPAddr).Port)
}

// accepts waits for a connection, for at most within.
func accepts(ln *net.TCPListener, within time.Duration) bool {
	ln.SetDeadline(time.Now().Add(within))
	c, err := ln.Accept()
	if err == nil {
		c.Close()
	}
	return err == nil
}

// aims returns the addresses at which slirp, or the kernel, delivers a packet to this host.
func aims() []netip.Addr {
	list := []netip.Addr{
		netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("10.0.2.77"), netip.MustParseAddr("10.0.2.3"),
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.9.9.9"), netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("255.255.255.255"),
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLoopback() {
			list = append(list, p.Addr())
		}
	}
	return list
}

// A guest addresses a service on the host's loopback in every way that slirp follows. Without the filter the guest
// reaches it; with the filter the first connection is the one to the open port.
func TestFilterLoopback(t *testing.T) {
	ours, end, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	startSlirp(t, end)
	reached := 0
	for _, aim := range aims() {
		ln, port := listen(t, "0.0.0.0") // some ways lead to another loopback address
		if _, err := ours.Write(packet(protoTCP, aim, port, nil)); err != nil {
			t.Fatal(err)
		}
		wait := time.Second
		if aim == userNet.Addr().Next().Next() {
			wait = time.Minute // the connection that must succeed
		}
		if accepts(ln, wait) {
			reached++
		} else if wait == time.Minute {
			t.Fatal("slirp does not take a guest to the host's loopback: this test shows nothing")
		}
		ln.Close()
	}
	t.Logf("without the filter %d of %d ways lead to the host", reached, len(aims()))

	safe, safePort := listen(t, "127.0.0.1")
	ports := NewHostPorts([]int{int(safePort)})
	f, card, host, err := NewFilter(ports, userNet)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer card.Close()
	startSlirp(t, host)
	closed, port := listen(t, "0.0.0.0")
	udp, err := net.ListenPacket("udp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for _, aim := range aims() {
		for name, change := range map[string]func([]byte) []byte{
			"as it is":        nil,
			"first fragment":  func(b []byte) []byte { b[20] |= 0x20; return rechecked(b) },
			"a later one":     func(b []byte) []byte { b[21] = 1; return rechecked(b) },
			"with IP options": func(b []byte) []byte { return withOptions(b) },
			"in a VLAN":       func(b []byte) []byte { return append(append(append([]byte{}, b[:12]...), 0x81, 0, 0, 0), b[12:]...) },
			"with more flags": func(b []byte) []byte { b[ethernetHeader+ipHeader+13] |= 0xc0; return b },
		} {
			if _, err := card.Write(packet(protoTCP, aim, port, change)); err != nil {
				t.Fatal(name, err)
			}
		}
		if _, err := card.Write(packet(protoUDP, aim, uint16(udp.LocalAddr().(*net.UDPAddr).Port), nil)); err != nil {
			t.Fatal(err)
		}
	}
	// slirp keeps the order of frames: once this one has arrived, no earlier one is still on its way.
	if _, err := card.Write(packet(protoTCP, userNet.Addr().Next().Next(), safePort, nil)); err != nil {
		t.Fatal(err)
	}
	if !accepts(safe, time.Minute) {
		t.Error("the open port is not reached")
	}
	if accepts(closed, time.Millisecond) {
		t.Error("a service on the host's loopback was reached")
	}
	udp.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, _, err := udp.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("%d bytes came to a UDP service of the host's", n)
	}
}

func rechecked(b []byte) []byte {
	ip := b[ethernetHeader : ethernetHeader+ipHeader]
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return b
}

func withOptions(b []byte) []byte {
	out := append([]byte{}, b[:ethernetHeader+ipHeader]...)
	out = append(append(out, 1, 1, 1, 1), b[ethernetHeader+ipHeader:]...)
	ip := out[ethernetHeader : ethernetHeader+ipHeader+4]
	ip[0] = 0x46
	binary.BigEndian.PutUint16(ip[2:], binary.BigEndian.Uint16(ip[2:])+4)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return out
}

// The frames that a guest needs pass; malformed input ends the link.
func TestFilterPasses(t *testing.T) {
	f := &Filter{ports: NewHostPorts(nil), subnet: userNet, dns: netip.MustParseAddr("10.0.2.3")}
	for _, c := range []struct {
		proto byte
		dst   string
		port  uint16
		want  bool
	}{
		{protoTCP, "192.0.2.1", 22, true},
		{protoUDP, "192.0.2.1", 123, true},
		{protoUDP, "10.0.2.3", 53, true},
		{protoTCP, "10.0.2.3", 53, true},
		{protoUDP, "10.0.2.3", 54, false},
		{protoUDP, "10.0.2.2", 53, false},
		{protoUDP, "10.0.2.2", 69, false},
		{protoUDP, "255.255.255.255", 67, false},
		{protoTCP, "169.254.169.254", 80, false},
		{47, "192.0.2.1", 0, false},
		{protoUDP, "224.0.0.1", 53, false},
	} {
		if got := f.pass(packet(c.proto, netip.MustParseAddr(c.dst), c.port, nil)[lengthLen:]); got != c.want {
			t.Errorf("protocol %d to %s port %d: %v", c.proto, c.dst, c.port, got)
		}
	}
	arp := append(append(make([]byte, 12), 8, 6), make([]byte, 28)...)
	if !f.pass(arp) {
		t.Error("ARP does not pass")
	}
	whole := packet(protoTCP, netip.MustParseAddr("192.0.2.1"), 22, nil)[lengthLen:]
	for n := range len(whole) {
		f.pass(whole[:n]) // must not panic
	}
	real, card, host, err := NewFilter(NewHostPorts(nil), userNet)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	card.Write([]byte{0xff, 0xff, 0xff, 0xff})
	if _, err := host.Read(make([]byte, 1)); err == nil {
		t.Error("the link lives on after a length that cannot be")
	}
	card.Close()
	real.Close()
}

// The start of a forbidden connection is answered with an RST that a guest's kernel accepts: its checksums, ports and
// number are right.
func TestRefusal(t *testing.T) {
	syn := packet(protoTCP, netip.MustParseAddr("10.0.2.2"), 22, func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[ethernetHeader+ipHeader+4:], 0xfffffffe)
		return b
	})[lengthLen:]
	_, card, host, err := NewFilter(NewHostPorts(nil), userNet)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	card.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(syn))), syn...))
	b := make([]byte, 1000)
	n, err := card.Read(b)
	if err != nil || n != lengthLen+ethernetHeader+ipHeader+tcpHeader {
		t.Fatal(n, err)
	}
	card.Close()
	r := b[lengthLen:n]
	ip, tcp := r[ethernetHeader:ethernetHeader+ipHeader], r[ethernetHeader+ipHeader:]
	pseudo := append(append([]byte{}, ip[12:20]...), 0, protoTCP, 0, tcpHeader)
	switch {
	case !bytes.Equal(r[:6], syn[6:12]) || !bytes.Equal(ip[12:16], []byte{10, 0, 2, 2}) || !bytes.Equal(ip[16:20], []byte{10, 0, 2, 15}):
		t.Error("the addresses")
	case checksum(ip) != 0 || checksum(append(pseudo, tcp...)) != 0:
		t.Error("a sum")
	case binary.BigEndian.Uint16(tcp) != 22 || tcp[13] != flagRST|flagACK || binary.BigEndian.Uint32(tcp[8:]) != 0xffffffff:
		t.Errorf("%x", tcp)
	}
	for n := range len(syn) {
		refusal(syn[:n]) // must not panic
	}
	if refusal(r) != nil {
		t.Error("an answer to RST")
	}
}

func FuzzFilter(f *testing.F) {
	f.Add(packet(protoTCP, netip.MustParseAddr("10.0.2.2"), 22, nil)[lengthLen:])
	f.Add(packet(protoUDP, netip.MustParseAddr("192.0.2.1"), 53, nil)[lengthLen:])
	filter := &Filter{ports: NewHostPorts([]int{80}), subnet: userNet, dns: netip.MustParseAddr("10.0.2.3")}
	f.Fuzz(func(t *testing.T, b []byte) { filter.pass(b); refusal(b) })
}

// A port is open for the socket that listens on it when it is opened, and not for a later one.
func TestHostPorts(t *testing.T) {
	h := NewHostPorts([]int{7})
	if !h.isOpen(7, true) || h.isOpen(8, true) || h.isOpen(8, false) {
		t.Error("the fixed ports")
	}
	ln, port := listen(t, "127.0.0.1")
	if h.isOpen(port, true) {
		t.Error("open before Open")
	}
	if err := h.Open(port); err != nil {
		t.Fatal(err)
	}
	if !h.isOpen(port, true) || !h.isOpen(port, false) {
		t.Error("not open after Open")
	}
	ln.Close()
	age := func() {
		o := h.opened[port]
		o.checked = time.Time{}
		h.opened[port] = o
	}
	age()
	if h.isOpen(port, true) {
		t.Error("open though nobody listens")
	}
	next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	age()
	if h.isOpen(port, true) {
		t.Error("open for another program that listens on the same port")
	}
	if err := h.Open(1); !errors.Is(err, errNoListener) {
		t.Errorf("%v", err)
	}
}

// Another user's listener cannot be opened.
func TestHostPortsOfOthers(t *testing.T) {
	dir := t.TempDir()
	line := "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000 %d        0 4711 1 0 100 0 0 10 0\n"
	h := NewHostPorts(nil)
	h.proc = dir
	os.WriteFile(filepath.Join(dir, "tcp"), []byte(fmt.Sprintf(line, os.Geteuid()+1)), 0o644)
	if err := h.Open(22); err == nil || !strings.Contains(err.Error(), "not you") {
		t.Errorf("%v", err)
	}
	os.WriteFile(filepath.Join(dir, "tcp"), []byte(fmt.Sprintf(line, os.Geteuid())), 0o644)
	if err := h.Open(22); err != nil {
		t.Error(err)
	}
}

// A socket that a stranger has closed belongs to nobody, although the kernel lists it as user 0's until its connection
// has ended, and this user may be root. An IPv6 socket connected to an IPv4 address belongs to its user.
func TestOwnPeer(t *testing.T) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	// connect makes a connection with data waiting. It uses plain system calls, because the thread's user makes the
	// socket.
	connect := func(family int) int {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return -1
		}
		to := unix.Sockaddr(&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
		if family == unix.AF_INET6 {
			to = &unix.SockaddrInet6{Port: port, Addr: netip.MustParseAddr("::ffff:127.0.0.1").As16()}
		}
		if err := unix.Connect(fd, to); err != nil {
			t.Error(err)
		}
		if _, err := unix.Write(fd, []byte("let me in")); err != nil {
			t.Error(err)
		}
		return fd
	}
	is := func(what string, want bool) {
		t.Helper()
		c, err := l.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The kernel forgets the owner of a closed socket when its FIN is acknowledged, and no event reports it.
		own := fmt.Sprintf(":%04X ", c.RemoteAddr().(*net.TCPAddr).Port)
		waits := func(line string) bool {
			return strings.Contains(line, own) && strings.Contains(line, fmt.Sprintf("0100007F:%04X 04 ", port))
		}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			four, _ := os.ReadFile("/proc/net/tcp")
			six, _ := os.ReadFile("/proc/net/tcp6")
			if !slices.ContainsFunc(strings.Split(string(four)+string(six), "\n"), waits) {
				break
			}
		}
		if OwnPeer(c) != want {
			t.Errorf("%s: own is %v", what, !want)
		}
	}
	for family, name := range map[int]string{unix.AF_INET: "IPv4", unix.AF_INET6: "IPv6"} {
		fd := connect(family)
		is(name+", open", true)
		unix.Close(fd)
		fd = connect(family)
		unix.Shutdown(fd, unix.SHUT_WR)
		is(name+", sending no more", true)
		unix.Close(fd)
		unix.Close(connect(family))
		is(name+", closed", false)
		if os.Getuid() != 0 {
			continue
		}
		nobody.Do(t, func() { fd = connect(family) })
		is(name+", a stranger's", false)
		unix.Close(fd)
		nobody.Do(t, func() { unix.Close(connect(family)) })
		is(name+", closed by a stranger", false)
	}
}
