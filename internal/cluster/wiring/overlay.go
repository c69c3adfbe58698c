package wiring

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/network"
)

// A job of a batch system may have a cluster on each of its hosts. An overlay joins these clusters: their VMs share
// one network with addresses and names that are unique over all hosts, and each VM is reachable from every host's
// control socket. All hosts know the whole overlay in advance, from the job's list of hosts and its secret; they
// exchange only frames and streams.

// Overlay describes the hosts of a job, as each of them knows them in advance.
type Overlay struct {
	Secret []byte        `json:"secret"` // 32 bytes, the job's own
	Hosts  []OverlayHost `json:"hosts"`
	Self   int           `json:"self"`  // index of this host in Hosts
	Ports  [2]int        `json:"ports"` // lowest and highest port to listen on
}

// OverlayHost is a host of an overlay.
type OverlayHost struct {
	Name string   `json:"name"`
	Addr string   `json:"addr"` // by which the other hosts reach it
	VMs  []string `json:"vms"`  // names, in the order of their numbers
	// Sizes are the VMs' sizes; none: those of this host's VMs.
	Sizes []VMSize `json:"sizes,omitempty"`
}

// VMSize is the size of a VM of an overlay's host.
type VMSize struct {
	VCPUs       int    `json:"vcpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	Devices     int    `json:"devices,omitempty"` // functions passed through
}

// Kinds of connections between hosts.
const (
	kindFrames  = "frames"
	kindStreams = "streams"
)

// names returns the names of all VMs, host by host; first is the index of this host's first VM.
func (t *Overlay) names() (all []string, first int) {
	for i, h := range t.Hosts {
		if i == t.Self {
			first = len(all)
		}
		all = append(all, h.VMs...)
	}
	return all, first
}

// Joined is this host's end of an overlay in use.
type Joined struct {
	*Overlay
	own    *state.Owned
	board  *channel.Switchboard
	net    *network.Overlay
	addrs  [][]network.Address  // of each host's VMs
	ends   []*os.File           // of the switch, for each host; nil for this one
	frames []chan *network.Link // for each host: the connections that it has opened

	news  sync.Mutex // protects ready and down; held until their change is in the record
	ready []bool     // for each host: it is joined and not given up
	down  []int      // for each host: number of links that have lost their connection

	// changed holds a value while the record on disk is older than the one in memory.
	changed chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
}

// wire creates the switch with its ends: those of this host's VMs, and those of the overlay's other hosts.
func (t *Joined) wire(w *Net, ends *[]*os.File) error {
	var others [][]network.Address
	for i, of := range t.addrs {
		if i != t.Self {
			others = append(others, of)
		}
	}
	sw, all, err := network.NewSwitch(w.addrs, others...)
	if err != nil {
		return err
	}
	w.sw, *ends = sw, all[:len(w.addrs)]
	rest := all[len(w.addrs):]
	for i := range t.addrs {
		if i == t.Self {
			t.ends = append(t.ends, nil)
			continue
		}
		t.ends, rest = append(t.ends, rest[0]), rest[1:]
	}
	return nil
}

// Start starts the overlay of the cluster own: it listens, connects to the other hosts, and makes their VMs reachable
// through board. It returns immediately.
func (t *Joined) Start(own *state.Owned, board *channel.Switchboard) error {
	t.own, t.board = own, board
	o := network.OverlayOptions{Secret: t.Secret, Self: t.Self, LowPort: t.Ports[0], HighPort: t.Ports[1],
		Serve: t.serveHost, State: t.linkState}
	for _, h := range t.Hosts {
		o.Hosts = append(o.Hosts, network.OverlayHost{Name: h.Name, Addr: h.Addr})
		t.frames, t.down, t.ready = append(t.frames, make(chan *network.Link)), append(t.down, 0), append(t.ready, false)
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.changed = make(chan struct{}, 1)
	var err error
	if t.net, err = network.NewOverlay(o); err != nil {
		return err
	}
	if err := t.own.Write(func(r *state.Record) { r.Overlay = t.record(r) }); err != nil {
		return err
	}
	go t.writeHosts()
	for i := range t.Hosts {
		if i != t.Self {
			go t.carry(i)
		}
	}
	return nil
}

// record returns the overlay's entry in the record.
func (t *Joined) record(r *state.Record) []state.RecordHost {
	var list []state.RecordHost
	for i, h := range t.Hosts {
		rh := state.RecordHost{Name: h.Name, Addr: h.Addr, Self: i == t.Self, Joined: i == t.Self}
		for k, name := range h.VMs {
			a := t.addrs[i][k]
			// The hosts of a batch system's job run equally many VMs, of equal size.
			own := r.VMs[min(k, len(r.VMs)-1)]
			if k < len(h.Sizes) {
				own.VCPUs, own.MemoryBytes = h.Sizes[k].VCPUs, h.Sizes[k].MemoryBytes
			}
			rh.VMs = append(rh.VMs, state.VMRecord{Name: name, VCPUs: own.VCPUs, MemoryBytes: own.MemoryBytes, IP: a.IP.String(),
				Subnet: a.Prefix.String(), Uplink: own.Uplink, State: state.Ready})
		}
		list = append(list, rh)
	}
	return list
}

// serveHost serves a connection that another host has opened.
func (t *Joined) serveHost(host int, kind string, conn *network.Link) {
	switch kind {
	case kindFrames:
		select {
		case t.frames[host] <- conn:
			<-t.ctx.Done() // carry uses conn until then
		case <-t.ctx.Done():
		case <-time.After(10 * time.Second): // the host has a connection already
		}
	case kindStreams:
		if m, err := t.board.Client(conn, channel.Fields{{Key: "cluster", Value: t.own.Name()}}); err == nil {
			<-m.Done()
		}
	}
}

// carry joins the switch to a host. The host with the lower number connects.
func (t *Joined) carry(host int) {
	end, err := net.FileConn(t.ends[host])
	t.ends[host].Close()
	if err != nil {
		t.hostState(host, false, err)
		return
	}
	defer end.Close()
	var conn *network.Link
	if t.Self < host {
		conn, err = t.net.Dial(t.ctx, host, kindFrames, func(err error) { t.hostState(host, false, err) })
	} else {
		select {
		case conn = <-t.frames[host]:
		case <-t.ctx.Done():
			err = t.ctx.Err()
		}
	}
	if err != nil {
		return // the cluster ends
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	if err := t.streams(ctx, host); err != nil {
		t.hostState(host, false, err)
		conn.Close()
		return
	}
	t.hostReady(host, true)
	network.Carry(end, conn)
	t.hostReady(host, false)
}

// hostReady records that a host is joined, or that it is given up.
func (t *Joined) hostReady(host int, ready bool) {
	t.news.Lock()
	defer t.news.Unlock()
	t.ready[host] = ready
	switch {
	case !ready:
		t.hostState(host, false, errors.New("the connection to it has broken"))
	case t.down[host] == 0:
		t.hostState(host, true, nil)
	}
}

// streams makes a host's VMs reachable until ctx ends. The connection is opened with the first stream, because a
// launcher needs one to each host, but the hosts need none among each other.
func (t *Joined) streams(ctx context.Context, host int) error {
	m, err := channel.New(t.net.DialLater(ctx, host, kindStreams), channel.Options{Name: "host " + t.Hosts[host].Name, Initiator: true, Quiet: true})
	if err != nil {
		return err
	}
	for _, name := range t.Hosts[host].VMs {
		t.board.AddRemote(name, m)
	}
	return nil
}

// linkState is called with an error when a link to a host has lost its connection, and with nil when it has another.
// A host with a lost link is not joined, and steps that need it wait. If the other host reconnects at once, the two
// calls may come in the wrong order; therefore only the number of links that are down after each call counts.
func (t *Joined) linkState(host int, kind string, err error) {
	t.news.Lock()
	defer t.news.Unlock()
	if err != nil {
		t.down[host]++
	} else {
		t.down[host]--
	}
	switch {
	case t.down[host] == 0 && t.ready[host]:
		t.hostState(host, true, nil)
	case err != nil:
		t.hostState(host, false, fmt.Errorf("the connection for %s was lost and is being made again: %w", kind, err))
	}
}

// hostState notes in the record whether a host is joined.
func (t *Joined) hostState(host int, joined bool, why error) {
	text := ""
	if why != nil {
		text = why.Error()
	}
	t.changeHost(host, func(h *state.RecordHost) { h.Joined, h.Why = joined, text })
}

// changeHost changes a host's entry in the record, in memory. writeHosts writes it to disk.
func (t *Joined) changeHost(host int, change func(*state.RecordHost)) {
	if t.ctx.Err() != nil {
		return
	}
	differs := t.own.Note(func(r *state.Record) bool {
		was := r.Overlay[host]
		now := was
		change(&now)
		if now.Joined == was.Joined && now.Why == was.Why && now.DevicesReached == was.DevicesReached && now.DeviceFault == was.DeviceFault {
			return false
		}
		r.Overlay = slices.Clone(r.Overlay) // copies of the record share it
		r.Overlay[host] = now
		return true
	})
	if differs {
		select {
		case t.changed <- struct{}{}:
		default: // a write is pending already
		}
	}
}

// writeHosts writes the record after hosts have changed, and combines changes that arrive during a write: a record of
// 1,000 hosts is large, and the hosts join within seconds. It returns when the cluster ends.
func (t *Joined) writeHosts() {
	for {
		select {
		case <-t.changed:
			t.own.Write(nil)
		case <-t.ctx.Done():
			return
		}
	}
}

// close ends the overlay.
func (t *Joined) close() {
	if t == nil {
		return
	}
	for _, f := range t.ends {
		if f != nil {
			f.Close()
		}
	}
	if t.net != nil {
		t.stop()
		t.net.Close()
	}
}
