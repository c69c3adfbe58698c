package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/process"
)

var uuidForm = lazyregexp.New(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Attach finds a domain by its UUID. If no libvirtd answers, a domain exists only as its QEMU: a daemon that starts
// later forgets a domain without a QEMU.
func (d *driver) Attach(ctx context.Context, r backend.Ref) (backend.Instance, error) {
	if !uuidForm().MatchString(r.ID[keyUUID]) {
		return nil, fmt.Errorf("%.60q is not a UUID of a domain", r.ID[keyUUID])
	}
	p, err := d.qemu(r)
	if err != nil {
		return nil, err
	}
	c, err := daemon.Reach(ctx, d.address)
	var none *daemon.NoDaemon
	switch {
	case errors.As(err, &none) && p == nil:
		return nil, backend.ErrGone
	case errors.As(err, &none): // a daemon of the user's own is started to end it
	case err != nil:
		return nil, err
	default:
		_, err := c.Find(ctx, r.ID[keyUUID])
		c.Close()
		if daemon.IsNoDomain(err) && p == nil {
			return nil, backend.ErrGone
		}
		if err != nil && !daemon.IsNoDomain(err) {
			return nil, err
		}
	}
	return &attached{d: d, ref: r, p: p, done: make(chan struct{})}, nil
}

// qemu returns the process of the domain of a Ref; nil: none. The caller closes it.
func (d *driver) qemu(r backend.Ref) (*process.Process, error) {
	return d.address.FindQEMU(r.ID[keyName], daemon.UUID(r.ID[keyUUID]))
}

// killWait is the time that a process may need to end after SIGKILL.
const killWait = 10 * time.Second

// end ends the domain of a Ref and its process, by libvirtd, or if none answers by its QEMU's process p (nil: not
// known). It returns when both are gone.
func (d *driver) end(ctx context.Context, r backend.Ref, p *process.Process) error {
	var none *daemon.NoDaemon
	err := endDomain(ctx, d.connect, r.ID[keyUUID])
	if err != nil && !errors.As(err, &none) && !errors.Is(err, daemon.ErrLost) {
		return err
	}
	if p == nil {
		var e error
		if p, e = d.qemu(r); e != nil {
			return errors.Join(err, e)
		}
		if p == nil {
			return nil // without a QEMU there is no domain
		}
		defer p.Close()
	}
	// A daemon that has ended the domain has ended its process; one that has forgotten it, or does not run, has not.
	_, err = p.Kill(killWait)
	return err
}

// endDomain has libvirtd end a domain; nil if it knows no such domain.
func endDomain(ctx context.Context, dial func(context.Context) (*daemon.Conn, error), uuid string) error {
	c, err := dial(ctx)
	if err != nil {
		return err
	}
	x, err := c.Find(ctx, uuid)
	if daemon.IsNoDomain(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Destroy(ctx, x)
}

// attached is a domain whose owner is gone; it can be ended. OpenStack has a similar type, because a backend imports no
// other.
type attached struct {
	d    *driver
	ref  backend.Ref
	p    *process.Process // nil: not known
	once sync.Once
	done chan struct{}
}

var errAttached = errors.New("its owner is gone: it can only be ended")

func (a *attached) Ref() backend.Ref { return a.ref }

func (a *attached) PID() int {
	if a.p == nil {
		return 0
	}
	return a.p.PID
}

func (a *attached) Agent(context.Context) (io.ReadWriteCloser, error) { return nil, errAttached }

func (a *attached) Pause(context.Context) error { return errAttached }

func (a *attached) Resume(context.Context) error { return errAttached }

func (a *attached) Kill(ctx context.Context) error {
	if err := a.d.end(ctx, a.ref, a.p); err != nil {
		return err
	}
	a.once.Do(func() { close(a.done) })
	return nil
}

// Done is closed by Kill.
func (a *attached) Done() <-chan struct{} { return a.done }

func (a *attached) Err() error { return nil }

func (a *attached) Console(int) []string { return nil }
