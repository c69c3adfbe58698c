package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/region"
)

// A VM of a kept cluster can be restarted, also after it has ended, with the same plan: on the same CPUs and memory
// nodes, with its devices, its place in the network, and the region. The journal records its process before the
// process starts, as in the first start. Claims and bindings of its devices remain during the restart, so that no
// other cluster can use them.

// restartState is what a restart of a VM needs.
type restartState struct {
	p   *prepared
	o   options
	reg *region.Region // nil: there is none
}

func (s *restartState) close() {
	if s == nil {
		return
	}
	s.p.close()
	if s.reg != nil {
		s.reg.Close()
	}
}

// restartGrace is how long a VM may take to write back and power off before it is killed.
const restartGrace = 10 * time.Second

// Restart ends the VM called name, if it runs, and starts it again; it returns when the VM is ready. A VM that does
// not become ready remains ended.
func (m *VMs) Restart(ctx context.Context, name string) error {
	m.holding.Lock()
	defer m.holding.Unlock()
	r := m.own.Record()
	var v *vm
	for _, x := range m.vms {
		if x.plan.Name == name {
			v = x
		}
	}
	switch {
	case v == nil:
		_, err := r.FindVM(name)
		return err
	case !r.Kept:
		return fmt.Errorf("cluster %s belongs to the command that started it: only a VM of nearmetal up can be restarted", r.Name)
	case !m.caps.DiesWithOwner:
		return fmt.Errorf("VMs of backend %s cannot be restarted", r.Backend)
	case r.State != state.Ready:
		return errors.New("the cluster is not ready")
	case m.fences.groups.Any():
		return fmt.Errorf("cluster %s has isolation: strict: its VMs cannot be restarted one by one", r.Name)
	case r.Paused:
		return fmt.Errorf("cluster %s is paused: nearmetal resume %[1]s", r.Name)
	case !m.watched.more():
		return errors.New("no VM of the cluster runs any more: it is ending")
	}
	if err := m.leave(ctx, v); err != nil {
		m.watched.less()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.restart.o.BootTimeout, &tooLate{name + " was", m.restart.o})
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	if !m.stopBy(func() { giveUp(errors.New("the cluster is ending")) }) {
		m.watched.less()
		return errors.New("the cluster is ending")
	}
	defer m.stopBy(nil)
	err := m.net.Again(v.index)
	if err == nil {
		err = m.startOne(ctx, v, m.restart.o.Spec, m.restart.p, m.restart.reg)
	}
	if err != nil {
		end := "it could not be started again: " + err.Error()
		m.board.EndVM(name, name+": "+end)
		m.own.WriteVM(v.index, func(r *state.VMRecord) { r.State, r.PID, r.Ended = state.Dead, 0, end })
		m.watched.less()
		return err
	}
	i, noted := v.current()
	go m.watchOne(v, i, noted, nil)
	go func() {
		select {
		case <-i.Done():
			giveUp(v.ended(" while it booted"))
		case <-ctx.Done():
		}
	}()
	if err := m.await(ctx, v); err != nil {
		return errors.Join(err, v.kill())
	}
	if m.restart.o.NoVerify {
		return nil
	}
	return m.verifyStart(ctx, m.restart.o, m.restart.p.accel)
}

// leave ends a VM that is about to be restarted, if it runs, and resets its state.
func (m *VMs) leave(ctx context.Context, v *vm) error {
	i := v.instance()
	v.mu.Lock()
	v.leaving, v.why = i, nil
	v.mu.Unlock()
	m.board.EndVM(v.plan.Name, v.plan.Name+" is being restarted")
	m.own.WriteVM(v.index, func(r *state.VMRecord) {
		r.State, r.PID, r.ReadyNs, r.Ended, r.Devices = state.Booting, 0, 0, "", nil
	})
	v.pauses.reset(v)
	ctx, cancel := context.WithTimeout(ctx, restartGrace)
	defer cancel()
	if err := v.end(ctx, true); err != nil {
		return err
	}
	<-i.Done()
	v.mu.Lock()
	v.agent, v.timings = nil, start.Timings{VM: v.plan.Name}
	v.mu.Unlock()
	return nil
}

// stopBy sets the function by which Interrupt cancels a restart; it returns false if the cluster is already ending.
// Interrupt is called after the record has the cluster's end, so that one of the two always notices the other.
func (m *VMs) stopBy(giveUp func()) bool {
	m.mu.Lock()
	m.giveUp = giveUp
	m.mu.Unlock()
	return m.own.Record().State == state.Ready
}

// Interrupt cancels a restart that is in progress. The record has the cluster's end before.
func (m *VMs) Interrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.giveUp != nil {
		m.giveUp()
	}
}

// Rename changes the name of the cluster.
func (m *VMs) Rename(name string) error {
	m.holding.Lock()
	defer m.holding.Unlock()
	if m.fences.groups.Any() {
		return fmt.Errorf("cluster %s cannot be renamed: with isolation: strict its cgroups have its name", m.own.Name())
	}
	return m.own.Rename(name)
}
