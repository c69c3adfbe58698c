package cluster

import (
	"context"
	"errors"
	"fmt"

	"nearmetal/internal/backend"
	"nearmetal/internal/region"
)

// tooLate is the error of VMs that took longer to be ready than they may.
type tooLate struct {
	what string // "the VMs were"
	o    Options
}

func (e *tooLate) Error() string {
	by := "--boot-timeout"
	if e.o.Limited {
		by = "boot_timeout in Slurm's plugstack.conf"
	}
	return fmt.Sprintf("%s not ready after %v (%s)", e.what, e.o.BootTimeout, by)
}

// Is says that it is the end of a time, for whoever asks whose fault that was.
func (e *tooLate) Is(err error) bool { return err == context.DeadlineExceeded }

// boot starts the VMs and waits until they are ready and as planned.
func (c *Cluster) boot(ctx context.Context, p *prepared, o Options, reg *region.Region) error {
	o.Events.stage(StageBoot, 0, len(c.vms))
	ctx, cancel := context.WithTimeoutCause(ctx, o.BootTimeout, &tooLate{"the VMs were", o})
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var starts []func() error
	for _, v := range c.vms {
		starts = append(starts, func() error { return c.start(ctx, v, o.Spec, p, reg) })
	}
	if err := together(starts...); err != nil {
		return firstLine(err)
	}
	if !c.restartable() {
		c.wiring.handedOver()
	}
	c.lost = make(chan error, len(c.vms))
	go c.watch(giveUp)

	if c.wiring.late {
		if err := c.awaitAddresses(ctx, p, o, reg); err != nil {
			return err
		}
	}
	if err := c.awaitAll(ctx, cancel, o.Events); err != nil {
		return err
	}
	if err := c.notePromised(); err != nil {
		return err
	}
	if !o.NoVerify {
		if err := c.verifyStart(ctx, o, p.accel); err != nil {
			return err
		}
	}
	if err := c.reachStart(ctx, o); err != nil {
		return err
	}
	if o.Verbose && o.Part == "" { // a part's front says it
		r := c.Record()
		if line := filesLine(o.Spec); line != "" {
			o.Events.notice(line)
		}
		for _, w := range r.Ways() {
			o.Events.notice(w.String())
		}
	}
	if err := c.write(func(r *Record) { r.State, r.Restartable = Ready, c.restartable() && c.groups.parent == "" }); err != nil {
		return err
	}
	c.reachHosts()
	return context.Cause(ctx) // a VM may have ended after it was ready and before the last was
}

// notePromised writes into the record the region that the back end promises all VMs.
func (c *Cluster) notePromised() error {
	var least uint64
	for k, v := range c.vms {
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
	return c.write(func(r *Record) { r.Promised = least })
}

// awaitAll waits for the agents of all VMs. The first that fails cancels the others: one VM less is
// no cluster.
func (c *Cluster) awaitAll(ctx context.Context, cancel func(), ev Events) (err error) {
	ready := make(chan error)
	for _, v := range c.vms {
		go func() { ready <- c.await(ctx, v) }()
	}
	for n := 1; n <= len(c.vms); n++ {
		if e := <-ready; e != nil && err == nil {
			err = e
			cancel()
		}
		ev.stage(StageBoot, n, len(c.vms))
	}
	return err
}

// firstLine keeps the first of several joined errors: the others tend to follow from it.
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
