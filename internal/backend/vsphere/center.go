package vsphere

import (
	"context"
	"sync"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"
)

// center is a session, with its hub, that the drivers of one process share. A cluster's end removes many objects one
// after the other, each by a driver of its own, with a single login.
type center struct {
	*Session
	hub   *hub
	users int
	key   string

	mu    sync.Mutex
	ended map[string]bool // marks of objects that this process has ended
	hosts map[string]chan struct{}
}

var (
	centersMu sync.Mutex
	centers   = map[string]*center{}
)

// provisioning is how many VMs of one host are cloned, configured, started or ended at a time. vCenter's own limit is
// eight.
const provisioning = 8

// openCenter logs in, or shares an existing session of this process. The caller closes it.
func openCenter(ctx context.Context, a *Access) (*center, error) {
	key := a.user + "@" + a.server
	centersMu.Lock()
	defer centersMu.Unlock()
	if c := centers[key]; c != nil && c.hub.err() == nil {
		c.users++
		return c, nil
	}
	s, err := Login(ctx, a)
	if err != nil {
		return nil, err
	}
	c := &center{Session: s, hub: newHub(s), users: 1, key: key, ended: map[string]bool{}, hosts: map[string]chan struct{}{}}
	centers[key] = c
	return c, nil
}

// release ends the session with its last user.
func (c *center) release() error {
	centersMu.Lock()
	defer centersMu.Unlock()
	if c.users--; c.users > 0 {
		return nil
	}
	if centers[c.key] == c {
		delete(centers, c.key)
	}
	c.hub.close()
	return c.Session.Close()
}

// slot waits for a free slot of a host; the caller calls the result to free it.
func (c *center) slot(ctx context.Context, host string) (func(), error) {
	c.mu.Lock()
	s := c.hosts[host]
	if s == nil {
		s = make(chan struct{}, provisioning)
		c.hosts[host] = s
	}
	c.mu.Unlock()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// setEnded records that this process has ended the object with this mark; hasEnded reports it.
func (c *center) setEnded(mark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[mark] = true
}

func (c *center) hasEnded(mark string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[mark]
}

// isGone reports whether err means that an object no longer exists.
func isGone(err error) bool {
	var f *types.ManagedObjectNotFound
	if _, ok := fault.As(err, &f); ok {
		return true
	}
	return false
}

// isState reports whether err means that an object was already in the requested state.
func isState(err error) bool {
	var f *types.InvalidPowerState
	_, ok := fault.As(err, &f)
	return ok
}
