package cluster

import (
	"context"
	"errors"
	"time"

	"nearmetal/internal/cluster/state"
)

// Down ends the cluster: the agents write back and power off, and what does not end
// within the context, or at most 10 s, is killed. A ctx that is done kills at once.
// Nothing is left afterwards.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.end(ctx, true)
}

// Kill ends the cluster without the agents' help, at once.
func (c *Cluster) Kill(ctx context.Context) error { return c.end(ctx, false) }

// end ends the cluster: with the agents' help while ctx lasts, or without it at once.
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
		// What could not be ended is tried once more by its Ref; what the journal says counts.
		undone := c.own.Undo()
		if c.here != nil {
			c.here.Close()
			stopped = nil
		}
		if undone == nil {
			undone = c.own.Remove()
		} else {
			c.own.Leave() // the journal is kept for the next sweep
		}
		err = errors.Join(undone, stopped)
	})
	return err
}
