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

// Answers to clients of the owner, except for programs in VMs: one stream per request. Package client has the other
// end.

// whileThere returns a context that is cancelled when the client of s closes the stream.
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

// reply answers a client that waits for an action to end: with one field, or by resetting the stream with err.
func reply(s *channel.Stream, key, value string, err error) {
	if err != nil {
		s.Reset(err.Error())
		return
	}
	s.Send(channel.Fields{{Key: key, Value: value}})
	<-s.Gone()
}

// replyJSON answers a client with v as JSON, or by resetting the stream with err.
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

// serveVerify serves nearmetal verify.
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

// serveLoad serves nearmetal top.
func (c *Cluster) serveLoad(s *channel.Stream) {
	ctx, cancel := whileThere(s)
	defer cancel()
	list, err := c.vms.Usage(ctx, s.Header().Get("nodes") == "1")
	replyJSON(s, list, err)
}

// serveHold serves nearmetal pause and nearmetal resume. The hold remains after the client has disconnected.
func (c *Cluster) serveHold(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	stop := f.Get("stop")
	reply(s, "done", stop, c.vms.Hold(context.Background(), stop == "1"))
}

// serveRestart serves nearmetal restart. The restart continues if the client disconnects.
func (c *Cluster) serveRestart(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	vm := f.Get("of")
	reply(s, "done", vm, c.vms.Restart(context.Background(), vm))
}

// serveRename serves nearmetal rename.
func (c *Cluster) serveRename(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	err = c.rename(f.Get("name"))
	reply(s, "name", c.Name(), err)
}

// rename changes the name of a kept cluster. It fails for any other cluster.
func (c *Cluster) rename(name string) error {
	if err := spec.CheckName(name); err != nil {
		return err
	}
	if !c.Record().Kept {
		return fmt.Errorf("cluster %s belongs to the command that started it: only one of nearmetal up can be renamed", c.Name())
	}
	return c.vms.Rename(name)
}

// serveConsole sends a VM's console to a client.
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

// serveAwait answers a client when a condition of the record becomes true.
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
		return // the client has disconnected
	}
	reply(s, client.KeyFor, what, nil)
}
