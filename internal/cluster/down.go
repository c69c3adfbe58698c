package cluster

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// Down ends the cluster: the agents write back and power off, and what does not end
// within the context, or at most 10 s, is killed. A ctx that is done kills at once.
// Nothing is left afterwards.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.end(ctx, true)
}

// end ends the cluster: with the agents' help while ctx lasts, or without it at once.
func (c *Cluster) end(ctx context.Context, help bool) (err error) {
	c.down.Do(func() {
		if help {
			c.write(func(r *Record) { r.State = Ending })
			c.mu.Lock()
			if c.giveUp != nil {
				c.giveUp()
			}
			c.mu.Unlock()
			c.holding.Lock() // VMs that stand still could not end by themselves
			c.resume(user{})
			c.holding.Unlock()
		}
		var wg sync.WaitGroup
		errs := make([]error, len(c.vms))
		for i, v := range c.vms {
			wg.Add(1)
			go func() {
				defer wg.Done()
				errs[i] = v.end(ctx, help)
			}()
		}
		wg.Wait()
		far := c.endHosts(ctx, help)
		err = errors.Join(errs...)
		if c.ln != nil {
			c.ln.Close()
		}
		if c.wiring != nil {
			c.wiring.close()
		}
		if c.journal != nil {
			// What could not be ended is tried once more by its Ref; what the journal says counts.
			_, err = c.journal.UndoAll()
			c.journal.Close()
		}
		if c.driver != nil {
			c.driver.Close()
		}
		c.devices.close()
		c.again.close()
		if c.veil != nil {
			c.veil.Close()
		}
		c.mu.Lock()
		dir := c.dir
		c.dir = ""
		c.mu.Unlock()
		if err == nil { // a journal that could not be undone is kept for the next sweep
			err = os.RemoveAll(dir)
		}
		c.lock.Close()
		err = errors.Join(err, far)
	})
	return err
}

// end ends one VM: with help by its agent while ctx lasts, else by its back end.
func (v *vm) end(ctx context.Context, help bool) (err error) {
	i := v.instance()
	if i != nil && help && v.agent != nil {
		if v.agent.Poweroff(ctx) == nil {
			select {
			case <-i.Done():
			case <-ctx.Done():
			}
		}
	}
	if i != nil {
		err = v.kill()
	}
	if v.agent != nil {
		v.agent.Close()
	}
	return err
}
