package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/words"
)

// vm is a VM of a cluster.
type vm struct {
	plan    plan.VM
	index   int
	inst    backend.Instance
	agent   *guest.Agent
	began   time.Time // of the VM's start
	timings Timings
	mu      sync.Mutex       // of inst, noted, agent, why and leaving
	noted   chan struct{}    // closed when the end of inst is in the record, and said to Lost
	why     error            // why we ended it, where its channel failed
	leaving backend.Instance // that restart ends
	pauses  pauses
}

// instance is v's, nil before it has been started.
func (v *vm) instance() backend.Instance {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.inst
}

// current is v's instance with its noted.
func (v *vm) current() (backend.Instance, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.inst, v.noted
}

// settings returns what the back end gets for v beside its plan.
func (c *Cluster) settings(v *vm, s *spec.Cluster, p *prepared) backend.Settings {
	return backend.Settings{
		Accel: p.accel, TSCKHz: p.tsc, SlowStrings: p.slowStrings, PVH: p.image != nil && p.image.PVH(), KernelArgs: s.KernelArgs,
		Exports: c.veiled(exports(s)), Links: c.wiring.links[v.index], Region: p.plan.Region,
		Strict: s.Isolation == "strict",
	}
}

// start starts v.
func (c *Cluster) start(ctx context.Context, v *vm, s *spec.Cluster, p *prepared, reg *region.Region) error {
	var cfg []byte
	var err error
	if !c.wiring.late {
		if cfg, err = c.config(v, s, p, reg); err != nil {
			return err
		}
	}
	files := backend.Files{Links: c.wiring.files[v.index]}
	if p.image != nil {
		files.Kernel = p.image.KernelFile()
		if files.Initrd, err = p.image.WithConfig(cfg); err != nil {
			return err
		}
		defer files.Initrd.Close()
	}
	done, err := c.veilFiles(&files, s)
	if err != nil {
		return err
	}
	defer done()
	if files.Cgroup, err = c.makeGroup(&v.plan, p); err != nil {
		return err
	}
	if files.Cgroup != nil {
		defer files.Cgroup.Close()
	}
	if reg != nil {
		files.Region = reg.File
	}
	v.timings.Prepare = time.Since(c.started)
	began := time.Now()
	i, err := c.driver.Start(ctx, backend.Request{
		Cluster: c.rec.Name, VM: v.plan, Settings: c.settings(v, s, p), Files: files, Config: cfg,
		ConsoleLog: filepath.Join(c.dir, consoleFile(v.plan.Name)), Record: c.record,
	})
	if err != nil {
		return err
	}
	v.timings.Started = time.Since(began)
	v.began = began
	v.mu.Lock()
	v.inst, v.noted = i, make(chan struct{})
	v.mu.Unlock()
	c.setVM(v.index, func(r *VMRecord) { r.PID = i.PID() })
	return nil
}

// exports are the directories that every VM sees: its root, where that is this host's, and the shares.
func exports(s *spec.Cluster) []backend.Export {
	var list []backend.Export
	switch s.Root {
	case spec.RootBackend:
	case "host":
		list = append(list, backend.Export{Tag: rootTag, Path: "/", ReadOnly: true})
	default:
		list = append(list, backend.Export{Tag: rootTag, Path: s.Root, ReadOnly: true})
	}
	for i, sh := range s.Shares {
		list = append(list, backend.Export{Tag: shareTag(i), Path: sh.Path, ReadOnly: sh.Mode == "ro"})
	}
	for i := range list {
		list[i].Kind = backend.ExportKind(s.Files)
	}
	return list
}

// filesLine says by what the VMs see this host's files; "": they see none.
func filesLine(s *spec.Cluster) string {
	switch n := len(exports(s)); {
	case n == 0:
		return ""
	case s.Files == string(backend.ExportVirtiofs):
		return fmt.Sprintf("the VMs see this host's files by virtiofs: %s of virtiofsd for each VM", words.Count(n, "process", "processes"))
	default:
		return "the VMs see this host's files by 9p"
	}
}

// rootTag is the mount tag of the VMs' root.
const rootTag = "root"

// shareTag is the mount tag of a cluster file's share.
func shareTag(i int) string { return fmt.Sprintf("share%d", i) }

// config returns the configuration of the VM's init.
func (c *Cluster) config(v *vm, s *spec.Cluster, p *prepared, reg *region.Region) ([]byte, error) {
	names := p.names()
	hostName, _ := os.Hostname()
	virtiofs := s.Files == string(backend.ExportVirtiofs)
	g := guest.Config{
		Name: v.plan.Name, Index: v.index, Root: guest.Mount{Tag: rootTag, Virtiofs: virtiofs}, OwnRoot: s.Root == spec.RootBackend,
		Links: c.wiring.config[v.index], Hosts: c.wiring.hosts(names, hostName),
		HostName: hostName, Peers: c.wiring.peers(names),
	}
	for i, sh := range s.Shares {
		g.Shares = append(g.Shares, guest.Mount{Tag: shareTag(i), Virtiofs: virtiofs, Target: sh.Target, ReadOnly: sh.Mode == "ro"})
	}
	if virtiofs {
		g.MaxInodes = p.inodes
	}
	if len(v.plan.Devices) > 0 {
		var err error
		if g.Functions, err = c.functions(p.host(v.plan.Host), s, p.plan, v.index); err != nil {
			return nil, err
		}
	}
	onDevices := false // soft RoCE is on the VM's own network interfaces
	for i := range g.Functions {
		f := &g.Functions[i]
		f.Soft = s.Network.Type == "rxe" && f.Net && !f.RDMA
		onDevices = onDevices || f.Soft
	}
	if s.Network.Type == "rxe" && !onDevices && len(g.Links) > 0 {
		g.SoftRoCE = []string{g.Links[0].Name}
	}
	if reg != nil {
		g.Region = &guest.ConfigRegion{Kind: p.plan.Region.Device, Size: p.plan.Region.SizeBytes,
			UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	}
	return g.Encode()
}

// await waits until the agent of v is ready.
func (c *Cluster) await(ctx context.Context, v *vm) error {
	i, noted := v.current()
	conn, err := i.Agent(ctx)
	if err != nil {
		return v.unready(ctx, fmt.Errorf("%s: the way to its agent: %w", v.plan.Name, err))
	}
	a, err := guest.NewAgent(ctx, conn, guest.AgentOptions{
		Name:    v.plan.Name,
		Explain: func() string { return explain(i, noted) },
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
	v.mu.Lock()
	v.agent = a
	v.mu.Unlock()
	go v.follow(a, i)
	c.board.AddVM(v.plan.Name, a.Mux())
	c.setVM(v.index, func(r *VMRecord) {
		r.State, r.ReadyNs, r.Devices = Ready, int64(v.timings.Ready), a.Info.Devices
	})
	if c.caps.Remote {
		return c.write(func(r *Record) { r.Accel = slower(r.Accel, a.Info.Hypervisor) })
	}
	return nil
}

// slower is the accel of VMs that had accel a, and of one more with b: one that is emulated counts.
func slower(a, b string) string {
	if a == "" || b == string(host.TCG) {
		return b
	}
	return a
}

// unready says why v did not become ready, given what its channel says of that.
func (v *vm) unready(ctx context.Context, err error) error {
	// A VM that ends takes the channel along, and watch says more of it: let that come
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
	return &VMError{Err: err, Console: lastLines(v.inst, 12)}
}

// endGrace is how long a VM whose channel has ended may take to end itself.
const endGrace = 5 * time.Second

// follow ends v when its channel fails: what is left could not be reached any more, and
// an agent that lives powers its VM off then.
func (v *vm) follow(a *guest.Agent, i backend.Instance) {
	<-a.Mux().Done()
	err := a.Mux().Err()
	if errors.Is(err, channel.ErrClosed) {
		return // by us
	}
	t := time.NewTimer(endGrace)
	defer t.Stop()
	select {
	case <-i.Done():
	case <-t.C:
		v.mu.Lock()
		ours := v.inst == i && v.leaving != i
		if ours {
			v.why = err
		}
		v.mu.Unlock()
		if ours {
			v.kill()
		}
	}
}

// killTimeout bounds the end of a VM by its back end.
const killTimeout = time.Minute

// kill ends v at once; the error says that it may still run.
func (v *vm) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := v.inst.Kill(ctx); err != nil {
		return fmt.Errorf("%s cannot be ended: %w", v.plan.Name, err)
	}
	return nil
}

// ended says that v has ended, and why.
func (v *vm) ended(when string) *VMError {
	v.mu.Lock()
	why, i := v.why, v.inst
	v.mu.Unlock()
	var broken *channel.CarrierError
	switch {
	case errors.As(why, &broken): // its text has the console's end already
		why = fmt.Errorf("its channel failed: %w", broken.Cause)
	case why == nil:
		why = i.Err()
	}
	return &VMError{Err: fmt.Errorf("%s ended%s%s", v.plan.Name, when, because(why)), Console: lastLines(i, 12)}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// watch marks VMs that end, and reports when the last has. One that ends before the cluster
// is ready ends the start.
func (c *Cluster) watch(giveUp context.CancelCauseFunc) {
	c.mu.Lock()
	c.living = len(c.vms)
	c.mu.Unlock()
	for _, v := range c.vms {
		i, noted := v.current()
		go c.watchOne(v, i, noted, giveUp)
	}
}

// watchOne marks one VM when it ends, unless that is for a restart, and closes noted. i may be v's no more by then: a
// restart does not wait for this.
func (c *Cluster) watchOne(v *vm, i backend.Instance, noted chan<- struct{}, giveUp context.CancelCauseFunc) {
	defer c.watchLess()
	defer close(noted)
	<-i.Done()
	v.mu.Lock()
	left := v.leaving == i
	v.mu.Unlock()
	if left {
		return
	}
	end := v.ended("").Error()
	c.board.EndVM(v.plan.Name, end+" (nearmetal logs "+c.Name()+"/"+v.plan.Name+" shows its console)")
	c.write(func(r *Record) {
		r.VMs[v.index].State, r.VMs[v.index].PID, r.VMs[v.index].Ended = Dead, 0, end
		switch r.State {
		case Booting: // under the record's lock: Up looks after it has written Ready
			giveUp(v.ended(" while the cluster booted"))
		case Ready:
			select {
			case c.lost <- v.ended(""):
			default: // nobody asks, and restarted VMs have ended before
			}
		}
	})
}

// watchMore announces a VM that is to be watched; false: none is any more.
func (c *Cluster) watchMore() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.living == 0 {
		return false
	}
	c.living++
	return true
}

// watchLess says that a VM is not watched any more.
func (c *Cluster) watchLess() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.living--; c.living == 0 {
		close(c.died)
	}
}
