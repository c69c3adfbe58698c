package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
)

// vm is a VM of a cluster.
type vm struct {
	plan    plan.VM
	index   int
	qemu    *qemu.VM
	agent   *guest.Agent
	channel *os.File  // our end, until the agent has it
	began   time.Time // start of QEMU's process
	timings Timings
	mu      sync.Mutex // of qemu and why
	why     error      // why we ended it, where its channel failed
	pauses  pauses
}

// start starts the QEMU of v.
func (c *Cluster) start(ctx context.Context, v *vm, s *spec.Cluster, p *prepared, reg *region.Region, names []string, uplink bool) error {
	cfg, exports, err := c.config(v, s, p, reg, names, uplink)
	if err != nil {
		return err
	}
	initrd, err := p.image.WithConfig(cfg)
	if err != nil {
		return err
	}
	defer initrd.Close()
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	v.channel = ours

	files := qemu.Files{
		Kernel: p.image.KernelFile(), Initrd: initrd, Channel: theirs, Links: c.wiring.files[v.index],
	}
	if reg != nil {
		files.Region = reg.File
	}
	set := qemu.Settings{
		Accel: p.accel, TSCKHz: p.tsc, PVH: p.image.PVH(), KernelArgs: s.KernelArgs,
		Exports: exports, Links: c.wiring.links[v.index], Region: p.plan.Region,
	}
	m, err := qemu.Build(v.plan, set, p.caps)
	if err != nil {
		return err
	}
	v.timings.Prepare = time.Since(c.started)
	began := time.Now()
	q, err := qemu.Start(ctx, m, files, qemu.Options{ConsoleLog: filepath.Join(c.dir, consoleFile(v.plan.Name))})
	if err != nil {
		return fmt.Errorf("%s: %w", v.plan.Name, err)
	}
	v.timings.Started = time.Since(began)
	v.began = began
	v.mu.Lock()
	v.qemu = q
	v.mu.Unlock()
	// PDEATHSIG ends QEMU with us; the journal is for the case that it did not.
	if ch, err := journal.Process("QEMU of "+v.plan.Name, q.PID()); err == nil {
		if _, err := c.journal.Record(ch); err != nil {
			return err
		}
	}
	if len(v.plan.Pins) > 0 || len(v.plan.EmulatorCPUs) > 0 {
		if err := q.Pin(ctx, v.plan); err != nil {
			return fmt.Errorf("%s: %w", v.plan.Name, err)
		}
	}
	c.setVM(v.index, func(r *VMRecord) { r.PID = q.PID() })
	return nil
}

// config is what the VM's init is told, and the directories that QEMU exports to it.
func (c *Cluster) config(v *vm, s *spec.Cluster, p *prepared, reg *region.Region, names []string, uplink bool) ([]byte, []qemu.Export, error) {
	hostName, _ := os.Hostname()
	g := guest.Config{
		Name: v.plan.Name, Index: v.index, Root: guest.Mount{Tag: "root"},
		Links: c.wiring.config[v.index], Hosts: c.wiring.hosts(names, hostName, uplink),
		HostName: hostName, Peers: c.wiring.peers(names),
	}
	root := s.Root
	if root == "host" {
		root = "/"
	}
	exports := []qemu.Export{{Tag: "root", Path: root, ReadOnly: true}}
	for i, sh := range s.Shares {
		tag := fmt.Sprintf("share%d", i)
		ro := sh.Mode == "ro"
		exports = append(exports, qemu.Export{Tag: tag, Path: sh.Path, ReadOnly: ro})
		g.Shares = append(g.Shares, guest.Mount{Tag: tag, Target: sh.Target, ReadOnly: ro})
	}
	if len(v.plan.Devices) > 0 {
		var err error
		if g.Functions, err = functions(p.host, s, p.plan, v.index); err != nil {
			return nil, nil, err
		}
	}
	if s.Network.Type == "rxe" && len(g.Links) > 0 {
		g.SoftRoCE = []string{g.Links[0].Name}
	}
	if reg != nil {
		g.Region = &guest.ConfigRegion{Kind: p.plan.Region.Device, Size: p.plan.Region.SizeBytes,
			UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	}
	b, err := g.Encode()
	return b, exports, err
}

// await waits until the agent of v is ready.
func (c *Cluster) await(ctx context.Context, v *vm) error {
	a, err := guest.NewAgent(ctx, v.channel, guest.AgentOptions{
		Name:    v.plan.Name,
		Explain: func() string { return explain(v.qemu) },
		Accept:  c.board.FromVM(v.plan.Name),
	})
	if err != nil {
		return v.unready(ctx, err)
	}
	v.timings.Ready = time.Since(v.began)
	for _, ph := range a.Info.Phases {
		v.timings.Phases = append(v.timings.Phases, PhaseAt{ph.Name, ph.At})
	}
	if err := errors.Join(c.putHostfiles(ctx, a), c.putFabric(ctx, a)); err != nil {
		// The verdict first: closing the channel is what the agent powers off at.
		err = v.unready(ctx, fmt.Errorf("%s: %w", v.plan.Name, err))
		a.Close()
		return err
	}
	v.agent = a
	go v.follow(a)
	c.board.AddVM(v.plan.Name, a.Mux())
	c.setVM(v.index, func(r *VMRecord) {
		r.State, r.ReadyNs, r.Devices = Ready, int64(v.timings.Ready), a.Info.Devices
	})
	return nil
}

// unready says why v did not become ready, given what its channel says of that.
func (v *vm) unready(ctx context.Context, err error) error {
	// A QEMU that ends takes the channel along, and watch says more of it: let that come
	// first. What the agent itself says at its end says most.
	var breach *channel.ProtocolError
	said := channel.IsReset(err) || errors.As(err, &breach)
	if !said {
		t := time.NewTimer(endGrace)
		defer t.Stop()
		select {
		case <-ctx.Done():
		case <-t.C:
		}
	}
	var ended *VMError
	cause := context.Cause(ctx)
	if errors.As(cause, &ended) && !said {
		return ended
	}
	if cause != nil && ended == nil {
		err = cause
	}
	return &VMError{Err: err, Console: lastLines(v.qemu, 12)}
}

// endGrace is how long a VM whose channel has ended may take to end itself.
const endGrace = 5 * time.Second

// follow ends v when its channel fails: what is left could not be reached any more, and
// an agent that lives powers its VM off then.
func (v *vm) follow(a *guest.Agent) {
	<-a.Mux().Done()
	err := a.Mux().Err()
	if errors.Is(err, channel.ErrClosed) {
		return // by us
	}
	t := time.NewTimer(endGrace)
	defer t.Stop()
	select {
	case <-v.qemu.Done():
	case <-t.C:
		v.mu.Lock()
		v.why = err
		v.mu.Unlock()
		v.qemu.Kill()
	}
}

// ended says that v, whose QEMU is gone, has ended, and why.
func (v *vm) ended(when string) *VMError {
	v.mu.Lock()
	why := v.why
	v.mu.Unlock()
	var broken *channel.CarrierError
	switch {
	case errors.As(why, &broken): // its text has the console's end already
		why = fmt.Errorf("its channel failed: %w", broken.Cause)
	case why == nil:
		why = v.qemu.Err()
	}
	return &VMError{Err: fmt.Errorf("%s ended%s%s", v.plan.Name, when, because(why)), Console: lastLines(v.qemu, 12)}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// watch marks VMs that end, and tells when the last has. One that ends before the cluster
// is ready ends the start.
func (c *Cluster) watch(giveUp context.CancelCauseFunc) {
	var wg sync.WaitGroup
	for _, v := range c.vms {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-v.qemu.Done()
			c.board.RemoveVM(v.plan.Name)
			c.write(func(r *Record) {
				r.VMs[v.index].State, r.VMs[v.index].PID = Dead, 0
				switch r.State {
				case Booting: // under the record's lock: Up looks after it has written Ready
					giveUp(v.ended(" while the cluster booted"))
				case Ready:
					c.lost <- v.ended("")
				}
			})
		}()
	}
	wg.Wait()
	close(c.died)
}

// socketPair gives two ends of a stream.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	// Ours is non-blocking, so that closing it ends a read that waits.
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "channel"), os.NewFile(uintptr(fds[1]), "channel of QEMU"), nil
}
