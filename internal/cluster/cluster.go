// Package cluster is the life of a cluster: up, ready, exec, down; the record of
// what runs, and the recovery of what a crash left.
//
// The process that starts a cluster owns it: it starts the VMs by a back end and holds the
// cluster's lock, so that its death, however it comes, frees the lock, and ends the VMs where the
// back end says so (backend.Caps.DiesWithOwner); where it does not, the journal leads to them. `nearmetal run` owns its cluster itself; `nearmetal up` leaves a small
// supervisor behind that does. Every other command reaches the owner through the
// cluster's control socket.
package cluster

import (
	"net"
	"os"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/journal"
)

// Cluster is a cluster that this process owns.
type Cluster struct {
	dir     string
	lock    *os.File
	journal *journal.Journal
	board   *channel.Switchboard
	ln      *net.UnixListener
	driver  backend.Driver
	caps    backend.Caps
	wiring  *wiring
	devices *devices      // nil: none are wanted
	veil    *isolate.Veil // what the VMs see through; nil: nothing
	groups  groups        // of isolation: strict
	started time.Time
	kept    bool // Options.Kept
	vms     []*vm
	far     *fleet     // the hosts that have the VMs; nil: they are on this host
	answers *answering // of a part, for MPI launchers at its front; else nil

	holding sync.Mutex // serveHold, serveRename and restart, one at a time
	again   *again     // nil: no VM can be started again
	giveUp  func()     // ends a restart that is under way; nil: none is. Of mu

	mu       sync.Mutex // of rec, and of dir once the cluster is ready
	rec      Record
	down     sync.Once
	asked    chan struct{} // closed when somebody asks for the cluster's end
	askOne   sync.Once
	died     chan struct{} // closed when no VM runs any more
	living   int           // VMs that are watched
	noneLeft sync.Once     // of died, where the VMs are on other hosts
	lost     chan error    // gets an error for each VM that ended by itself
}

// Name of the cluster.
func (c *Cluster) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rec.Name
}

// Record is a copy of what the cluster's record says now.
func (c *Cluster) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rec
	r.VMs = append([]VMRecord(nil), r.VMs...)
	return r
}

// Asked is closed when a client asked for the cluster's end (`nearmetal down`).
func (c *Cluster) Asked() <-chan struct{} { return c.asked }

// Died is closed when the last VM has ended.
func (c *Cluster) Died() <-chan struct{} { return c.died }

// Lost gets an error for each VM that ends before Down; it names the VM.
func (c *Cluster) Lost() <-chan error { return c.lost }

// Timings of the start, a VM each.
func (c *Cluster) Timings() []Timings {
	var t []Timings
	for _, v := range c.vms {
		t = append(t, v.timings)
	}
	return t
}

func (c *Cluster) setVM(i int, f func(*VMRecord)) {
	c.write(func(r *Record) { f(&r.VMs[i]) })
}

// write changes the record and puts it into the cluster's directory.
func (c *Cluster) write(f func(*Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f != nil {
		f(&c.rec)
	}
	if c.dir == "" {
		return nil // the cluster has ended
	}
	return c.rec.write(c.dir)
}
