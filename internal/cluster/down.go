package cluster

import (
	"context"
	"errors"
	"time"

	"nearmetal/internal/cluster/state"
)

// Down ends the cluster: the agents write back and power off; VMs that have not ended when ctx is done, or after 10 s
// at most, are killed. If ctx is already done, they are killed immediately. Nothing of the cluster is left
// afterwards.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.end(ctx, true)
}

// Kill ends the cluster immediately, without the agents' help.
func (c *Cluster) Kill(ctx context.Context) error { return c.end(ctx, false) }

// end ends the cluster: with the agents' help while ctx lasts, or immediately without it.
func (c *Cluster) end(ctx context.Context, help bool) (err error) {
	c.down.Do(func() {
		if help {
			c.own.Write(func(r *state.Record) { r.State = state.Ending })
			if c.here != nil {
				c.here.Interrupt()
			}
		}
		stopped := c.vms.Stop(ctx, help)
		if c.ln != nil {
			c.ln.Close()
		}
		// Undo tries once more, by its Ref, to end each VM that Stop could not; only its result counts.
		undone := c.own.Undo()
		if c.here != nil {
			c.here.Close()
			stopped = nil
		}
		if undone == nil {
			undone = c.own.Remove()
		} else {
			c.own.Leave() // keeps the journal for the next sweep
		}
		err = errors.Join(undone, stopped)
	})
	return err
}
