// Package libvirt carries out a plan with transient domains of a libvirtd of this host: the host's, or the user's
// own. They are visible in virsh, virt-manager and Cockpit, and are the same machines as package qemu's.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

func init() {
	backend.Register("libvirt", func(name string) (backend.Driver, error) {
		a, err := parse(name)
		if err != nil {
			return nil, err
		}
		return &driver{address: a, watched: map[daemon.UUID]*instance{}}, nil
	})
}

// driver makes domains over one connection; they end with it.
type driver struct {
	address daemon.Address
	found   found // by Probe

	mu      sync.Mutex
	conn    *daemon.Conn
	watched map[daemon.UUID]*instance
}

// connect returns the driver's connection, or a new one if the last has ended, as after a restart of the daemon.
func (d *driver) connect(ctx context.Context) (*daemon.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		select {
		case <-d.conn.Gone():
		default:
			return d.conn, nil
		}
	}
	c, err := daemon.Dial(ctx, d.address)
	if err != nil {
		return nil, err
	}
	if err := c.Ends(d.ended); err != nil {
		c.Close()
		return nil, err
	}
	d.conn = c
	return c, nil
}

// gone is closed when the driver's connection has ended.
func (d *driver) gone() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		return d.conn.Gone()
	}
	none := make(chan struct{})
	close(none)
	return none
}

// ended passes on libvirtd's report of a domain's end.
func (d *driver) ended(id daemon.UUID, how daemon.End) {
	d.mu.Lock()
	i := d.watched[id]
	d.mu.Unlock()
	if i != nil {
		i.said(how)
	}
}

// Probe detects the capabilities of the daemon and its QEMU.
func (d *driver) Probe(ctx context.Context, s *spec.Cluster) (*backend.Probed, error) {
	var accel host.Accel
	var notice string
	var g errgroup.Group
	g.Go(func() (err error) {
		accel, notice, err = host.DetectAccel(s.Accel)
		return err
	})
	c, err := d.connect(ctx)
	accelErr := g.Wait()
	switch {
	case err != nil:
		return nil, err
	case accelErr != nil:
		return nil, &backend.AccelError{Err: accelErr}
	}
	if d.found, err = find(ctx, c, s.QEMU, accel); err != nil {
		return nil, err
	}
	p := &backend.Probed{Accel: accel, Notice: notice, Caps: d.found.caps(d.address)}
	if khz, ok := host.TSCKHz(); ok && accel == host.TCG {
		p.TSCKHz = khz
	}
	p.SlowStrings = accel == host.KVM && host.SlowStrings()
	p.RegionDevice = "ivshmem"
	if !slices.Contains(p.Caps.Regions, "ivshmem") {
		p.RegionDevice = "devdax"
	}
	return p, nil
}

// Check makes the VM's domain and discards it.
func (d *driver) Check(vm plan.VM, s backend.Settings) error {
	_, err := d.machine(vm, s, nameless, places{owner: os.Getpid()})
	return err
}

// Version returns the versions of the daemon and of its QEMU.
func (d *driver) Version(ctx context.Context) (string, error) {
	c, err := daemon.Reach(ctx, d.address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	lv, qemu, err := c.Versions(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s with QEMU %s (%s)", version(lv), version(qemu), d.address), nil
}

// Close ends the connection. Domains that still run end with it.
func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil {
		return nil
	}
	err := d.conn.Close()
	if errors.Is(err, daemon.ErrLost) {
		err = nil
	}
	d.conn = nil
	return err
}
