// Package local prepares, boots, isolates, watches, stops, restarts and ends the VMs of a cluster that run on this
// host.
package local

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/limits"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// VMs are the VMs of a cluster on this host. The zero value is not usable; see New.
type VMs struct {
	own     *state.Owned
	board   *channel.Switchboard
	started time.Time
	driver  backend.Driver
	caps    backend.Caps
	net     *wiring.Net
	devices *claim.Claims // nil: no VM requests a device
	fences  fences
	vms     []*vm
	watched watched
	calls   func(port uint16) error // the argument calls of New
	restart *restartState

	holding sync.Mutex // serializes Hold, Rename and Restart
	mu      sync.Mutex // protects giveUp
	giveUp  func()     // cancels a restart that is in progress; nil: none is
}

// options are a request with the receiver of the start's events.
type options struct {
	start.Request
	events start.Events
}

// fences isolate the VMs from the user's and the host's resources.
type fences struct {
	veil   *isolate.Veil // filters the VMs' view of the host's files; nil: no filter
	groups limits.Groups // for isolation: strict
}

// New returns the VMs of the cluster own, none of which exists yet. Programs reach them through board. calls makes a
// part listen on a launcher's port of its front; nil: the cluster is not a part.
func New(own *state.Owned, board *channel.Switchboard, calls func(port uint16) error) *VMs {
	return &VMs{own: own, board: board, calls: calls, started: time.Now(), watched: watched{died: make(chan struct{})}}
}

// Lost returns a channel that receives an error for each VM that ends before Stop; the error names the VM. The VMs
// must be prepared.
func (m *VMs) Lost() <-chan error { return m.watched.lost }

// Died returns a channel that is closed when the last VM has ended.
func (m *VMs) Died() <-chan struct{} { return m.watched.died }

// Timings returns the timings of the start, one per VM.
func (m *VMs) Timings() []start.Timings {
	var t []start.Timings
	for _, v := range m.vms {
		t = append(t, v.timings)
	}
	return t
}

// Prepare creates and reserves everything that the VMs need to start: their plan, devices, network, region and
// isolation, and the files in the cluster's directory for clients and launchers. If it fails, or ctx ends first, the
// caller stops and closes the VMs.
func (m *VMs) Prepare(ctx context.Context, s start.Request, ev start.Events) error {
	o := options{s, ev}
	var noticeMu sync.Mutex
	notice := func(line string) {
		noticeMu.Lock()
		defer noticeMu.Unlock()
		ev.Note(line)
	}
	stage := start.StagePrepare
	if s.Spec.Root == spec.RootBackend {
		stage = start.StageAsk
	}
	ev.At(stage, 0, 0)
	p, err := m.prepare(ctx, o, notice)
	if err != nil {
		return err
	}
	m.restart = &restartState{p: p, o: o}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.reserve(ctx, p, o, notice); err != nil {
		return err
	}
	if m.restart.reg, err = m.join(ctx, p, o); err != nil {
		return err
	}
	m.watched.lost = make(chan error, len(m.vms))
	return m.open(p, o, notice)
}

// open creates the files in the cluster's directory that clients and launchers need.
func (m *VMs) open(p *prepared, o options, notice func(string)) error {
	if err := m.fill(p); err != nil {
		return err
	}
	if m.net.Joined != nil {
		if err := m.net.Joined.Start(m.own, m.board); err != nil {
			return err
		}
	}
	if err := LinkLauncher(m.own); err != nil {
		return err
	}
	if !m.net.Late { // otherwise awaitAddresses writes them
		if err := WriteHostFiles(m.own); err != nil {
			return err
		}
	}
	return m.prepareFabric(o, p.plan.Region, notice)
}

// Stop ends the VMs: with their agents' help while ctx lasts, or immediately without it.
func (m *VMs) Stop(ctx context.Context, help bool) error {
	if help {
		m.holding.Lock() // stopped VMs could not power off
		m.resume(user{})
		m.holding.Unlock()
	}
	errs := make([]error, len(m.vms))
	var wg sync.WaitGroup
	for i, v := range m.vms {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = v.end(ctx, help)
		}()
	}
	wg.Wait()
	if m.net != nil {
		m.net.Close()
	}
	return errors.Join(errs...)
}

// Close releases the resources that the VMs were started with. It is called after the VMs have ended and the journal
// is undone.
func (m *VMs) Close() {
	if m.driver != nil {
		m.driver.Close()
	}
	m.devices.Close()
	m.restart.close()
	if m.fences.veil != nil {
		m.fences.veil.Close()
	}
}

// restartable reports whether single VMs of the cluster may be restarted. Their links, their region and their image
// then remain open.
func (m *VMs) restartable() bool {
	return m.own.Record().Kept && m.caps.DiesWithOwner && m.net.Joined == nil
}

// reserve makes the plan, and reserves the resources that it needs on the host and in the backend.
func (m *VMs) reserve(ctx context.Context, p *prepared, o options, notice func(string)) error {
	if err := m.place(p, o, notice); err != nil {
		return err
	}
	if d, ok := m.driver.(backend.Preparer); ok {
		if err := d.Prepare(ctx, p.plan, m.own.Ref); err != nil {
			return err
		}
	}
	if m.devices == nil {
		return p.openImage(o.Spec, nil, notice)
	}
	o.events.At(start.StageDevices, 0, 0)
	if err := m.bind(ctx, p.plan); err != nil {
		return err
	}
	return p.openImage(o.Spec, m.devices.Host, notice)
}

// join creates the VMs' network and their region (nil: none), and makes the backend check the settings of every VM.
func (m *VMs) join(ctx context.Context, p *prepared, o options) (*region.Region, error) {
	var id region.ID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	var err error
	if m.net, err = m.network(ctx, p, o, id); err != nil {
		return nil, err
	}
	for i, v := range p.plan.VMs {
		m.vms = append(m.vms, &vm{plan: v, index: i, timings: start.Timings{VM: v.Name}})
		if err := m.driver.Check(v, m.settings(m.vms[i], o.Spec, p)); err != nil {
			return nil, err
		}
	}
	return makeRegion(p.plan.Region, id)
}

// fill writes the VMs of the plan into the record.
func (m *VMs) fill(p *prepared) error {
	return m.own.Write(func(r *state.Record) {
		for i, v := range p.plan.VMs {
			r.VMs = append(r.VMs, state.VMRecord{
				Name: v.Name, VCPUs: v.VCPUs, Subnet: m.net.Subnet(i), Uplink: m.net.Uplink, MemoryBytes: v.MemoryBytes, State: state.Booting})
			if ip := m.net.IP(i); ip.IsValid() {
				r.VMs[i].IP = ip.String()
			}
		}
	})
}

// host returns the machine that the plan calls name.
func (p *prepared) host(name string) *topology.Host {
	for i := range p.hosts {
		if p.hosts[i].Name == name {
			return &p.hosts[i]
		}
	}
	return &p.hosts[0]
}

// names returns the names of the planned VMs.
func (p *prepared) names() []string {
	names := make([]string, len(p.plan.VMs))
	for i, v := range p.plan.VMs {
		names[i] = v.Name
	}
	return names
}
