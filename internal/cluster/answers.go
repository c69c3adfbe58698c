package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

// What clients ask the owner for, apart from programs in VMs: a stream each. The other end is in package client.

// whileThere returns a context that ends with the client of s.
func whileThere(s *channel.Stream) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-s.Gone():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// reply answers a client that waits for something to be done, by a value that it has asked for.
func reply(s *channel.Stream, key, value string, err error) {
	if err != nil {
		s.Reset(err.Error())
		return
	}
	s.Send(channel.Fields{{Key: key, Value: value}})
	<-s.Gone()
}

// replyJSON answers a client by v as JSON.
func replyJSON(s *channel.Stream, v any, err error) {
	if err != nil {
		s.Reset(text.CleanLines(err.Error()))
		return
	}
	if err := json.NewEncoder(s).Encode(v); err != nil {
		s.Close()
		return
	}
	s.CloseWrite(channel.LaneData)
	<-s.Gone() // the client has read it
}

// serveVerify answers nearmetal verify.
func (c *Cluster) serveVerify(s *channel.Stream) {
	if c.Record().State != state.Ready {
		s.Reset("the cluster is not ready")
		return
	}
	ctx, cancel := whileThere(s)
	defer cancel()
	r, err := c.vms.Verify(ctx)
	replyJSON(s, r, err)
}

// serveLoad answers nearmetal top.
func (c *Cluster) serveLoad(s *channel.Stream) {
	ctx, cancel := whileThere(s)
	defer cancel()
	list, err := c.vms.Usage(ctx, s.Header().Get("nodes") == "1")
	replyJSON(s, list, err)
}

// serveHold answers nearmetal pause and nearmetal resume: the hold stays when the client has gone.
func (c *Cluster) serveHold(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	stop := f.Get("stop")
	reply(s, "done", stop, c.vms.Hold(context.Background(), stop == "1"))
}

// serveRestart answers nearmetal restart. A client that goes does not end the restart.
func (c *Cluster) serveRestart(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	vm := f.Get("of")
	reply(s, "done", vm, c.vms.Restart(context.Background(), vm))
}

// serveRename answers nearmetal rename.
func (c *Cluster) serveRename(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	err = c.rename(f.Get("name"))
	reply(s, "name", c.Name(), err)
}

// rename changes the name of a cluster that is kept.
func (c *Cluster) rename(name string) error {
	if err := spec.CheckName(name); err != nil {
		return err
	}
	if !c.Record().Kept {
		return fmt.Errorf("cluster %s belongs to the command that started it: only one of nearmetal up can be renamed", c.Name())
	}
	return c.vms.Rename(name)
}

// serveConsole answers a client that asks for a VM's console.
func (c *Cluster) serveConsole(s *channel.Stream) {
	vm, follow := s.Header().Get("of"), s.Header().Get("follow") == "1"
	ctx, cancel := whileThere(s)
	defer cancel()
	r := c.Record()
	if _, err := r.FindVM(vm); err != nil || vm == "" {
		s.Reset("no such VM")
		return
	}
	c.vms.Console(ctx, vm, follow, s)
	s.CloseWrite(channel.LaneData)
	<-s.Gone()
}

// serveAwait answers a client that waits for a condition of the record.
func (c *Cluster) serveAwait(s *channel.Stream) {
	what := s.Header().Get(client.KeyFor)
	met := map[string]func(*state.Record) bool{
		client.ForJoined:  func(r *state.Record) bool { return r.Joined() == nil },
		client.ForReached: func(r *state.Record) bool { return r.DevicesUnreached() == "" },
	}[what]
	if met == nil {
		s.Reset("unknown condition")
		return
	}
	ctx, cancel := whileThere(s)
	defer cancel()
	if _, err := c.own.Await(ctx, met); err != nil {
		return // the client has gone
	}
	reply(s, client.KeyFor, what, nil)
}
