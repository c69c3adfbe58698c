package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/network"
)

// A job of a batch system may have a cluster on each of its hosts. An overlay makes one network of
// theirs, whose VMs have addresses and names of their own over all hosts, and makes each VM
// reachable from every host's control socket. All hosts know all of it beforehand, from
// the job's list of hosts and its secret; nothing is exchanged but frames and streams.

// Overlay is what Up gets to know of the other hosts.
type Overlay struct {
	Secret []byte        `json:"secret"` // 32 bytes, the job's own
	Hosts  []OverlayHost `json:"hosts"`
	Self   int           `json:"self"`  // which of the hosts this is
	Ports  [2]int        `json:"ports"` // lowest and highest to listen on
}

// OverlayHost is a host of an overlay.
type OverlayHost struct {
	Name string   `json:"name"`
	Addr string   `json:"addr"` // by which the other hosts reach it
	VMs  []string `json:"vms"`  // names, in the order of their numbers
	// Sizes are the VMs'; none: those of this host's.
	Sizes []VMSize `json:"sizes,omitempty"`
}

// VMSize is what a VM of an overlay's host has.
type VMSize struct {
	VCPUs       int    `json:"vcpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	Devices     int    `json:"devices,omitempty"` // functions passed through
}

// RecordHost is another host of the cluster's overlay, in its record.
type RecordHost struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Self   bool   `json:"self,omitempty"` // it is this host
	Joined bool   `json:"joined"`
	Why    string `json:"why,omitempty"` // not joined: the last reason
	// DevicesReached: the devices of its VMs have answered those of this host's. DeviceFault says why not.
	DevicesReached bool       `json:"devicesReached,omitempty"`
	DeviceFault    string     `json:"deviceFault,omitempty"`
	VMs            []VMRecord `json:"vms"`
}

// Kinds of connections between hosts.
const (
	kindFrames  = "frames"
	kindStreams = "streams"
)

// names are those of all VMs, host by host; first is the number of this host's first.
func (t *Overlay) names() (all []string, first int) {
	for i, h := range t.Hosts {
		if i == t.Self {
			first = len(all)
		}
		all = append(all, h.VMs...)
	}
	return all, first
}

// overlayLinks is an overlay in force.
type overlayLinks struct {
	*Overlay
	net    *network.Overlay
	addrs  [][]network.Address  // of each host's VMs
	ends   []*os.File           // of the switch, for each host; nil for this one
	frames []chan *network.Link // for each host: those that it has made
	ready  []bool               // for each host: it was joined, and is no longer given up (under Cluster.mu)
	down   []int                // for each host: links that have lost their connection (under Cluster.mu)
	news   sync.Mutex           // held from a change of ready or down until the record has it
	// changed holds a word while the record on disk is older than the one in memory.
	changed chan struct{}
	ctx     context.Context
	stop    context.CancelFunc
}

// wire makes the switch with its ends: those of this host's VMs, and the overlay's.
func (t *overlayLinks) wire(w *wiring, ends *[]*os.File) error {
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

// joinHosts starts the overlay: it listens, and calls the other hosts. It returns at once.
func (c *Cluster) joinHosts() error {
	t := c.wiring.overlay
	if t == nil {
		return nil
	}
	o := network.OverlayOptions{Secret: t.Secret, Self: t.Self, LowPort: t.Ports[0], HighPort: t.Ports[1],
		Serve: c.serveHost, State: c.linkState}
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
	if err := c.write(func(r *Record) { r.Overlay = t.record(r) }); err != nil {
		return err
	}
	go c.writeHosts()
	for i := range t.Hosts {
		if i != t.Self {
			go c.carry(i)
		}
	}
	return nil
}

// record is the overlay as the record has it.
func (t *overlayLinks) record(r *Record) []RecordHost {
	var list []RecordHost
	for i, h := range t.Hosts {
		rh := RecordHost{Name: h.Name, Addr: h.Addr, Self: i == t.Self, Joined: i == t.Self}
		for k, name := range h.VMs {
			a := t.addrs[i][k]
			// The hosts of a batch system's job have VMs of one kind: as many, and as large.
			own := r.VMs[min(k, len(r.VMs)-1)]
			if k < len(h.Sizes) {
				own.VCPUs, own.MemoryBytes = h.Sizes[k].VCPUs, h.Sizes[k].MemoryBytes
			}
			rh.VMs = append(rh.VMs, VMRecord{Name: name, VCPUs: own.VCPUs, MemoryBytes: own.MemoryBytes, IP: a.IP.String(),
				Subnet: a.Prefix.String(), Uplink: own.Uplink, State: Ready})
		}
		list = append(list, rh)
	}
	return list
}

// serveHost takes a connection that another host has made.
func (c *Cluster) serveHost(host int, kind string, conn *network.Link) {
	t := c.wiring.overlay
	switch kind {
	case kindFrames:
		select {
		case t.frames[host] <- conn:
			<-t.ctx.Done() // carry has it
		case <-t.ctx.Done():
		case <-time.After(10 * time.Second): // it has one already
		}
	case kindStreams:
		if m, err := c.board.Client(conn, channel.Fields{{Key: "cluster", Value: c.Name()}}); err == nil {
			<-m.Done()
		}
	}
}

// carry joins the switch to a host: the host with the lower number calls.
func (c *Cluster) carry(host int) {
	t := c.wiring.overlay
	end, err := net.FileConn(t.ends[host])
	t.ends[host].Close()
	if err != nil {
		c.hostState(host, false, err)
		return
	}
	defer end.Close()
	var conn *network.Link
	if t.Self < host {
		conn, err = t.net.Dial(t.ctx, host, kindFrames, func(err error) { c.hostState(host, false, err) })
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
	if err := c.streams(ctx, host); err != nil {
		c.hostState(host, false, err)
		conn.Close()
		return
	}
	c.hostReady(host, true)
	network.Carry(end, conn)
	c.hostReady(host, false)
}

// hostReady says that a host was joined, or that it is given up.
func (c *Cluster) hostReady(host int, ready bool) {
	t := c.wiring.overlay
	t.news.Lock()
	defer t.news.Unlock()
	c.mu.Lock()
	t.ready[host] = ready
	whole := t.down[host] == 0
	c.mu.Unlock()
	switch {
	case !ready:
		c.hostState(host, false, errors.New("the connection to it has broken"))
	case whole:
		c.hostState(host, true, nil)
	}
}

// streams makes a host's VMs reachable until ctx ends. The connection for it is made with the first stream: a launcher
// needs one to each host, and the hosts among each other none.
func (c *Cluster) streams(ctx context.Context, host int) error {
	t := c.wiring.overlay
	m, err := channel.New(t.net.DialLater(ctx, host, kindStreams), channel.Options{Name: "host " + t.Hosts[host].Name, Initiator: true, Quiet: true})
	if err != nil {
		return err
	}
	for _, name := range t.Hosts[host].VMs {
		c.board.AddRemote(name, m)
	}
	return nil
}

// AwaitJoined waits until the VMs of all hosts of a cluster's overlay can be reached, or says which
// cannot. It returns the record as it stands then.
func AwaitJoined(ctx context.Context, name string) (*Record, error) {
	for {
		r, err := Find(name)
		if err != nil {
			return nil, err
		}
		if err = r.Joined(); err == nil {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// linkState hears of a link to a host that has lost its connection, and with nil that it has another. A host
// without one is not joined: steps that need it wait meanwhile. Of a link that the other host makes again at once the news
// may come in the wrong order: what counts is how many links are down after each.
func (c *Cluster) linkState(host int, kind string, err error) {
	t := c.wiring.overlay
	t.news.Lock()
	defer t.news.Unlock()
	c.mu.Lock()
	if err != nil {
		t.down[host]++
	} else {
		t.down[host]--
	}
	down, ready := t.down[host], t.ready[host]
	c.mu.Unlock()
	switch {
	case down == 0 && ready:
		c.hostState(host, true, nil)
	case err != nil:
		c.hostState(host, false, fmt.Errorf("the connection for %s was lost and is being made again: %w", kind, err))
	}
}

// hostState notes in the record whether a host is joined.
func (c *Cluster) hostState(host int, joined bool, why error) {
	text := ""
	if why != nil {
		text = why.Error()
	}
	c.changeHost(host, func(h *RecordHost) { h.Joined, h.Why = joined, text })
}

// changeHost changes what the record has of a host. writeHosts puts it on disk.
func (c *Cluster) changeHost(host int, change func(*RecordHost)) {
	t := c.wiring.overlay
	if t.ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	was := c.rec.Overlay[host]
	now := was
	change(&now)
	same := now.Joined == was.Joined && now.Why == was.Why && now.DevicesReached == was.DevicesReached && now.DeviceFault == was.DeviceFault
	if !same {
		c.rec.Overlay = append([]RecordHost(nil), c.rec.Overlay...)
		c.rec.Overlay[host] = now
	}
	c.mu.Unlock()
	if !same {
		select {
		case t.changed <- struct{}{}:
		default: // it is to be written as it is
		}
	}
}

// writeHosts writes the record when hosts have changed, all that changed meanwhile at once: a record of 1,000 hosts is
// large, and they join within seconds. It returns when the cluster ends.
func (c *Cluster) writeHosts() {
	t := c.wiring.overlay
	for {
		select {
		case <-t.changed:
			c.write(nil)
		case <-t.ctx.Done():
			return
		}
	}
}

// close ends the overlay.
func (t *overlayLinks) close() {
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

// Everywhere are the VMs of the cluster and of the other hosts of its overlay, host by host.
func (r *Record) Everywhere() []VMRecord {
	if len(r.Overlay) == 0 {
		return r.VMs
	}
	var list []VMRecord
	for _, h := range r.Overlay {
		if h.Self {
			list = append(list, r.VMs...)
		} else {
			list = append(list, h.VMs...)
		}
	}
	return list
}

// Joined says which host of the overlay is not joined yet, nil for none.
func (r *Record) Joined() error {
	for _, h := range r.Overlay {
		if !h.Joined {
			why := h.Why
			if why == "" {
				why = "it has not called yet"
			}
			return fmt.Errorf("the VMs of host %s (%s) cannot be reached: %s", h.Name, h.Addr, why)
		}
	}
	return nil
}

// Here reports whether VM number i of Everywhere is on this host.
func (r *Record) Here(i int) bool {
	for _, h := range r.Overlay {
		n := len(h.VMs)
		if i < n {
			return h.Self
		}
		i -= n
	}
	return true
}

// HostAddress is the address of this host for VMs of the overlay's other hosts, in a subnet as long as
// their uplink's: that by which the hosts themselves reach it. Where all of them are one machine that
// is its loopback, which in a VM is the VM's own: there it is the uplink's.
func (r *Record) HostAddress() netip.Prefix {
	for _, h := range r.Overlay {
		if !h.Self {
			continue
		}
		ips, err := net.LookupIP(h.Addr)
		for _, ip := range ips {
			if a, ok := netip.AddrFromSlice(ip.To4()); ok && err == nil && !a.IsLoopback() {
				return netip.PrefixFrom(a, UplinkHost.Bits())
			}
		}
	}
	return UplinkHost
}
