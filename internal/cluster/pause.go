package cluster

import (
	"context"
	"sync"
	"time"

	"nearmetal/internal/guest/channel"
)

// A VM stops (QMP stop: its time stands still) while everything that runs in it is to be
// stopped. Clients that run something in a VM and may be suspended hold a stream of kind
// "pause" for as long as it runs; a VM stops when all that hold one for it have asked for
// it, and goes on as soon as one asks for that, or ends.

// pauses are the holders of one VM.
type pauses struct {
	mu      sync.Mutex
	holders map[*channel.Stream]bool // wants it stopped
	stopped bool
}

// pauseTimeout bounds a command to QEMU's monitor.
const pauseTimeout = 10 * time.Second

// servePause serves one holder.
func (c *Cluster) servePause(s *channel.Stream) {
	ctx := context.Background()
	first, err := s.Receive(ctx)
	if err != nil {
		return
	}
	var v *vm
	for _, x := range c.vms {
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

func (p *pauses) set(v *vm, s *channel.Stream, stop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == nil {
		p.holders = map[*channel.Stream]bool{}
	}
	p.holders[s] = stop
	if !stop {
		p.apply(v, false)
		return
	}
	p.apply(v, p.all())
}

func (p *pauses) drop(v *vm, s *channel.Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holders, s)
	p.apply(v, p.stopped && len(p.holders) > 0 && p.all())
}

// all tells whether every holder wants the VM stopped.
func (p *pauses) all() bool {
	for _, stop := range p.holders {
		if !stop {
			return false
		}
	}
	return true
}

// apply stops the VM or lets it go on. A VM that is gone does neither.
func (p *pauses) apply(v *vm, stop bool) {
	if stop == p.stopped {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	do := v.qemu.QMP().Cont
	if stop {
		do = v.qemu.QMP().Stop
	}
	if do(ctx) == nil {
		p.stopped = stop
	}
}

// Pauser holds a VM's pauses for something that runs in it.
type Pauser struct{ s *channel.Stream }

// Pauser gives one for the VM; Close it when what it is for has ended.
func (c *Client) Pauser(vm string) (*Pauser, error) {
	s, err := c.Mux().Open("pause", nil)
	if err != nil {
		return nil, err
	}
	if err := s.Send(channel.Fields{{Key: "of", Value: vm}}); err != nil {
		s.Close()
		return nil, err
	}
	return &Pauser{s}, nil
}

// Pause says whether the VM is to stop, and returns when the owner has taken note.
func (p *Pauser) Pause(stop bool) error {
	value := "0"
	if stop {
		value = "1"
	}
	if err := p.s.Send(channel.Fields{{Key: "stop", Value: value}}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pauseTimeout)
	defer cancel()
	_, err := p.s.Receive(ctx)
	return err
}

// Close ends the hold.
func (p *Pauser) Close() error { return p.s.Close() }
