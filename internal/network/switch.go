package network

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	ethernetHeader = 14 // bytes: two MACs and a type
	// maxFrame is the largest frame in bytes: MaxMTU, the Ethernet header and a VLAN tag (IEEE 802.1Q). QEMU's stream
	// netdev accepts 69632 (NET_BUFSIZE in include/net/net.h) and puts no virtio-net header before a frame, so that
	// guests segment by the MTU.
	maxFrame  = MaxMTU + ethernetHeader + 4
	lengthLen = 4 // bytes before each frame: its length, big-endian

	readBuffer = 128 << 10 // bytes of each port's reader: at least one frame
	queueBytes = 1 << 20   // bytes of frames waiting for each port
	writeChunk = 128 << 10 // bytes of one write from the queue
)

// ErrFrameLength reports that a VM announced a frame of an invalid length.
var ErrFrameLength = errors.New("announced a frame that is too long")

// Switch forwards Ethernet frames between the VMs of a cluster. Each VM has one port with one MAC, fixed when the
// switch is made. The switch does not learn addresses: it refuses frames from any other MAC, and frames to a MAC that
// no port has. A VM that does not read loses frames once its queue is full and delays no other VM.
//
// A port may also lead to another host's switch, and represent all VMs there. Frames from such a host are forwarded to
// this host's VMs only, because the hosts of a job are all connected to each other.
type Switch struct {
	ports []*port
	byMAC map[[6]byte]*port
	wg    sync.WaitGroup
}

// PortStats counts the frames and bytes of one VM's port since the start.
type PortStats struct {
	Name                string
	FramesIn, BytesIn   uint64 // from the VM, without refused ones
	FramesOut, BytesOut uint64 // to the VM, queued ones included
	Dropped             uint64 // frames to the VM for which the queue had no room
	Refused             uint64 // frames from the VM: truncated, not from its MAC, or to nobody
	Err                 error  // why the port ended: io.EOF if the VM closed it, nil while it is open
}

type port struct {
	name string
	host bool // leads to another host
	file *os.File
	raw  interface {
		Write(f func(fd uintptr) bool) error
	}
	try func(fd uintptr) bool // writes direct; made once, so that a frame allocates nothing

	mu     sync.Mutex
	wake   *sync.Cond // the queue is no longer empty, or the port ended
	queue  []byte     // a ring
	head   int        // index of the oldest byte in queue
	used   int        // bytes in queue
	err    error      // set once: the port ended
	direct []byte     // the bytes that try is to write
	wrote  int        // the number of bytes that try wrote

	framesIn, bytesIn, framesOut, bytesOut, dropped, refused atomic.Uint64
}

// NewSwitch starts a switch with a port for each address and returns, in their order, the ends for the QEMUs (as with
// Pair), which the caller closes once the QEMUs have them. They are followed by one end for each other host, which has
// the VMs of one list of addresses.
func NewSwitch(addrs []Address, hosts ...[]Address) (*Switch, []*os.File, error) {
	s := &Switch{byMAC: make(map[[6]byte]*port, len(addrs))}
	var ends []*os.File
	fail := func(err error) (*Switch, []*os.File, error) {
		for _, f := range ends {
			f.Close()
		}
		for _, p := range s.ports {
			p.file.Close()
		}
		return nil, nil, err
	}
	add := func(name string, host bool, of []Address) error {
		ours, theirs, err := Pair()
		if err != nil {
			return err
		}
		ends = append(ends, theirs)
		p, err := newPort(name, ours)
		if err != nil {
			ours.Close()
			return err
		}
		p.host = host
		s.ports = append(s.ports, p)
		for _, a := range of {
			if len(a.MAC) != 6 {
				return fmt.Errorf("network: %s has no MAC", a.Name)
			}
			m := [6]byte(a.MAC)
			if m[0]&1 != 0 || s.byMAC[m] != nil {
				return fmt.Errorf("network: the MAC %s of %s is a multicast one or not the only one", a.MAC, a.Name)
			}
			s.byMAC[m] = p
		}
		return nil
	}
	for i := range addrs {
		if err := add(addrs[i].Name, false, addrs[i:i+1]); err != nil {
			return fail(err)
		}
	}
	for i, of := range hosts {
		if err := add(fmt.Sprint("host ", i), true, of); err != nil {
			return fail(err)
		}
	}
	for _, p := range s.ports {
		s.wg.Add(2)
		go func() { defer s.wg.Done(); s.receive(p) }()
		go func() { defer s.wg.Done(); p.send() }()
	}
	return s, ends, nil
}

func newPort(name string, f *os.File) (*port, error) {
	file, err := pollable(f)
	if err != nil {
		return nil, err
	}
	p := &port{name: name, file: file, queue: make([]byte, queueBytes)}
	p.wake = sync.NewCond(&p.mu)
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, fmt.Errorf("network: %w", err)
	}
	p.try = func(fd uintptr) bool {
		n, err := unix.SendmsgN(int(fd), p.direct, nil, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		if err == nil {
			p.wrote = n
		}
		return true // never wait: the queue holds the rest
	}
	return p, nil
}

// pollable returns a non-blocking copy of f for which the runtime can wait, so that Close wakes its readers. It closes
// f unless it fails.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	name := f.Name()
	f.Close()
	return os.NewFile(uintptr(fd), name), nil
}

// Close ends all ports and waits until all goroutines of the switch have ended.
func (s *Switch) Close() error {
	for _, p := range s.ports {
		p.end(os.ErrClosed)
	}
	s.wg.Wait()
	return nil
}

// Stats returns the counters of all ports, in the order of the addresses.
func (s *Switch) Stats() []PortStats {
	out := make([]PortStats, len(s.ports))
	for i, p := range s.ports {
		p.mu.Lock()
		err := p.err
		p.mu.Unlock()
		out[i] = PortStats{p.name, p.framesIn.Load(), p.bytesIn.Load(), p.framesOut.Load(), p.bytesOut.Load(),
			p.dropped.Load(), p.refused.Load(), err}
	}
	return out
}

// receive reads frames from one VM until its port ends.
func (s *Switch) receive(p *port) {
	buf := make([]byte, readBuffer)
	have := 0
	for {
		n, err := p.file.Read(buf[have:])
		if err != nil {
			p.end(err)
			return
		}
		have += n
		rest, err := s.forward(p, buf[:have])
		if err != nil {
			p.end(err)
			return
		}
		have = copy(buf, rest)
	}
}

// forward forwards the whole frames in b and returns the rest. Consecutive frames to the same port are written as one
// piece, because b already has the format in which they are written.
func (s *Switch) forward(from *port, b []byte) ([]byte, error) {
	var to *port // destination of the frames in run, 0 to runEnd of b
	run, runEnd := b, 0
	flush := func() {
		if runEnd > 0 {
			to.put(run[:runEnd])
		}
	}
	for {
		rest := run[runEnd:]
		if len(rest) < lengthLen {
			flush()
			return rest, nil
		}
		n := binary.BigEndian.Uint32(rest)
		if n > maxFrame {
			flush()
			return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrFrameLength, n, maxFrame)
		}
		if len(rest) < lengthLen+int(n) {
			flush()
			return rest, nil
		}
		whole := rest[:lengthLen+int(n)]
		frame := whole[lengthLen:]
		var dst *port
		multicast := false
		ok := n >= ethernetHeader && s.byMAC[[6]byte(frame[6:12])] == from
		if ok {
			multicast = frame[0]&1 != 0
			dst = s.byMAC[[6]byte(frame[:6])]
			ok = multicast || dst != nil && dst != from && !(from.host && dst.host)
		}
		if ok {
			from.framesIn.Add(1)
			from.bytesIn.Add(uint64(n))
		} else {
			from.refused.Add(1)
		}
		if ok && !multicast && (runEnd == 0 || dst == to) {
			to = dst
			runEnd += len(whole)
			continue
		}
		flush()
		if ok && multicast {
			for _, p := range s.ports {
				if p != from && !(from.host && p.host) {
					p.put(whole)
				}
			}
		}
		run, runEnd = rest[len(whole):], 0
		if ok && !multicast {
			run, runEnd, to = rest, len(whole), dst
		}
	}
}

// put writes frames, each preceded by its length, to the VM if its queue is empty, and queues what cannot be written at
// once. It drops frames for which the queue has no room.
func (p *port) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	empty := p.used == 0
	skip := 0 // bytes of the first frame that are already written
	if empty {
		p.direct, p.wrote = b, 0
		p.raw.Write(p.try) // the reader or the writer reports the error
		skip = p.wrote
		p.direct = nil
	}
	for len(b) > 0 {
		n := lengthLen + int(binary.BigEndian.Uint32(b))
		done := min(skip, n)
		skip -= done
		if p.enqueue(b[done:n]) {
			p.framesOut.Add(1)
			p.bytesOut.Add(uint64(n - lengthLen))
		} else {
			p.dropped.Add(1)
		}
		b = b[n:]
	}
	if empty && p.used > 0 {
		p.wake.Signal()
	}
}

// enqueue appends b to the queue, as a whole or not at all. It reports whether there was room.
func (p *port) enqueue(b []byte) bool {
	if len(b) > len(p.queue)-p.used {
		return false
	}
	at := (p.head + p.used) % len(p.queue)
	n := copy(p.queue[at:], b)
	copy(p.queue, b[n:])
	p.used += len(b)
	return true
}

// send writes the queue to the VM until the port ends.
func (p *port) send() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.used == 0 && p.err == nil {
			p.wake.Wait()
		}
		if p.err != nil {
			return
		}
		// These bytes count as used until they are written, so that nothing overwrites them or writes past them.
		b := p.queue[p.head:min(p.head+min(p.used, writeChunk), len(p.queue))]
		p.mu.Unlock()
		_, err := p.file.Write(b)
		p.mu.Lock()
		if err != nil {
			p.endLocked(err)
		}
		if p.err != nil {
			return
		}
		p.head = (p.head + len(b)) % len(p.queue)
		p.used -= len(b)
	}
}

// end ends the port for the reason err; the first reason is kept.
func (p *port) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(err)
}

func (p *port) endLocked(err error) {
	if p.err != nil {
		return
	}
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = io.EOF // a QEMU that was killed while frames were on their way to it
	}
	p.err = err
	p.queue, p.head, p.used = nil, 0, 0
	p.wake.Broadcast()
	p.file.Close()
}
