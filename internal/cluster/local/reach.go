package local

import (
	"context"
	"fmt"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
)

// dialFrom opens a connection from a VM of this host, and closes it.
func (m *VMs) dialFrom(ctx context.Context, vm, addr string) error {
	for _, v := range m.vms {
		if v.plan.Name == vm {
			conn, err := v.agent.DialTCP(ctx, "", addr)
			if err == nil {
				conn.Close()
			}
			return err
		}
	}
	return fmt.Errorf("no VM %s", vm)
}

// ends returns the devices of this host's VMs: all of them, and the first of each VM, which the kernel uses for
// connections to the others.
func (m *VMs) ends() (all, first []wiring.End) {
	for _, v := range m.own.Record().VMs {
		list := wiring.Ends(v.Name, v.Devices)
		all = append(all, list...)
		first = append(first, list[:min(1, len(list))]...)
	}
	return all, first
}

// reachStart tests the devices of this host's VMs. Faults are reported and recorded; with placement.strict they are
// an error.
func (m *VMs) reachStart(ctx context.Context, o options) error {
	var faults []string
	for _, v := range m.own.Record().VMs {
		for _, d := range v.Devices {
			if why := wiring.PortFault(v.Name, d); why != "" {
				faults = append(faults, why)
			}
		}
		if err := wiring.NoRDMA(v.Name, v.Devices); err != nil && !o.Spec.Network.AllowTCP {
			return err
		}
	}
	if len(faults) == 0 {
		bound, cancel := context.WithTimeout(ctx, wiring.ReachBound)
		defer cancel()
		all, first := m.ends()
		if failed := wiring.Reach(bound, m.dialFrom, first, all); len(failed) > 0 {
			faults = append(faults, wiring.UnreachedLine(failed))
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(faults) == 0 {
		return nil
	}
	if o.Spec.Placement.Strict {
		return fmt.Errorf("%s (leave out --strict to start nevertheless)", faults[0])
	}
	for i, f := range faults {
		if i == shownDifferences {
			o.events.Note(fmt.Sprintf("%d devices more cannot be used (nearmetal ps --devices lists them)", len(faults)-i))
			break
		}
		o.events.Note(f)
	}
	return m.own.Write(func(r *state.Record) { r.DeviceFaults = faults })
}
