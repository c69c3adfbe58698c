package cluster

import (
	"context"
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
	return c.end(ctx)
}

// end ends the cluster; without a ctx at once.
func (c *Cluster) end(ctx context.Context) (err error) {
	c.down.Do(func() {
		if ctx != nil {
			c.write(func(r *Record) { r.State = Ending })
		}
		var wg sync.WaitGroup
		for _, v := range c.vms {
			wg.Add(1)
			go func() {
				defer wg.Done()
				v.end(ctx)
			}()
		}
		wg.Wait()
		if c.ln != nil {
			c.ln.Close()
		}
		if c.wiring != nil {
			c.wiring.close()
		}
		if c.journal != nil {
			_, err = c.journal.UndoAll()
			c.journal.Close()
		}
		c.devices.close()
		c.mu.Lock()
		dir := c.dir
		c.dir = ""
		c.mu.Unlock()
		if err == nil { // a journal that could not be undone is kept for the next sweep
			err = os.RemoveAll(dir)
		}
		c.lock.Close()
	})
	return err
}

// end ends one VM: by its agent while ctx lasts, else by SIGKILL.
func (v *vm) end(ctx context.Context) {
	v.mu.Lock()
	q := v.qemu
	v.mu.Unlock()
	if q != nil && ctx != nil && v.agent != nil {
		if v.agent.Poweroff(ctx) == nil {
			select {
			case <-q.Done():
			case <-ctx.Done():
			}
		}
	}
	if q != nil {
		q.Kill()
	}
	if v.agent != nil {
		v.agent.Close()
	} else if v.channel != nil {
		v.channel.Close()
	}
}
