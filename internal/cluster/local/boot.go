package local

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/image"
)

// tooLate is the error of VMs that were not ready within the boot timeout.
type tooLate struct {
	what string // subject of the message, such as "the VMs were"
	o    options
}

func (e *tooLate) Error() string {
	by := "--boot-timeout"
	if e.o.Limited {
		by = "boot_timeout in Slurm's plugstack.conf"
	}
	return fmt.Sprintf("%s not ready after %v (%s)", e.what, e.o.BootTimeout, by)
}

// Is makes the error match context.DeadlineExceeded, so that callers can tell a timeout from other failures.
func (e *tooLate) Is(err error) bool { return err == context.DeadlineExceeded }

// Boot starts the prepared VMs and waits until they are ready and match the plan. If it fails, or ctx ends first, the
// caller stops and closes them.
func (m *VMs) Boot(ctx context.Context) error {
	p, o, reg := m.restart.p, m.restart.o, m.restart.reg
	o.events.At(start.StageBoot, 0, len(m.vms))
	ctx, cancel := context.WithTimeoutCause(ctx, o.BootTimeout, &tooLate{"the VMs were", o})
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var g errgroup.Group
	for _, v := range m.vms {
		g.Go(func() error { return m.startOne(ctx, v, o.Spec, p, reg) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if !m.restartable() {
		m.net.HandedOver()
	}
	go m.watch(giveUp)

	if m.net.Late {
		if err := m.awaitAddresses(ctx, p, o, reg); err != nil {
			return err
		}
	}
	if err := m.awaitAll(ctx, cancel, o.events); err != nil {
		return unready(err, p.kernel)
	}
	if err := m.notePromised(); err != nil {
		return err
	}
	if !o.NoVerify {
		if err := m.verifyStart(ctx, o, p.accel); err != nil {
			return err
		}
	}
	if err := m.reachStart(ctx, o); err != nil {
		return err
	}
	if o.Verbose && o.Part == "" { // a part's front reports it
		r := m.own.Record()
		if line := filesLine(o.Spec); line != "" {
			o.events.Note(line)
		}
		for _, w := range r.Ways() {
			o.events.Note(w.String())
		}
	}
	again := m.restartable()
	if err := m.own.Write(func(r *state.Record) { r.State, r.Restartable = state.Ready, again && !m.fences.groups.Any() }); err != nil {
		return err
	}
	if m.net.Joined != nil {
		_, from := m.ends()
		m.net.ReachHosts(m.dialFrom, from)
	}
	if again {
		m.restart.o.events = start.Events{} // their receiver is gone when a VM is restarted
	} else {
		m.restart.close()
	}
	return context.Cause(ctx) // a VM may have ended between its ready and the last VM's
}

// unready adds to the error of VMs that are not ready what could not be checked of their kernel.
func unready(err error, k image.Kernel) error {
	var vm *state.VMError
	if errors.As(err, &vm) {
		return &state.VMError{Err: k.Explain(vm.Err), Console: vm.Console}
	}
	return k.Explain(err)
}

// notePromised writes into the record the region that the backend promises all VMs.
func (m *VMs) notePromised() error {
	var least uint64
	for k, v := range m.vms {
		i, _ := v.current()
		p, ok := i.(backend.Promiser)
		if !ok {
			return nil
		}
		if size, _ := p.Promised(); k == 0 || size < least {
			least = size
		}
	}
	if least == 0 {
		return nil
	}
	return m.own.Write(func(r *state.Record) { r.Promised = least })
}

// awaitAll waits for the agents of all VMs. The first failure cancels the other waits, because the cluster needs all
// its VMs.
func (m *VMs) awaitAll(ctx context.Context, cancel func(), ev start.Events) (err error) {
	ready := make(chan error)
	for _, v := range m.vms {
		go func() { ready <- m.await(ctx, v) }()
	}
	for n := 1; n <= len(m.vms); n++ {
		if e := <-ready; e != nil && err == nil {
			err = e
			cancel()
		}
		ev.At(start.StageBoot, n, len(m.vms))
	}
	return err
}

// firstLine returns the first of several joined errors, because the others are usually its consequences.
func firstLine(err error) error {
	var many interface{ Unwrap() []error }
	if errors.As(err, &many) {
		for _, e := range many.Unwrap() {
			if e != nil {
				return e
			}
		}
	}
	return err
}
