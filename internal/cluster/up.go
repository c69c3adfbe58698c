package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nearmetal/internal/guest/channel"
	"nearmetal/internal/journal"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
)

// Up starts a cluster and waits until every VM is ready. When it fails, or ctx ends
// first, nothing is left of it. The caller calls Down in the end.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if o.BootTimeout == 0 {
		o.BootTimeout = 5 * time.Minute
	}
	start := time.Now()
	base, err := Base()
	if err != nil {
		return nil, err
	}
	name := o.Spec.Name
	if name == "" {
		name = makeName()
		o.Spec.Name = name
	}
	if err := spec.CheckName(name); err != nil {
		return nil, err
	}
	dir, l, err := create(base, name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		dir: dir, lock: l, started: start,
		board: channel.NewSwitchboard(),
		asked: make(chan struct{}), died: make(chan struct{}),
		rec: Record{Name: name, State: Booting, Owner: os.Getpid(), Command: o.Command,
			Created: start.UTC().Truncate(time.Second), Spec: o.Spec},
	}
	if err := c.up(ctx, o); err != nil {
		c.end(nil)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause // the failure is only what the interruption broke
		}
		return nil, err
	}
	return c, nil
}

func (c *Cluster) up(ctx context.Context, o Options) error {
	var err error
	if c.journal, err = journal.Open(filepath.Join(c.dir, journalFile)); err != nil {
		return err
	}
	if err := c.write(nil); err != nil {
		return err
	}
	var noticeMu sync.Mutex
	notice := func(line string) {
		noticeMu.Lock()
		defer noticeMu.Unlock()
		o.Events.notice(line)
	}
	o.Events.stage(StagePrepare, 0, 0)
	p, err := prepare(ctx, o, notice)
	if err != nil {
		return err
	}
	defer p.close()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.place(p, o, notice); err != nil {
		return err
	}
	if c.devices != nil {
		o.Events.stage(StageDevices, 0, 0)
		if err := c.bind(ctx, p.plan); err != nil {
			return err
		}
		if err := p.withDrivers(o.Spec, c.devices.host, notice); err != nil {
			return err
		}
	}
	var id region.ID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	uplink := o.Spec.Network.Uplink == "user" || o.Spec.Network.Uplink == "auto" && p.caps.UserNet()
	names := make([]string, len(p.plan.VMs))
	for i, v := range p.plan.VMs {
		names[i] = v.Name
	}
	if c.wiring, err = wire(o.Spec.Network, id, names, uplink, c.journal, o.Trunk); err != nil {
		return err
	}
	reg, err := makeRegion(p.plan.Region, id)
	if err != nil {
		return err
	}
	if reg != nil {
		defer reg.Close()
	}
	c.fill(p, uplink)
	if err := c.joinHosts(); err != nil {
		return err
	}
	if err := c.linkLauncher(); err != nil {
		return err
	}
	if err := c.prepareFabric(o, p.plan.Region, notice); err != nil {
		return err
	}
	if err := c.serve(); err != nil {
		return err
	}

	o.Events.stage(StageBoot, 0, len(c.vms))
	ctx, cancel := context.WithTimeoutCause(ctx, o.BootTimeout,
		fmt.Errorf("the VMs were not ready after %v", o.BootTimeout))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	var starts []func() error
	for _, v := range c.vms {
		starts = append(starts, func() error { return c.start(ctx, v, o.Spec, p, reg, names, uplink) })
	}
	if err := together(starts...); err != nil {
		return firstLine(err)
	}
	c.wiring.handedOver()
	c.lost = make(chan error, len(c.vms))
	go c.watch(giveUp)

	ready := make(chan error)
	for _, v := range c.vms {
		go func() { ready <- c.await(ctx, v) }()
	}
	for n := 1; n <= len(c.vms); n++ {
		if e := <-ready; e != nil && err == nil {
			err = e
			cancel() // one VM less is no cluster: the others need not go on
		}
		o.Events.stage(StageBoot, n, len(c.vms))
	}
	if err != nil {
		return err
	}
	if !o.NoVerify {
		if err := c.verifyStart(ctx, o, p.accel); err != nil {
			return err
		}
	}
	if err := c.write(func(r *Record) { r.State = Ready }); err != nil {
		return err
	}
	return context.Cause(ctx) // a VM may have ended after it was ready and before the last was
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

// fill makes the VMs of the plan and writes them into the record.
func (c *Cluster) fill(p *prepared, uplink bool) {
	c.mu.Lock()
	for i, v := range p.plan.VMs {
		c.vms = append(c.vms, &vm{plan: v, index: i, timings: Timings{VM: v.Name}})
		c.rec.VMs = append(c.rec.VMs, VMRecord{
			Name: v.Name, VCPUs: v.VCPUs, Subnet: c.wiring.subnet(i), Uplink: uplink, MemoryBytes: v.MemoryBytes, State: Booting, IP: c.wiring.ip(i).String()})
	}
	c.mu.Unlock()
	c.write(nil)
}
