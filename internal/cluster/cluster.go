// Package cluster is the life of a cluster: up, ready, down.
//
// The process that starts a cluster owns it: it has the cluster's lock, so that its death, however it comes, frees the lock,
// and ends the VMs where the backend says so (backend.Caps.DiesWithOwner); where it does not, the journal leads to them.
// nearmetal run owns its cluster itself; nearmetal up leaves a small supervisor behind that does. Every other command reaches
// the owner through the cluster's control socket (package client).
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

// Start is what a cluster is started from, and Events are called while it starts.
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
	here  *local.VMs // vms, where they are on this host; else nil

	down   sync.Once
	asked  chan struct{} // closed when somebody asks for the cluster's end
	askOne sync.Once
}

// machines are the VMs of a cluster, wherever they are.
type machines interface {
	// Lost gets an error for each VM that ends by itself, and Died is closed when the last has ended.
	Lost() <-chan error
	Died() <-chan struct{}
	// Admit returns the policy of the switchboard, over next.
	Admit(next local.Policy) local.Policy
	Verify(ctx context.Context) (*verify.Report, error)
	Usage(ctx context.Context, nodes bool) ([]load.VM, error)
	Hold(ctx context.Context, stop bool) error
	Rename(name string) error
	Restart(ctx context.Context, vm string) error
	Console(ctx context.Context, vm string, follow bool, w io.Writer) error
	// Stop ends the VMs: with their help while ctx lasts, or at once.
	Stop(ctx context.Context, help bool) error
}

var _, _ machines = (*local.VMs)(nil), (*fleet.Fleet)(nil)

// Owned returns the cluster as this process owns it: its directory, its journal, its record.
func (c *Cluster) Owned() *state.Owned { return c.own }

// Board returns what passes streams to the VMs.
func (c *Cluster) Board() *channel.Switchboard { return c.board }

// Name returns the name of the cluster.
func (c *Cluster) Name() string { return c.own.Name() }

// Record returns a copy of the cluster's record.
func (c *Cluster) Record() state.Record { return c.own.Record() }

// Asked is closed when a client asked for the cluster's end (nearmetal down).
func (c *Cluster) Asked() <-chan struct{} { return c.asked }

// Died is closed when the last VM has ended.
func (c *Cluster) Died() <-chan struct{} { return c.vms.Died() }

// Lost gets an error for each VM that ends before Down; it names the VM.
func (c *Cluster) Lost() <-chan error { return c.vms.Lost() }

// Timings of the start, one per VM on this host.
func (c *Cluster) Timings() []start.Timings {
	if c.here == nil {
		return nil
	}
	return c.here.Timings()
}

// Pause stops all VMs on this host, so that they take nothing from what runs there, until Resume. It fails where a VM cannot
// be stopped, or a client of the cluster keeps it running.
func (c *Cluster) Pause() error {
	if c.here == nil {
		return nil
	}
	return c.here.Pause()
}

// Resume lets VMs that Pause has stopped go on.
func (c *Cluster) Resume() error {
	if c.here == nil {
		return nil
	}
	return c.here.Resume()
}
