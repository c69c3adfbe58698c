package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/client"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/linejson"
	"nearmetal/internal/load"
	"nearmetal/internal/text"
	"nearmetal/internal/verify"
)

// downBound is the time in which a host's part must end with its VMs' help, also over a slow network.
const downBound = 30 * time.Second

// devicesBound is added to downBound if devices are returned to the host, because that waits for the kernel.
const devicesBound = 2 * time.Minute

// followPart reads the events of a host's part until the part ends.
func (f *Fleet) followPart(h *farHost) {
	r := bufio.NewReaderSize(h.lead, 64<<10)
	var end error
	for {
		var ev hostEvent
		if err := linejson.Read(r, &ev); err != nil {
			// The error of ssh has more details than that of the channel.
			if end = h.client.Mux().Err(); end == nil {
				end = err
			}
			var broken *channel.CarrierError
			if errors.As(end, &broken) {
				end = broken.Cause
			}
			end = h.fault(fmt.Errorf("%w", end))
			break
		}
		if ev.Down {
			if ev.Why != "" {
				end = h.fault(errors.New(text.CleanLines(ev.Why)))
			}
			break
		}
		if slices.Contains(h.vms, ev.Lost) {
			lost := &state.VMError{Err: h.fault(errors.New(text.CleanLines(ev.Why)))}
			for _, l := range ev.Lines {
				if len(lost.Console) < 50 {
					lost.Console = append(lost.Console, text.CleanLines(l))
				}
			}
			// Reported before the record is written, because the VM's streams end at the same time.
			select {
			case f.lost <- lost:
			default:
			}
			f.lostFar(lost.Error(), func(name string) bool { return name == ev.Lost })
		}
	}
	f.mu.Lock()
	h.end = end
	asked := h.asked
	f.mu.Unlock()
	close(h.gone)
	if asked {
		return
	}
	if end == nil {
		end = h.fault(errors.New("nearmetal on that host exited unexpectedly"))
	}
	f.own.Write(func(r *state.Record) {
		for i := range r.Remote {
			if r.Remote[i].Name == h.name {
				r.Remote[i].Lost = end.Error()
			}
		}
	})
	f.lostFar(end.Error(), func(name string) bool { return slices.Contains(h.vms, name) })
	select {
	case f.lost <- end:
	default:
	}
}

// lostFar marks VMs of other hosts as ended, and closes died when no VM is left.
func (f *Fleet) lostFar(why string, which func(name string) bool) {
	left := 0
	f.own.Write(func(r *state.Record) {
		for i := range r.VMs {
			v := &r.VMs[i]
			if which(v.Name) && v.State != state.Dead {
				v.State, v.Ended = state.Dead, why
				f.board.EndVM(v.Name, why)
			}
			if v.State != state.Dead {
				left++
			}
		}
	})
	if left == 0 {
		f.none.Do(func() { close(f.died) })
	}
}

// Stop ends the parts on all hosts: with their VMs' help while ctx lasts, or immediately.
func (f *Fleet) Stop(ctx context.Context, help bool) error {
	bound := downBound
	if claim.Wanted(f.own.Record().Spec) {
		bound += devicesBound
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for _, h := range f.hosts {
		if h.session == nil {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := f.endPart(ctx, h, help); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endPart ends a host's part. Its error names what may be left.
func (f *Fleet) endPart(ctx context.Context, h *farHost, help bool) error {
	f.mu.Lock()
	early := h.asked
	h.asked = true
	f.mu.Unlock()
	var err error
	select {
	case <-h.gone: // the part has ended and reported its error already
		early = true
	default:
	}
	if h.lead != nil && help && !early && ctx.Err() == nil {
		h.lead.Write([]byte{'d'})
		select {
		case <-h.gone:
			f.mu.Lock()
			err = h.end
			f.mu.Unlock()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) { // a cancelled ctx is not an error: the user wants to end quickly
				err = h.fault(errors.New("its part of the cluster takes long to end, and goes on with it there (nearmetal ps on that host)"))
			}
		}
	}
	if h.client != nil {
		h.client.Close()
	}
	h.session.Close()
	return err
}

// onHosts runs a function concurrently for each host that is still connected.
func (f *Fleet) onHosts(do func(i int, h *farHost) error) error {
	errs := make([]error, len(f.hosts))
	var wg sync.WaitGroup
	for i, h := range f.hosts {
		wg.Add(1)
		go func() {
			defer wg.Done()
			select {
			case <-h.gone:
				return
			default:
			}
			if err := do(i, h); err != nil {
				errs[i] = h.fault(err)
			}
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Lost returns a channel that receives an error for each VM and host that ends between Up and Stop.
func (f *Fleet) Lost() <-chan error { return f.lost }

// Died returns a channel that is closed when the last VM has ended.
func (f *Fleet) Died() <-chan struct{} { return f.died }

// Verify makes each host compare its VMs with the plan, and returns the combined report.
func (f *Fleet) Verify(ctx context.Context) (*verify.Report, error) {
	r := f.own.Record()
	parts := make([]*verify.Report, len(f.hosts))
	err := f.onHosts(func(i int, h *farHost) (err error) {
		parts[i], err = client.New(h.client, r).Verify(ctx)
		return err
	})
	all := &verify.Report{Cluster: r.Name, Guest: true}
	for i, p := range parts {
		if p == nil {
			continue
		}
		all.Guest = all.Guest && p.Guest
		for _, row := range p.Rows {
			if !slices.Contains(f.hosts[i].vms, row.VM) {
				row.VM = f.hosts[i].name
			}
			all.Rows = append(all.Rows, row)
		}
	}
	return all, err
}

// Usage makes each host read its VMs' resource usage; with nodes also the NUMA nodes of their memory.
func (f *Fleet) Usage(ctx context.Context, nodes bool) ([]load.VM, error) {
	r := f.own.Record()
	list := r.Usage(false) // names and states; the VMs have no process on this host
	parts := make([][]load.VM, len(f.hosts))
	err := f.onHosts(func(i int, h *farHost) (err error) {
		parts[i], err = client.New(h.client, r).Usage(ctx, nodes)
		return err
	})
	for i, h := range f.hosts {
		for _, v := range parts[i] {
			k := slices.IndexFunc(list, func(x load.VM) bool { return x.Name == v.Name })
			if k >= 0 && slices.Contains(h.vms, v.Name) {
				v.Cluster, v.State, v.VCPUs = list[k].Cluster, list[k].State, list[k].VCPUs
				list[k] = v
			}
		}
	}
	return list, err
}

// Hold stops the VMs for their user (nearmetal pause), or resumes them.
func (f *Fleet) Hold(ctx context.Context, stop bool) error {
	f.holding.Lock()
	defer f.holding.Unlock()
	r := f.own.Record()
	if r.State != state.Ready {
		return errors.New("the cluster is not ready")
	}
	if err := f.onHosts(func(_ int, h *farHost) error { return client.New(h.client, r).Hold(ctx, stop) }); err != nil {
		return err
	}
	return f.own.Write(func(r *state.Record) { r.Paused = stop })
}

// Rename changes the name of the cluster.
func (f *Fleet) Rename(name string) error {
	f.holding.Lock()
	defer f.holding.Unlock()
	return f.own.Rename(name)
}

// Restart always fails: a VM of a cluster over several hosts cannot be restarted alone.
func (f *Fleet) Restart(context.Context, string) error {
	return fmt.Errorf("cluster %s has its VMs on several hosts: they cannot be restarted one by one", f.own.Name())
}

// Console writes the console of a VM to w; with follow it continues until the cluster or ctx ends.
func (f *Fleet) Console(ctx context.Context, vm string, follow bool, w io.Writer) error {
	for _, h := range f.hosts {
		if slices.Contains(h.vms, vm) {
			return client.New(h.client, f.own.Record()).Console(ctx, vm, follow, w)
		}
	}
	return fmt.Errorf("no host has VM %s", vm)
}
