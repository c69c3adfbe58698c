// Package client sends requests to the owner of a cluster: through its control socket, or through the connection to a
// part on another host.
package client

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
)

// Client is a connection to a cluster's owner.
type Client struct {
	*guest.Client
	Record state.Record // as of the connection
}

// New returns a client for a connection that a cluster's owner, or a part of it, serves. rec is the cluster's record.
func New(g *guest.Client, rec state.Record) *Client { return &Client{g, rec} }

// Connect connects to the owner of the cluster called name (see state.Find for an empty name).
func Connect(ctx context.Context, name string) (*Client, error) {
	r, err := state.Find(name)
	if err != nil {
		return nil, err
	}
	base, err := state.Base()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(base, r.Name, state.ControlFile))
	if err != nil {
		return nil, fmt.Errorf("cluster %s does not answer: %w", r.Name, err)
	}
	g, err := guest.Dial(ctx, conn, "cluster "+r.Name)
	if err != nil {
		return nil, err
	}
	return &Client{g, *r}, nil
}

// Running returns an error if the user has paused the cluster, because a program started in it would hang.
func (c *Client) Running() error {
	if c.Record.Paused {
		return fmt.Errorf("cluster %s is paused: nearmetal resume %[1]s", c.Record.Name)
	}
	return nil
}

// Runs reports whether the cluster still runs: its owner is alive and is not ending it.
func (c *Client) Runs() bool {
	r, err := state.Find(c.Record.Name)
	return err == nil && r.State != state.Ending
}

// Down asks the owner to end the cluster and waits until the cluster has ended.
func (c *Client) Down(ctx context.Context) error {
	s, err := c.Mux().Open("down", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	owner, err := unix.PidfdOpen(c.Record.Owner, 0)
	if err != nil {
		owner = -1 // the owner has exited already
	}
	// The owner releases the lock after everything of the cluster is removed, and exits.
	done := make(chan error, 1)
	go func() {
		err := state.AwaitEnd(c.Record.Name)
		if owner >= 0 {
			unix.Poll([]unix.PollFd{{Fd: int32(owner), Events: unix.POLLIN}}, 1000)
			unix.Close(owner)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
