// Package cluster starts, serves and ends clusters.
//
// The process that starts a cluster owns it: it holds the cluster's lock. When that process dies for any reason, the
// lock is released, and the VMs end if the backend guarantees it (backend.Caps.DiesWithOwner); otherwise the next
// sweep finds them through the journal. nearmetal run owns its cluster itself; nearmetal up starts a small supervisor
// in the background that does. Every other command reaches the owner through the cluster's control socket (package
// client).
//
// The VMs are on this host (package local) or on others (package fleet).
package cluster

import (
	"context"
	"io"
	"net"
	"sync"

	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/cluster/local"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/load"
	"nearmetal/internal/verify"
)

// Start describes the cluster to start; Events are called while it starts.
type (
	Start  = start.Request
	Events = start.Events
)

// Cluster is a cluster that this process owns.
type Cluster struct {
	own   *state.Owned
	board *channel.Switchboard
	ln    *net.UnixListener
	vms   machines
	here  *local.VMs // equal to vms if they are on this host; else nil

	down   sync.Once
	asked  chan struct{} // closed when a client asks for the cluster's end
	askOne sync.Once
}

// machines are the VMs of a cluster, on this host or on others.
type machines interface {
	// Lost receives an error for each VM that ends unexpectedly; Died is closed when the last VM has ended.
	Lost() <-chan error
	Died() <-chan struct{}
	// Admit returns the policy of the switchboard, which wraps next.
	Admit(next local.Policy) local.Policy
	Verify(ctx context.Context) (*verify.Report, error)
	Usage(ctx context.Context, nodes bool) ([]load.VM, error)
	Hold(ctx context.Context, stop bool) error
	Rename(name string) error
	Restart(ctx context.Context, vm string) error
	Console(ctx context.Context, vm string, follow bool, w io.Writer) error
	// Stop ends the VMs: with the agents' help while ctx lasts, or immediately.
	Stop(ctx context.Context, help bool) error
}

var _, _ machines = (*local.VMs)(nil), (*fleet.Fleet)(nil)

// Owned returns this process's handle of the cluster: its directory, its journal and its record.
func (c *Cluster) Owned() *state.Owned { return c.own }

// Board returns the switchboard that passes streams to the VMs.
func (c *Cluster) Board() *channel.Switchboard { return c.board }

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.own.Name() }

// Record returns a copy of the cluster's record.
func (c *Cluster) Record() state.Record { return c.own.Record() }

// Asked returns a channel that is closed when a client asks for the cluster's end (nearmetal down).
func (c *Cluster) Asked() <-chan struct{} { return c.asked }

// Died returns a channel that is closed when the last VM has ended.
func (c *Cluster) Died() <-chan struct{} { return c.vms.Died() }

// Lost returns a channel that receives an error for each VM that ends before Down; the error names the VM.
func (c *Cluster) Lost() <-chan error { return c.vms.Lost() }

// Timings returns the timings of the start, one per VM on this host; nil if the VMs are on other hosts.
func (c *Cluster) Timings() []start.Timings {
	if c.here == nil {
		return nil
	}
	return c.here.Timings()
}

// Pause stops all VMs on this host, so that they use no CPU time of it, until Resume. It fails if a VM cannot be
// stopped, or if a client of the cluster keeps it running.
func (c *Cluster) Pause() error {
	if c.here == nil {
		return nil
	}
	return c.here.Pause()
}

// Resume resumes the VMs that Pause has stopped.
func (c *Cluster) Resume() error {
	if c.here == nil {
		return nil
	}
	return c.here.Resume()
}
