package client

import (
	"context"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// KindAwait is the kind of the streams by which clients wait until a condition of the record is true. The header's field
// KeyFor names it: one of ForJoined and ForReached.
const (
	KindAwait  = "await"
	KeyFor     = "for"
	ForJoined  = "joined"
	ForReached = "reached"
)

// await waits until the owner says that a condition is true, or ctx ends.
func (c *Client) await(ctx context.Context, what string) error {
	s, err := c.Mux().Open(KindAwait, channel.Fields{{Key: KeyFor, Value: what}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Receive(ctx)
	return err
}

// AwaitJoined waits until the VMs of all hosts of the cluster's overlay can be reached. When ctx ends before, the error says
// which cannot.
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

// AwaitReached waits until the devices of all hosts' VMs have answered, or ctx ends; then it returns in one line which
// have not. "": all have, or there are none.
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
