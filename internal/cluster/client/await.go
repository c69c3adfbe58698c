package client

import (
	"context"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// KindAwait is the kind of the streams on which clients wait until a condition of the record is true. The header's
// field KeyFor names the condition: ForJoined or ForReached.
const (
	KindAwait  = "await"
	KeyFor     = "for"
	ForJoined  = "joined"
	ForReached = "reached"
)

// await waits until the owner reports that a condition is true, or ctx ends.
func (c *Client) await(ctx context.Context, what string) error {
	s, err := c.Mux().Open(KindAwait, channel.Fields{{Key: KeyFor, Value: what}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Receive(ctx)
	return err
}

// AwaitJoined waits until the VMs of all hosts of the cluster's overlay are reachable. If ctx ends first, the error
// names a host whose VMs are not.
func (c *Client) AwaitJoined(ctx context.Context) error {
	err := c.await(ctx, ForJoined)
	if err != nil && ctx.Err() != nil {
		r, ferr := state.Find(c.Record.Name)
		if ferr != nil {
			return ferr
		}
		return r.Joined()
	}
	return err
}

// AwaitReached waits until the devices of all hosts' VMs have answered, or ctx ends. It then returns one line that
// names those that have not; "" if all have, or if there are no devices.
func (c *Client) AwaitReached(ctx context.Context) (string, error) {
	err := c.await(ctx, ForReached)
	if err != nil && ctx.Err() != nil {
		r, ferr := state.Find(c.Record.Name)
		if ferr != nil {
			return "", ferr
		}
		return r.DevicesUnreached(), nil
	}
	return "", err
}
