package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
)

// Cluster is a cluster that this process owns.
type Cluster struct {
	dir     string
	lock    *os.File
	journal *journal.Journal
	board   *channel.Switchboard
	ln      *net.UnixListener
	wiring  *wiring
	started time.Time
	vms     []*vm

	mu     sync.Mutex // of rec
	rec    Record
	down   sync.Once
	asked  chan struct{} // closed when somebody asks for the cluster's end
	askOne sync.Once
	died   chan struct{} // closed when no VM runs any more
	lost   chan error    // gets an error for each VM that ended by itself
}

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
}

// Name of the cluster.
func (c *Cluster) Name() string { return c.rec.Name }

// Record is a copy of what the cluster's record says now.
func (c *Cluster) Record() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rec
	r.VMs = append([]VMRecord(nil), r.VMs...)
	return r
}

// Asked is closed when a client asked for the cluster's end (`nearmetal down`).
func (c *Cluster) Asked() <-chan struct{} { return c.asked }

// Died is closed when the last VM has ended.
func (c *Cluster) Died() <-chan struct{} { return c.died }

// Lost gets an error for each VM that ends before Down; it names the VM.
func (c *Cluster) Lost() <-chan error { return c.lost }

// Timings of the start, a VM each.
func (c *Cluster) Timings() []Timings {
	var t []Timings
	for _, v := range c.vms {
		t = append(t, v.timings)
	}
	return t
}

// QEMU gives the QEMU process of each VM, for `nearmetal verify` and the benchmarks.
func (c *Cluster) QEMU() []*qemu.VM {
	var q []*qemu.VM
	for _, v := range c.vms {
		q = append(q, v.qemu)
	}
	return q
}

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
	var id region.ID
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	uplink := o.Spec.Network.Uplink == "user" || o.Spec.Network.Uplink == "auto" && p.caps.UserNet()
	names := make([]string, len(p.plan.VMs))
	for i, v := range p.plan.VMs {
		names[i] = v.Name
	}
	if c.wiring, err = wire(o.Spec.Network, id, names, uplink, c.journal); err != nil {
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
	if err := c.linkLauncher(); err != nil {
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
	c.rec.Accel = string(p.accel)
	c.rec.Plan = p.plan
	for i, v := range p.plan.VMs {
		c.vms = append(c.vms, &vm{plan: v, index: i, timings: Timings{VM: v.Name}})
		c.rec.VMs = append(c.rec.VMs, VMRecord{
			Name: v.Name, VCPUs: v.VCPUs, Subnet: c.wiring.subnet(i), Uplink: uplink, MemoryBytes: v.MemoryBytes, State: Booting, IP: c.wiring.ip(i).String()})
	}
	c.mu.Unlock()
	c.write(nil)
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
		HostName: hostName, Peers: names,
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
		Explain: func() string { return lastLines(v.qemu) },
		Accept:  c.board.FromVM(v.plan.Name),
	})
	if err != nil {
		return v.unready(ctx, err)
	}
	v.timings.Ready = time.Since(v.began)
	for _, ph := range a.Info.Phases {
		v.timings.Phases = append(v.timings.Phases, PhaseAt{ph.Name, ph.At})
	}
	if err := c.putHostfiles(ctx, a); err != nil {
		a.Close()
		return fmt.Errorf("%s: %w", v.plan.Name, err)
	}
	v.agent = a
	go v.follow(a)
	c.board.AddVM(v.plan.Name, a.Mux())
	c.setVM(v.index, func(r *VMRecord) { r.State = Ready; r.ReadyNs = int64(v.timings.Ready) })
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
	return &VMError{Err: err, Console: v.qemu.LastLines(12)}
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
	return &VMError{Err: fmt.Errorf("%s ended%s%s", v.plan.Name, when, because(why)), Console: v.qemu.LastLines(12)}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// lastLines are what the console of q said last, for the error that ends its streams.
func lastLines(q *qemu.VM) string {
	lines := q.LastLines(4)
	if len(lines) == 0 {
		return ""
	}
	return "its console's last lines: " + strings.Join(lines, " | ")
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

func (c *Cluster) setVM(i int, f func(*VMRecord)) {
	c.write(func(r *Record) { f(&r.VMs[i]) })
}

// write changes the record and puts it into the cluster's directory.
func (c *Cluster) write(f func(*Record)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f != nil {
		f(&c.rec)
	}
	if c.dir == "" {
		return nil // the cluster has ended
	}
	return c.rec.write(c.dir)
}

// Down ends the cluster: the agents write back and power off, and what does not end
// within the context, or at most 10 s, is killed. A ctx that is done kills at once.
// Nothing is left afterwards.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.end(ctx)
}

// end ends the cluster; without a ctx at once.
func (c *Cluster) end(ctx context.Context) (err error) {
	c.down.Do(func() {
		if ctx != nil {
			c.write(func(r *Record) { r.State = Ending })
		}
		var wg sync.WaitGroup
		for _, v := range c.vms {
			wg.Add(1)
			go func() {
				defer wg.Done()
				v.end(ctx)
			}()
		}
		wg.Wait()
		if c.ln != nil {
			c.ln.Close()
		}
		if c.wiring != nil {
			c.wiring.close()
		}
		if c.journal != nil {
			_, err = c.journal.UndoAll()
			c.journal.Close()
		}
		c.mu.Lock()
		dir := c.dir
		c.dir = ""
		c.mu.Unlock()
		if err == nil { // a journal that could not be undone is kept for the next sweep
			err = os.RemoveAll(dir)
		}
		c.lock.Close()
	})
	return err
}

// end ends one VM: by its agent while ctx lasts, else by SIGKILL.
func (v *vm) end(ctx context.Context) {
	v.mu.Lock()
	q := v.qemu
	v.mu.Unlock()
	if q != nil && ctx != nil && v.agent != nil {
		if v.agent.Poweroff(ctx) == nil {
			select {
			case <-q.Done():
			case <-ctx.Done():
			}
		}
	}
	if q != nil {
		q.Kill()
	}
	if v.agent != nil {
		v.agent.Close()
	} else if v.channel != nil {
		v.channel.Close()
	}
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

// Emulated tells whether the cluster's timings mean nothing.
func (c *Cluster) Emulated() bool { return c.rec.Accel == string(host.TCG) }
