package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
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
	began   time.Time // start of the VM
	timings start.Timings
	mu      sync.Mutex       // protects inst, noted, agent, why and leaving
	noted   chan struct{}    // closed when the end of inst is in the record and was sent to Lost
	why     error            // the failure of its channel for which the owner killed the VM
	leaving backend.Instance // the instance that a restart is ending
	pauses  pauses
}

// instance returns v's instance; nil before it is started.
func (v *vm) instance() backend.Instance {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.inst
}

// current returns v's instance with its noted channel.
func (v *vm) current() (backend.Instance, chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.inst, v.noted
}

// settings returns the backend's settings for v, in addition to its plan.
func (m *VMs) settings(v *vm, s *spec.Cluster, p *prepared) backend.Settings {
	return backend.Settings{
		Accel: p.accel, TSCKHz: p.tsc, SlowStrings: p.slowStrings, PVH: p.image != nil && p.image.PVH(), KernelArgs: s.KernelArgs,
		Exports: m.veiled(exports(s)), Links: m.net.Links(v.index), Region: p.plan.Region,
		Strict: s.Isolation == "strict",
	}
}

// startOne starts v.
func (m *VMs) startOne(ctx context.Context, v *vm, s *spec.Cluster, p *prepared, reg *region.Region) error {
	var cfg []byte
	var err error
	if !m.net.Late {
		if cfg, err = m.config(v, s, p, reg); err != nil {
			return err
		}
	}
	files := backend.Files{Links: m.net.Files(v.index)}
	if p.image != nil {
		files.Kernel = p.image.KernelFile()
		if files.Initrd, err = p.image.WithConfig(cfg); err != nil {
			return err
		}
		defer files.Initrd.Close()
	}
	done, err := m.veilFiles(&files, s)
	if err != nil {
		return err
	}
	defer done()
	if files.Cgroup, err = m.fences.groups.Make(m.own.Name(), &v.plan, p.plan.Region, m.own.Journal); err != nil {
		return err
	}
	if files.Cgroup != nil {
		defer files.Cgroup.Close()
	}
	if reg != nil {
		files.Region = reg.File
	}
	v.timings.Prepare = time.Since(m.started)
	began := time.Now()
	i, err := m.driver.Start(ctx, backend.Request{
		Cluster: m.own.Name(), VM: v.plan, Settings: m.settings(v, s, p), Files: files, Config: cfg,
		ConsoleLog: m.own.Path(state.ConsoleFile(v.plan.Name)), Record: m.own.Ref,
	})
	if err != nil {
		return err
	}
	v.timings.Started = time.Since(began)
	v.began = began
	v.mu.Lock()
	v.inst, v.noted = i, make(chan struct{})
	v.mu.Unlock()
	m.own.WriteVM(v.index, func(r *state.VMRecord) { r.PID = i.PID() })
	return nil
}

// exports returns the directories that every VM sees: its root, if that is this host's, and the shares.
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

// filesLine returns a line on how the VMs see this host's files; "": they see none.
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

// shareTag returns the mount tag of a cluster file's share.
func shareTag(i int) string { return fmt.Sprintf("share%d", i) }

// config returns the configuration of the VM's init.
func (m *VMs) config(v *vm, s *spec.Cluster, p *prepared, reg *region.Region) ([]byte, error) {
	names := p.names()
	hostName, _ := os.Hostname()
	virtiofs := s.Files == string(backend.ExportVirtiofs)
	g := guest.Config{
		Name: v.plan.Name, Index: v.index, Root: guest.Mount{Tag: rootTag, Virtiofs: virtiofs}, OwnRoot: s.Root == spec.RootBackend,
		Links: m.net.Config(v.index), Hosts: m.net.HostEntries(names, hostName),
		HostName: hostName, Peers: m.net.Peers(names),
	}
	for i, sh := range s.Shares {
		g.Shares = append(g.Shares, guest.Mount{Tag: shareTag(i), Virtiofs: virtiofs, Target: sh.Target, ReadOnly: sh.Mode == "ro"})
	}
	if virtiofs {
		g.MaxInodes = p.inodes
	}
	if len(v.plan.Devices) > 0 {
		var err error
		if g.Functions, err = m.functions(p.host(v.plan.Host), s, p.plan, v.index); err != nil {
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
func (m *VMs) await(ctx context.Context, v *vm) error {
	i, noted := v.current()
	conn, err := i.Agent(ctx)
	if err != nil {
		return v.unready(ctx, fmt.Errorf("%s: the way to its agent: %w", v.plan.Name, err))
	}
	a, err := guest.NewAgent(ctx, conn, guest.AgentOptions{
		Name:    v.plan.Name,
		Explain: func() string { return explain(i, noted) },
		Accept:  m.board.FromVM(v.plan.Name),
	})
	if err != nil {
		return v.unready(ctx, err)
	}
	v.timings.Ready = time.Since(v.began)
	for _, ph := range a.Info.Phases {
		v.timings.Phases = append(v.timings.Phases, start.PhaseAt{Name: ph.Name, At: ph.At})
	}
	if err := errors.Join(m.putHostfiles(ctx, a), m.putFabric(ctx, a)); err != nil {
		// unready runs before Close, because the agent powers off when its channel closes.
		err = v.unready(ctx, fmt.Errorf("%s: %w", v.plan.Name, err))
		a.Close()
		return err
	}
	v.mu.Lock()
	v.agent = a
	v.mu.Unlock()
	go v.follow(a, i)
	m.board.AddVM(v.plan.Name, a.Mux())
	m.own.WriteVM(v.index, func(r *state.VMRecord) {
		r.State, r.ReadyNs, r.Devices = state.Ready, int64(v.timings.Ready), a.Info.Devices
	})
	if m.caps.Remote {
		return m.own.Write(func(r *state.Record) { r.Accel = slower(r.Accel, a.Info.Hypervisor) })
	}
	return nil
}

// slower returns the accelerator for VMs with accelerator a and one more with b: TCG if either is emulated.
func slower(a, b string) string {
	if a == "" || b == string(host.TCG) {
		return b
	}
	return a
}

// unready returns the reason why v did not become ready, given the error of its channel.
func (v *vm) unready(ctx context.Context, err error) error {
	// When a VM ends, its channel ends too, and watch has the better reason; wait for it first. An error that the
	// agent itself reported is the best reason.
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
	var ended *state.VMError
	cause := context.Cause(ctx)
	if errors.As(cause, &ended) && !said {
		return ended
	}
	if cause != nil && ended == nil {
		err = cause
	}
	return &state.VMError{Err: err, Console: lastLines(v.inst, 12)}
}

// endGrace is how long a VM may take to end after its channel has ended.
const endGrace = 5 * time.Second

// follow kills v when its channel fails, because its programs are unreachable then. A running agent powers its VM off
// first.
func (v *vm) follow(a *guest.Agent, i backend.Instance) {
	<-a.Mux().Done()
	err := a.Mux().Err()
	if errors.Is(err, channel.ErrClosed) {
		return // closed by this process
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

// killTimeout bounds the end of a VM by its backend.
const killTimeout = time.Minute

// kill ends v immediately; an error means that the VM may still run.
func (v *vm) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := v.inst.Kill(ctx); err != nil {
		return fmt.Errorf("%s cannot be ended: %w", v.plan.Name, err)
	}
	return nil
}

// ended returns an error with the reason why v has ended.
func (v *vm) ended(when string) *state.VMError {
	v.mu.Lock()
	why, i := v.why, v.inst
	v.mu.Unlock()
	var broken *channel.CarrierError
	switch {
	case errors.As(why, &broken): // its text already contains the console's end
		why = fmt.Errorf("its channel failed: %w", broken.Cause)
	case why == nil:
		why = i.Err()
	}
	return &state.VMError{Err: fmt.Errorf("%s ended%s%s", v.plan.Name, when, because(why)), Console: lastLines(i, 12)}
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// end ends one VM: with help through its agent while ctx lasts, then through its backend.
func (v *vm) end(ctx context.Context, help bool) (err error) {
	i := v.instance()
	if i != nil && help && v.agent != nil {
		if v.agent.Poweroff(ctx) == nil {
			select {
			case <-i.Done():
			case <-ctx.Done():
			}
		}
	}
	if i != nil {
		err = v.kill()
	}
	if v.agent != nil {
		v.agent.Close()
	}
	return err
}
