package network

import (
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"sync"
)

// Filter filters frames between a VM's card and QEMU's user network (slirp), which would forward a frame to any port of
// this host's loopback. It passes ARP and IPv4: to this host only TCP to open ports and echo requests, to the user
// network's own name server only DNS, to other addresses TCP, UDP and echo requests. It passes no fragments and no IP
// options, because slirp would reassemble packets that the filter has not seen. It refuses a forbidden connection at
// once. Frames from the user network pass unfiltered.
type Filter struct {
	ports      *HostPorts
	subnet     netip.Prefix
	dns        netip.Addr
	card, host *os.File
	mu         sync.Mutex // guards writes to card
	wg         sync.WaitGroup
}

// NewFilter starts a filter and returns the ends of its links for QEMU (see Pair): card for the VM's card, host for the
// user network. subnet is the user network's, in which address 2 is the host and 3 the name server. The caller closes
// both ends once QEMU has them.
func NewFilter(ports *HostPorts, subnet netip.Prefix) (f *Filter, card, host *os.File, err error) {
	subnet = subnet.Masked()
	f = &Filter{ports: ports, subnet: subnet, dns: subnet.Addr().Next().Next().Next()}
	var ends []*os.File
	for range 2 {
		raw, theirs, err := Pair()
		var ours *os.File
		if err == nil {
			ends = append(ends, theirs)
			if ours, err = pollable(raw); err != nil {
				raw.Close()
			}
		}
		if err != nil {
			for _, e := range append(ends, f.card) {
				if e != nil {
					e.Close()
				}
			}
			return nil, nil, nil, err
		}
		if f.card == nil {
			f.card = ours
		} else {
			f.host = ours
		}
	}
	f.wg.Add(2)
	go func() { defer f.wg.Done(); f.carry(f.card, f.host, nil, f.passOrRefuse) }()
	go func() { defer f.wg.Done(); f.carry(f.host, f.card, &f.mu, func([]byte) bool { return true }) }()
	return f, ends[0], ends[1], nil
}

// Close ends the filter, which also ends when the VM does.
func (f *Filter) Close() {
	f.card.Close()
	f.host.Close()
	f.wg.Wait()
}

// carry forwards frames until an end closes. It holds mu while it writes one; nil means that nothing else writes.
func (f *Filter) carry(from, to *os.File, mu *sync.Mutex, pass func(frame []byte) bool) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, lengthLen+maxFrame)
	for {
		if _, err := io.ReadFull(from, buf[:lengthLen]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(buf)
		if n > maxFrame {
			return
		}
		whole := buf[:lengthLen+n]
		if _, err := io.ReadFull(from, whole[lengthLen:]); err != nil {
			return
		}
		if !pass(whole[lengthLen:]) {
			continue
		}
		if mu != nil {
			mu.Lock()
		}
		_, err := to.Write(whole)
		if mu != nil {
			mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// passOrRefuse is pass, and also answers the start of a forbidden connection with a refusal.
func (f *Filter) passOrRefuse(frame []byte) bool {
	if f.pass(frame) {
		return true
	}
	if r := refusal(frame); r != nil {
		f.mu.Lock()
		f.card.Write(r) // a later read reports the error
		f.mu.Unlock()
	}
	return false
}

// refusal returns the answer to a TCP packet that starts a connection: RST, preceded by its length. It returns nil for
// any other frame.
func refusal(frame []byte) []byte {
	const ip, tcp = ethernetHeader, ethernetHeader + ipHeader
	if len(frame) < tcp+tcpHeader || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 || frame[ip] != 0x45 ||
		frame[ip+9] != protoTCP || frame[tcp+13]&(flagSYN|flagACK) != flagSYN {
		return nil
	}
	out := make([]byte, lengthLen+tcp+tcpHeader)
	binary.BigEndian.PutUint32(out, tcp+tcpHeader)
	r := out[lengthLen:]
	copy(r, frame[6:12])
	copy(r[6:], frame[:6])
	copy(r[12:], frame[12:14])
	copy(r[ip:], []byte{0x45, 0, 0, ipHeader + tcpHeader, 0, 0, 0, 0, 64, protoTCP})
	copy(r[ip+12:], frame[ip+16:ip+20])
	copy(r[ip+16:], frame[ip+12:ip+16])
	binary.BigEndian.PutUint16(r[ip+10:], internetSum(r[ip:tcp], 0))
	copy(r[tcp:], frame[tcp+2:tcp+4])
	copy(r[tcp+2:], frame[tcp:tcp+2])
	binary.BigEndian.PutUint32(r[tcp+8:], binary.BigEndian.Uint32(frame[tcp+4:])+1)
	r[tcp+12], r[tcp+13] = tcpHeader/4<<4, flagRST|flagACK
	// The sum also covers addresses, protocol and length (RFC 9293).
	pseudo := ^internetSum(r[ip+12:tcp], protoTCP+tcpHeader)
	binary.BigEndian.PutUint16(r[tcp+16:], internetSum(r[tcp:], uint32(pseudo)))
	return out
}

// internetSum returns the checksum of RFC 1071 over b, of even length, added to sum.
func internetSum(b []byte, sum uint32) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Protocol numbers of IEEE 802 and IANA.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	protoICMP = 1
	protoTCP  = 6
	protoUDP  = 17

	ipHeader    = 20 // bytes, without options
	tcpHeader   = 20
	dnsPort     = 53
	echoRequest = 8
	flagSYN     = 2
	flagRST     = 4
	flagACK     = 16
)

// pass reports whether a frame of the guest may be sent to the user network.
func (f *Filter) pass(frame []byte) bool {
	if len(frame) < ethernetHeader {
		return false
	}
	p := frame[ethernetHeader:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		return true
	case etherIPv4:
	default:
		return false
	}
	if len(p) < ipHeader || p[0] != 0x45 {
		return false
	}
	total := int(binary.BigEndian.Uint16(p[2:]))
	if total < ipHeader || total > len(p) || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		return false
	}
	dst := netip.AddrFrom4([4]byte(p[16:20]))
	return f.passIP(p[9], dst, p[ipHeader:total])
}

// passIP reports whether an IP packet with payload p may be sent to the user network.
func (f *Filter) passIP(proto byte, dst netip.Addr, p []byte) bool {
	var port uint16
	switch {
	case proto == protoTCP && len(p) >= 20, proto == protoUDP && len(p) >= 8:
		port = binary.BigEndian.Uint16(p[2:])
	case proto == protoICMP && len(p) >= 8 && p[0] == echoRequest:
	default:
		return false
	}
	switch {
	case dst == f.dns:
		return proto == protoICMP || port == dnsPort
	case f.isHost(dst):
		return proto == protoICMP || proto == protoTCP && f.ports.isOpen(port, p[13]&flagSYN != 0)
	}
	return true
}

// isHost reports whether slirp or the host itself treats an address as this host. Addresses that belong to no single
// machine count as this host.
func (f *Filter) isHost(a netip.Addr) bool {
	first := a.As4()[0]
	return f.subnet.Contains(a) || a.IsLoopback() || first == 0 || first >= 224 || a.IsLinkLocalUnicast() || f.ports.isOwn(a)
}
