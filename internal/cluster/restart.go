package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/region"
)

// A VM of a cluster that is kept can be started again, also after it has ended: with the same plan, so on the same
// CPUs and memory nodes, with its devices, its place in the network, and the region. The journal names its process
// before it starts, as at the first time; claims and bindings of its devices stay meanwhile, so nobody else takes them.

// again is what starting a VM once more needs.
type again struct {
	p   *prepared
	o   Options
	reg *region.Region // nil: there is none
}

func (a *again) close() {
	if a == nil {
		return
	}
	a.p.close()
	if a.reg != nil {
		a.reg.Close()
	}
}

// restartGrace is how long a VM may take to write back and power off before it is killed.
const restartGrace = 10 * time.Second

// restart ends the VM called name, if it runs, and starts it again; it returns when the VM is ready. One that does not
// become ready stays ended.
func (c *Cluster) restart(ctx context.Context, name string) error {
	c.holding.Lock()
	defer c.holding.Unlock()
	r := c.Record()
	var v *vm
	for _, x := range c.vms {
		if x.plan.Name == name {
			v = x
		}
	}
	switch {
	case c.far != nil:
		return fmt.Errorf("cluster %s has its VMs on several hosts: they cannot be restarted one by one", r.Name)
	case v == nil:
		_, err := r.FindVM(name)
		return err
	case !c.kept:
		return fmt.Errorf("cluster %s belongs to the command that started it: only a VM of nearmetal up can be restarted", r.Name)
	case !c.caps.DiesWithOwner:
		return fmt.Errorf("VMs of back end %s cannot be restarted", r.Backend)
	case c.again == nil || r.State != Ready:
		return errors.New("the cluster is not ready")
	case c.groups.parent != "":
		return fmt.Errorf("cluster %s has isolation: strict: its VMs cannot be restarted one by one", r.Name)
	case r.Paused:
		return fmt.Errorf("cluster %s is paused: nearmetal resume %[1]s", r.Name)
	case !c.watchMore():
		return errors.New("no VM of the cluster runs any more: it is ending")
	}
	if err := c.leave(ctx, v); err != nil {
		c.watchLess()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.again.o.BootTimeout, &tooLate{name + " was", c.again.o})
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if !c.stopBy(func() { giveUp(errors.New("the cluster is ending")) }) {
		c.watchLess()
		return errors.New("the cluster is ending")
	}
	defer c.stopBy(nil)
	err := c.wiring.again(v.index)
	if err == nil {
		err = c.start(ctx, v, c.again.o.Spec, c.again.p, c.again.reg)
	}
	if err != nil {
		end := "it could not be started again: " + err.Error()
		c.board.EndVM(name, name+": "+end)
		c.setVM(v.index, func(r *VMRecord) { r.State, r.PID, r.Ended = Dead, 0, end })
		c.watchLess()
		return err
	}
	i, noted := v.current()
	go c.watchOne(v, i, noted, nil)
	go func() {
		select {
		case <-i.Done():
			giveUp(v.ended(" while it booted"))
		case <-ctx.Done():
		}
	}()
	if err := c.await(ctx, v); err != nil {
		return errors.Join(err, v.kill())
	}
	if c.again.o.NoVerify {
		return nil
	}
	return c.verifyStart(ctx, c.again.o, c.again.p.accel)
}

// leave ends a VM that is to be started again, if it runs, and forgets what it was.
func (c *Cluster) leave(ctx context.Context, v *vm) error {
	i := v.instance()
	v.mu.Lock()
	v.leaving, v.why = i, nil
	v.mu.Unlock()
	c.board.EndVM(v.plan.Name, v.plan.Name+" is being restarted")
	c.setVM(v.index, func(r *VMRecord) {
		r.State, r.PID, r.ReadyNs, r.Ended, r.Devices = Booting, 0, 0, "", nil
	})
	ctx, cancel := context.WithTimeout(ctx, restartGrace)
	defer cancel()
	if err := v.end(ctx, true); err != nil {
		return err
	}
	<-i.Done()
	v.mu.Lock()
	v.agent, v.timings = nil, Timings{VM: v.plan.Name}
	v.mu.Unlock()
	return nil
}

// stopBy notes what ends a restart when the cluster is to end; false: it is ending already.
func (c *Cluster) stopBy(giveUp func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveUp = giveUp
	return c.rec.State == Ready
}

// serveRestart answers `nearmetal restart`. A client that goes does not end the restart.
func (c *Cluster) serveRestart(s *channel.Stream) {
	f, err := s.Receive(context.Background())
	if err != nil {
		return
	}
	if err := c.restart(context.Background(), f.Get("of")); err != nil {
		s.Reset(err.Error())
		return
	}
	s.Send(channel.Fields{{Key: "done", Value: f.Get("of")}})
	<-s.Gone()
}

// Restart ends a VM of the cluster and starts it again. It returns when the VM is ready.
func (c *Client) Restart(ctx context.Context, vm string) error {
	s, err := c.Mux().Open("restart", nil)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Send(channel.Fields{{Key: "of", Value: vm}}); err != nil {
		return err
	}
	_, err = s.Receive(ctx)
	return err
}
