package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/load"
	"nearmetal/internal/verify"
)

// maxReport bounds a report, in bytes: 1,024 VMs of 64 vCPUs produce about 20 MB.
const maxReport = 256 << 20

// Verify asks the owner to compare the cluster's VMs and guests with the plan, and returns its report.
func (c *Client) Verify(ctx context.Context) (*verify.Report, error) {
	s, err := c.Mux().Open("verify", nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	r := &verify.Report{}
	err = json.NewDecoder(io.LimitReader(s, maxReport)).Decode(r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("cluster %s ended meanwhile", c.Record.Name)
	}
	return r, err
}

// maxLoadBytes bounds the owner's answer to Usage, in bytes.
const maxLoadBytes = 16 << 20

// Usage asks the cluster's owner for the VMs' use of their hosts; with nodes also for the NUMA nodes of their memory.
func (c *Client) Usage(ctx context.Context, nodes bool) ([]load.VM, error) {
	var h channel.Fields
	if nodes {
		h.Add("nodes", "1")
	}
	s, err := c.Mux().Open("load", h)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	text, err := io.ReadAll(io.LimitReader(s, maxLoadBytes))
	if err != nil {
		return nil, err
	}
	var list []load.VM
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("invalid answer of the cluster's owner: %w", err)
	}
	return list, nil
}

// Restart ends a VM of the cluster and starts it again. It returns when the VM is ready.
func (c *Client) Restart(ctx context.Context, vm string) error {
	return c.order(ctx, "restart", channel.Fields{{Key: "of", Value: vm}})
}

// Rename changes the name of the cluster. It returns when the owner has renamed it.
func (c *Client) Rename(ctx context.Context, name string) error {
	return c.order(ctx, "rename", channel.Fields{{Key: "name", Value: name}})
}

// order asks the owner to do something, and returns when that is done.
func (c *Client) order(ctx context.Context, kind string, h channel.Fields) error {
	s, err := c.Mux().Open(kind, nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(h); err != nil {
		return err
	}
	_, err = s.Receive(ctx)
	return err
}

// Console copies the console of a VM from the cluster's owner to w; see Logs.
func (c *Client) Console(ctx context.Context, vm string, follow bool, w io.Writer) error {
	h := channel.Fields{{Key: "of", Value: vm}}
	if follow {
		h.Add("follow", "1")
	}
	s, err := c.Mux().Open("console", h)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	_, err = io.Copy(state.Harmless(w), s)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
