package local

import (
	"context"
	"fmt"
	"io"
	"os"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest"
	"nearmetal/internal/host"
	"nearmetal/internal/load"
	"nearmetal/internal/text"
	"nearmetal/internal/verify"
)

// Verify compares the running VMs with the plan, and also queries the guests for their own view. The cluster is
// ready.
func (m *VMs) Verify(ctx context.Context) (*verify.Report, error) { return m.check(ctx, true), nil }

// Usage reads the VMs' resource usage on this host; with nodes also the NUMA nodes of their memory.
func (m *VMs) Usage(_ context.Context, nodes bool) ([]load.VM, error) {
	r := m.own.Record()
	return r.Usage(nodes), nil
}

// Console writes the console of a VM to w; see state.Logs.
func (m *VMs) Console(ctx context.Context, vm string, follow bool, w io.Writer) error {
	r := m.own.Record()
	return state.Logs(ctx, &r, vm, follow, w)
}

// check compares the running VMs with the plan; with guests it also queries the guests for their own view.
func (m *VMs) check(ctx context.Context, guests bool) *verify.Report {
	var vms []verify.VM
	for _, v := range m.vms {
		look := verify.VM{Plan: v.plan}
		v.mu.Lock()
		i, agent := v.inst, v.agent
		v.mu.Unlock()
		select {
		case <-i.Done():
			look.Ended = true
		default:
			look.Host, _ = i.(backend.Inspector)
			if p, ok := i.(backend.Promiser); ok {
				look.Region, look.RegionLook = p.Promised()
			}
			if guests && agent != nil { // nil: the VM is being restarted
				look.Run = runIn(agent)
			}
		}
		vms = append(vms, look)
	}
	return verify.Check(ctx, m.own.Name(), m.own.Record().Plan.Region, vms)
}

// runIn returns a function that runs programs in a VM as the cluster's user.
func runIn(a *guest.Agent) verify.Run {
	return func(ctx context.Context, args []string, w io.Writer) error {
		p, err := a.Start(guest.Exec{
			Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), NoStdin: true})
		if err != nil {
			return err
		}
		defer p.Close()
		stop := context.AfterFunc(ctx, func() { p.Close() })
		defer stop()
		go io.Copy(io.Discard, p.Stderr)
		if _, err := io.Copy(w, p.Stdout); err != nil {
			return err
		}
		st, err := p.Wait()
		if err == nil && st.ExitCode() != 0 {
			err = fmt.Errorf("%s: %s", args[0], text.CleanLines(st.String()))
		}
		return err
	}
}

// shownDifferences is how many differences a start reports individually.
const shownDifferences = 8

// verifyStart compares a cluster that has just become ready with its plan, and warns of differences; with
// placement.strict they are an error. If instructions are emulated, the guests are not queried, because that would
// cost more than it is worth.
func (m *VMs) verifyStart(ctx context.Context, o options, accel host.Accel) error {
	r := m.check(ctx, accel == host.KVM)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return tell(r, o.Spec.Placement.Strict, o.events.Note)
}

// tell passes the differences found at a start to notice; with strict they are an error.
func tell(r *verify.Report, strict bool, notice func(string)) error {
	diff := r.Differences()
	if len(diff) == 0 {
		return nil
	}
	if strict {
		return fmt.Errorf("not as planned, in %d of %d points: %s (leave out --strict to start nevertheless)", len(diff), len(r.Rows), diff[0])
	}
	for i, d := range diff {
		if i == shownDifferences {
			notice(fmt.Sprintf("not as planned in %d more points (nearmetal verify %s lists them)", len(diff)-i, r.Cluster))
			break
		}
		notice("not as planned: " + d.String())
	}
	return nil
}
