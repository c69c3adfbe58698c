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
	heard   chan struct{} // closed when libvirtd has said how the domain ended
	once    sync.Once     // of heard
	stated  chan struct{} // closed when QEMU has said why its machine stopped
	saidWhy sync.Once     // of stated

	mu     sync.Mutex
	domain *daemon.Domain // nil: libvirtd has not said that it is made
	killed bool           // by Kill
	handed bool           // the agent's connection is the caller's
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

// carrier is the agent's connection. When QEMU ends, it ends only once it is known how: else who reads it would
// report the break of the connection, which says less.
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

// said notes what libvirtd says of the end.
func (i *instance) said(how daemon.End) {
	i.once.Do(func() {
		i.mu.Lock()
		i.how = how
		i.mu.Unlock()
		close(i.heard)
	})
}

// reason notes what QEMU says of its shutdown.
func (i *instance) reason(why string) {
	i.saidWhy.Do(func() {
		i.mu.Lock()
		i.why = why
		i.mu.Unlock()
		close(i.stated)
	})
}

// How long libvirtd may take, after QEMU's end, to say how that was, and QEMU's own reason to come after that. A daemon
// that is asked by others at the same time answers late.
const (
	daemonWords = 30 * time.Second
	lastWords   = 5 * time.Second
)

// watch waits for QEMU's end, whoever brings it about: the process is watched, not the daemon, which may be restarted.
func (i *instance) watch() {
	i.process.Wait()
	i.hear(i.d.gone(), daemonWords, lastWords)
	i.finish()
}

// hear waits until all is known of how the VM ended: while the daemon has not gone, for so long, and then for QEMU's
// reason. The two words come in any order. Where libvirtd calls the end a shutdown, QEMU says whose.
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

// finish says that the VM has ended.
func (i *instance) finish() {
	i.d.mu.Lock()
	delete(i.d.watched, daemon.UUID(i.ref.ID[keyUUID]))
	i.d.mu.Unlock()
	i.mu.Lock()
	i.err = i.verdict()
	i.mu.Unlock()
	close(i.done)
}

// verdict says what ended the VM. i.mu is held.
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
	// libvirtd calls it a shutdown too where it sees QEMU's end before it has noted who asked for it.
	case i.how == daemon.EndDestroyed, i.why == "host-signal", i.why == "host-qmp-quit":
		return errors.New("somebody ended its domain (virsh destroy)")
	case i.how == daemon.EndShutdown:
		return nil
	case i.how == daemon.EndFailed:
		return fmt.Errorf("its QEMU was killed, or failed (libvirt's log of domain %s has its last words)", i.ref.ID[keyName])
	}
	return errors.New("its domain was migrated or saved")
}

// with does what f says over the driver's connection: a new one where the daemon was restarted.
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

// blame notes that this driver ends the VM, unless it ends by itself: a cluster kills each of its VMs when it has lost the
// agent of one, whose QEMU may have been killed by somebody else.
func (i *instance) blame() {
	if i.process != nil && i.process.Ending() {
		return
	}
	i.mu.Lock()
	i.killed = true
	i.mu.Unlock()
}

// Kill ends the domain, and returns when libvirtd knows of none any more.
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
