package cluster

import (
	"context"
	"io"
	"os"
	"time"

	"nearmetal/internal/cluster/fleet"
	"nearmetal/internal/cluster/local"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// Up starts a cluster and waits until every VM is ready. If it fails, or ctx ends first, nothing is left of the
// cluster. The caller finally calls Down.
func Up(ctx context.Context, s Start, ev Events) (*Cluster, error) { return up(ctx, s, ev, nil) }

// HostPart runs the part on this host of a cluster over several hosts, whose front communicates over in and out; see
// fleet.HostPart.
func HostPart(in io.Reader, out io.Writer) error {
	return fleet.HostPart(in, out, func(ctx context.Context, s Start, ev Events, answer func(uint16) error) (fleet.Part, error) {
		c, err := up(ctx, s, ev, answer)
		if err != nil {
			return nil, err
		}
		return c, nil
	})
}

// up is Up; answer makes a part listen on a launcher's port of its front; nil: the cluster is not a part.
func up(ctx context.Context, s Start, ev Events, answer func(uint16) error) (*Cluster, error) {
	if s.BootTimeout == 0 {
		s.BootTimeout = 5 * time.Minute
	}
	if s.Spec.Name == "" {
		s.Spec.Name = state.MakeName()
	}
	own, err := state.Create(state.Record{Name: s.Spec.Name, State: state.Booting, Backend: s.Spec.Backend, Owner: os.Getpid(), Command: s.Command,
		Created: time.Now().UTC().Truncate(time.Second), Spec: s.Spec, Life: state.Life{Kept: s.Kept}, Across: state.Across{Part: s.Part}})
	if err != nil {
		return nil, err
	}
	c := &Cluster{own: own, board: channel.NewSwitchboard(), asked: make(chan struct{})}
	if len(s.Spec.Placement.Hosts) > 0 {
		err = c.upFar(ctx, s, ev)
	} else {
		err = c.upHere(ctx, s, ev, answer)
	}
	if err != nil {
		c.end(ctx, false)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause // the failure is only a consequence of the interruption
		}
		return nil, err
	}
	return c, nil
}

// upHere starts the VMs on this host.
func (c *Cluster) upHere(ctx context.Context, s Start, ev Events, answer func(uint16) error) error {
	c.here = local.New(c.own, c.board, answer)
	c.vms = c.here
	c.board.Policy = c.here.Admit(local.OwnPolicy().Check)
	if err := c.here.Prepare(ctx, s, ev); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	return c.here.Boot(ctx)
}

// upFar starts the VMs on other hosts.
func (c *Cluster) upFar(ctx context.Context, s Start, ev Events) error {
	f := fleet.New(c.own, c.board, s.Spec)
	c.vms = f
	c.board.Policy = f.Admit(local.OwnPolicy().Check)
	if err := f.Up(ctx, s, ev); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}
	if s.Verbose {
		r := c.Record()
		for _, w := range r.Ways() {
			ev.Note(w.String())
		}
	}
	return c.own.Write(func(r *state.Record) { r.State = state.Ready })
}
