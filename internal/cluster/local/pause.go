package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
)

// A VM is stopped (its clock stands still) while every program in it should be stopped. A client that runs a program
// in a VM and may be suspended holds a stream of kind "pause" as long as the program runs. The VM stops when all its
// holders have asked for it, and resumes as soon as one asks for that, or ends.

// pauses are the holders of one VM.
type pauses struct {
	mu      sync.Mutex
	holders map[any]bool     // holder to whether it wants the VM stopped
	stopped backend.Instance // nil: the VM runs; an earlier instance than the VM's: a restart has ended it
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

// set notes whether a holder wants v stopped, and stops v if all do.
func (p *pauses) set(v *vm, holder any, stop bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == nil {
		p.holders = map[any]bool{}
	}
	p.holders[holder] = stop
	return p.apply(v, p.all())
}

// drop removes a holder. The VM is stopped if others remain and all of them want that, and else runs.
func (p *pauses) drop(v *vm, holder any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holders, holder)
	return p.apply(v, p.all())
}

// reset removes all holders and resumes the VM, whose programs a restart is about to end. A VM that does not resume is
// killed by the restart.
func (p *pauses) reset(v *vm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holders = nil
	p.apply(v, false)
}

// all reports whether there are holders, and all of them want the VM stopped.
func (p *pauses) all() bool {
	for _, stop := range p.holders {
		if !stop {
			return false
		}
	}
	return len(p.holders) > 0
}

// apply stops or resumes the VM, unless that is its state already.
func (p *pauses) apply(v *vm, stop bool) error {
	i := v.instance()
	if i == nil || stop == (p.stopped == i) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	if stop {
		if err := i.Pause(ctx); err != nil {
			return err
		}
		p.stopped = i
		return nil
	}
	if err := i.Resume(ctx); err != nil {
		return err
	}
	p.stopped = nil
	return nil
}

// owner represents the process that owns the cluster as a holder, user represents the cluster's user.
type (
	owner struct{}
	user  struct{}
)

// Pause stops all VMs, so that they use no CPU time of the host, until Resume. It fails if a VM cannot be stopped, or
// if a client of the cluster keeps it running.
func (m *VMs) Pause() error { return m.pause(owner{}) }

// pause stops all VMs for a holder.
func (m *VMs) pause(holder any) error {
	for _, v := range m.vms {
		err := v.pauses.set(v, holder, true)
		if err == nil && !v.pauses.held(v) && v.instance() != nil {
			err = errors.New("a client keeps it running")
		}
		if err != nil {
			m.resume(holder)
			return fmt.Errorf("cannot stop %s: %w", v.plan.Name, err)
		}
	}
	return nil
}

// held reports whether v is stopped.
func (p *pauses) held(v *vm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped != nil && p.stopped == v.instance()
}

// Resume resumes the VMs that Pause has stopped.
func (m *VMs) Resume() error { return m.resume(owner{}) }

// resume resumes the VMs that are stopped for a holder.
func (m *VMs) resume(holder any) error {
	for _, v := range m.vms {
		if err := v.pauses.drop(v, holder); err != nil {
			return fmt.Errorf("cannot let %s go on: %w", v.plan.Name, err)
		}
	}
	return nil
}

// Hold stops the VMs for their user (nearmetal pause), or resumes them. VMs that have ended are skipped.
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
