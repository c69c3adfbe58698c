package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// A VM stops (its time stands still) while everything that runs in it is to be
// stopped. Clients that run something in a VM and may be suspended hold a stream of kind
// "pause" for as long as it runs; a VM stops when all that hold one for it have asked for
// it, and goes on as soon as one asks for that, or ends.

// pauses are the holders of one VM.
type pauses struct {
	mu      sync.Mutex
	holders map[any]bool // wants it stopped; the keys are the holders
	stopped bool
}

// pauseTimeout bounds a command to the backend.
const pauseTimeout = 10 * time.Second

// ServePause serves one holder.
func (m *VMs) ServePause(s *channel.Stream) {
	ctx := context.Background()
	first, err := s.Receive(ctx)
	if err != nil {
		return
	}
	var v *vm
	for _, x := range m.vms {
		if x.plan.Name == first.Get("of") {
			v = x
		}
	}
	if v == nil {
		s.Reset("no such VM")
		return
	}
	v.pauses.set(v, s, false)
	defer v.pauses.drop(v, s)
	for {
		f, err := s.Receive(ctx)
		if err != nil {
			return
		}
		v.pauses.set(v, s, f.Get("stop") == "1")
		if s.Send(channel.Fields{{Key: "done", Value: f.Get("stop")}}) != nil {
			return
		}
	}
}

// set notes whether a holder wants v stopped, and stops it if all do.
func (p *pauses) set(v *vm, holder any, stop bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == nil {
		p.holders = map[any]bool{}
	}
	p.holders[holder] = stop
	return p.apply(v, p.all())
}

// drop forgets a holder. A VM that only it kept running stops with that, one that nobody holds goes on.
func (p *pauses) drop(v *vm, holder any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holders, holder)
	return p.apply(v, p.stopped && p.all())
}

// all says whether there are holders, and every one wants the VM stopped.
func (p *pauses) all() bool {
	for _, stop := range p.holders {
		if !stop {
			return false
		}
	}
	return len(p.holders) > 0
}

// apply stops the VM or lets it go on.
func (p *pauses) apply(v *vm, stop bool) error {
	i := v.instance()
	if stop == p.stopped || i == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	do := i.Resume
	if stop {
		do = i.Pause
	}
	if err := do(ctx); err != nil {
		return err
	}
	p.stopped = stop
	return nil
}

// owner is the holder that stands for the process that owns the cluster, user the one that stands for its user.
type (
	owner struct{}
	user  struct{}
)

// Pause stops all VMs, so that they take nothing from what runs on the host, until Resume. It fails
// where a VM cannot be stopped, or a client of the cluster keeps it running.
func (m *VMs) Pause() error { return m.pause(owner{}) }

// pause stops all VMs for a holder.
func (m *VMs) pause(holder any) error {
	for _, v := range m.vms {
		err := v.pauses.set(v, holder, true)
		if err == nil && !v.pauses.held() && v.instance() != nil {
			err = errors.New("a client keeps it running")
		}
		if err != nil {
			m.resume(holder)
			return fmt.Errorf("cannot stop %s: %w", v.plan.Name, err)
		}
	}
	return nil
}

// held says whether the VM is stopped.
func (p *pauses) held() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped
}

// Resume lets VMs that Pause has stopped go on.
func (m *VMs) Resume() error { return m.resume(owner{}) }

// resume lets VMs that are stopped for a holder go on.
func (m *VMs) resume(holder any) error {
	for _, v := range m.vms {
		if err := v.pauses.drop(v, holder); err != nil {
			return fmt.Errorf("cannot let %s go on: %w", v.plan.Name, err)
		}
	}
	return nil
}

// Hold stops the VMs for their user (nearmetal pause), or lets them go on. A VM that has ended neither stops nor goes on.
func (m *VMs) Hold(_ context.Context, stop bool) error {
	m.holding.Lock()
	defer m.holding.Unlock()
	if m.own.Record().State != state.Ready {
		return errors.New("the cluster is not ready")
	}
	do := m.resume
	if stop {
		do = m.pause
	}
	if err := do(user{}); err != nil {
		return err
	}
	return m.own.Write(func(r *state.Record) { r.Paused = stop })
}
