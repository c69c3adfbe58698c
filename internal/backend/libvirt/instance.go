package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/console"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/plan"
	"nearmetal/internal/process"
)

// instance is a domain that this process has made.
type instance struct {
	d       *driver
	ref     backend.Ref
	console *console.Console
	conns   map[string]*net.UnixConn
	process *process.Process // QEMU's, once it has connected
	done    chan struct{}
	heard   chan struct{} // closed when libvirtd has reported how the domain ended
	once    sync.Once     // of heard
	stated  chan struct{} // closed when QEMU has reported why its machine stopped
	saidWhy sync.Once     // of stated

	mu     sync.Mutex
	domain *daemon.Domain // nil: libvirtd has not reported its creation
	killed bool           // by Kill
	handed bool           // the caller owns the agent's connection
	how    daemon.End     // valid when heard is closed
	why    string         // QEMU's own reason for its shutdown
	err    error          // valid when done is closed
}

func (i *instance) Ref() backend.Ref { return i.ref }

func (i *instance) PID() int {
	if i.process == nil {
		return 0
	}
	return i.process.PID
}

func (i *instance) Agent(context.Context) (io.ReadWriteCloser, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handed = true
	return &carrier{i.conns[socketAgent], i.done, i.process}, nil
}

// carrier is the agent's connection. After QEMU's end its reader gets an error only when the cause is known, because
// a broken connection would be a less precise report.
type carrier struct {
	*net.UnixConn
	ended   <-chan struct{}
	process *process.Process // QEMU's
}

func (c *carrier) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if err == nil || errors.Is(err, net.ErrClosed) {
		return n, err
	}
	select {
	case <-c.ended:
	case <-time.After(lastWords):
		if c.process != nil && c.process.Ending() {
			<-c.ended // watch bounds that
		}
	}
	return n, err
}

// said records libvirtd's report of the end.
func (i *instance) said(how daemon.End) {
	i.once.Do(func() {
		i.mu.Lock()
		i.how = how
		i.mu.Unlock()
		close(i.heard)
	})
}

// reason records QEMU's reason for its shutdown.
func (i *instance) reason(why string) {
	i.saidWhy.Do(func() {
		i.mu.Lock()
		i.why = why
		i.mu.Unlock()
		close(i.stated)
	})
}

// Bounds of the time after QEMU's end until libvirtd reports how it ended, and after that until QEMU's own reason
// arrives. A busy daemon answers late.
const (
	daemonWords = 30 * time.Second
	lastWords   = 5 * time.Second
)

// watch waits for QEMU's end, whatever its cause: it watches the process, not the daemon, which may be restarted.
func (i *instance) watch() {
	i.process.Wait()
	i.hear(i.d.gone(), daemonWords, lastWords)
	i.finish()
}

// hear waits until the cause of the VM's end is known: at most answer, and no longer than the daemon lives, for
// libvirtd's report, then at most qemu for QEMU's reason. The reports arrive in any order. If libvirtd reports a
// shutdown, QEMU's reason states who requested it.
func (i *instance) hear(gone <-chan struct{}, answer, qemu time.Duration) {
	select {
	case <-i.heard:
	case <-gone:
	case <-time.After(answer):
	}
	select {
	case <-i.heard:
	default:
		return
	}
	i.mu.Lock()
	shutdown := i.how == daemon.EndShutdown
	i.mu.Unlock()
	if !shutdown {
		return
	}
	select {
	case <-i.stated:
	case <-time.After(qemu):
	}
}

// finish marks the VM as ended.
func (i *instance) finish() {
	i.d.mu.Lock()
	delete(i.d.watched, daemon.UUID(i.ref.ID[keyUUID]))
	i.d.mu.Unlock()
	i.mu.Lock()
	i.err = i.verdict()
	i.mu.Unlock()
	close(i.done)
}

// verdict returns what ended the VM. i.mu is held.
func (i *instance) verdict() error {
	select {
	case <-i.heard:
	default:
		if i.killed {
			return nil
		}
		return errors.New("its QEMU ended, and libvirtd does not say how")
	}
	switch {
	case i.killed:
		return nil
	case i.why == "guest-reset" || i.why == "guest-panic":
		return backend.ErrReset
	// libvirtd also reports a shutdown if it notices QEMU's end before it has recorded who requested it.
	case i.how == daemon.EndDestroyed, i.why == "host-signal", i.why == "host-qmp-quit":
		return errors.New("somebody ended its domain (virsh destroy)")
	case i.how == daemon.EndShutdown:
		return nil
	case i.how == daemon.EndFailed:
		return fmt.Errorf("its QEMU was killed, or failed (libvirt's log of domain %s has its last words)", i.ref.ID[keyName])
	}
	return errors.New("its domain was migrated or saved")
}

// with calls f with the driver's connection, a new one if the daemon was restarted.
func (i *instance) with(ctx context.Context, f func(*daemon.Conn, *daemon.Domain) error) error {
	c, err := i.d.connect(ctx)
	if err != nil {
		return err
	}
	x, err := c.Find(ctx, i.ref.ID[keyUUID])
	if err != nil {
		return err
	}
	return f(c, x)
}

func (i *instance) Pause(ctx context.Context) error {
	return i.with(ctx, func(c *daemon.Conn, x *daemon.Domain) error { return c.Suspend(ctx, x) })
}

func (i *instance) Resume(ctx context.Context) error {
	return i.with(ctx, func(c *daemon.Conn, x *daemon.Domain) error {
		err := c.Resume(ctx, x)
		if daemon.IsNotRunning(err) {
			return nil // it runs
		}
		return err
	})
}

// blame records that this driver ends the VM, unless the VM has already ended: a cluster kills all of its VMs when it
// has lost the agent of one, whose QEMU another user may have killed.
func (i *instance) blame() {
	if i.process != nil && i.process.Ending() {
		return
	}
	i.mu.Lock()
	i.killed = true
	i.mu.Unlock()
}

// Kill ends the domain, and returns when libvirtd no longer knows it.
func (i *instance) Kill(ctx context.Context) error {
	i.blame()
	if err := i.d.end(ctx, i.ref, i.process); err != nil {
		return err
	}
	i.mu.Lock()
	handed := i.handed
	i.mu.Unlock()
	if c := i.conns[socketAgent]; c != nil && !handed {
		c.Close()
	}
	if i.process == nil {
		return nil
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (i *instance) Done() <-chan struct{} { return i.done }

func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

func (i *instance) Console(n int) []string { return i.console.LastLines(n) }

// Inspect reads the VM back from QEMU's monitor, through libvirtd, and from /proc.
func (i *instance) Inspect(ctx context.Context, vm *plan.VM, region *plan.Region) *backend.Facts {
	var q qemufacts.Monitor
	err := i.with(ctx, func(c *daemon.Conn, x *daemon.Domain) error {
		q = c.Monitor(x)
		return nil
	})
	if err != nil {
		q = silent{err}
	}
	return qemufacts.Gather(ctx, qemufacts.QEMU{Plan: vm, PID: i.PID(), QMP: q}, region)
}

// silent is a monitor that cannot be reached.
type silent struct{ err error }

func (s silent) Execute(context.Context, string, any, any) error { return s.err }
