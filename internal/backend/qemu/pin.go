package qemu

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/plan"
)

// Pin pins the threads of the vCPUs, and QEMU's other threads, to the planned host CPUs; without pins it does
// nothing.
func (v *VM) Pin(ctx context.Context, vm plan.VM) error {
	if len(vm.Pins) == 0 && len(vm.EmulatorCPUs) == 0 {
		return nil
	}
	if err := v.pin(ctx, vm); err != nil {
		return fmt.Errorf("VM %s: pinning: %w", v.name, err)
	}
	return nil
}

func (v *VM) pin(ctx context.Context, vm plan.VM) error {
	cpus, err := v.qmp.VCPUs(ctx)
	if err != nil {
		return err
	}
	threads, err := qemufacts.Threads(v.PID())
	if err != nil {
		return err
	}
	for _, c := range cpus {
		thread, ok := threads[c.Thread]
		if !ok { // QEMU is not trusted to name other processes' threads
			return fmt.Errorf("vCPU %d: %d is not a thread of QEMU's", c.Index, c.Thread)
		}
		delete(threads, c.Thread)
		if c.Index < 0 || c.Index >= len(vm.Pins) || len(vm.Pins[c.Index]) == 0 {
			continue
		}
		if err := setAffinity(thread, vm.Pins[c.Index]); err != nil {
			return fmt.Errorf("vCPU %d: %w", c.Index, err)
		}
	}
	if len(vm.EmulatorCPUs) == 0 {
		return nil
	}
	for _, t := range threads {
		err := setAffinity(t, vm.EmulatorCPUs)
		if err != nil && !errors.Is(err, unix.ESRCH) { // worker threads come and go
			return fmt.Errorf("emulator thread: %w", err)
		}
	}
	return nil
}

func setAffinity(thread int, cpus []int) error {
	var set unix.CPUSet
	for _, c := range cpus {
		if c < 0 || c >= len(set)*64 {
			return fmt.Errorf("no CPU %d", c)
		}
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		return fmt.Errorf("CPUs %v: %w", cpus, err)
	}
	return nil
}
