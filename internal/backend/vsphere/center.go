package vsphere

import (
	"context"
	"sync"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/vim25/types"
)

// center is a session that the drivers of one process share, with its hub. A cluster's end asks for many things one after the other,
// each by a driver of its own: they have one login.
type center struct {
	*Session
	hub   *hub
	users int
	key   string

	mu    sync.Mutex
	ended map[string]bool // marks of what this process has ended
	hosts map[string]chan struct{}
}

var (
	centersMu sync.Mutex
	centers   = map[string]*center{}
)

// provisioning is how many VMs of one host are cloned, set, started or ended at a time. vCenter itself takes eight.
const provisioning = 8

// openCenter logs in, or shares a session that this process has. The caller closes it.
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

// slot waits for a turn on a host; the caller calls what it returns.
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

// setEnded notes that what has this mark was ended by this process; hasEnded says so.
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

// isGone says that an object is not there any more.
func isGone(err error) bool {
	var f *types.ManagedObjectNotFound
	if _, ok := fault.As(err, &f); ok {
		return true
	}
	return false
}

// isState says that an object was already in the state that was asked for.
func isState(err error) bool {
	var f *types.InvalidPowerState
	_, ok := fault.As(err, &f)
	return ok
}
