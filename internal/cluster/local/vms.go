// Package local is the VMs of a cluster that this host has: prepared, booted, fenced in, watched, stopped, restarted, ended.
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
	devices *claim.Claims // nil: none are wanted
	fences  fences
	vms     []*vm
	watched watched
	calls   func(port uint16) error // of New
	again   *again

	holding sync.Mutex // Hold, Rename and Restart, one at a time
	mu      sync.Mutex // of giveUp
	giveUp  func()     // ends a restart that is under way; nil: none is
}

// options are a request with who hears of the start.
type options struct {
	start.Request
	events start.Events
}

// fences are what keeps the VMs from what is the user's and the host's.
type fences struct {
	veil   *isolate.Veil // what the VMs see through; nil: nothing
	groups limits.Groups // of isolation: strict
}

// New returns the VMs of the cluster own, of which there are none yet. Programs reach them through board. calls has a part
// listen on a launcher's port of its front; nil: the cluster is no part.
func New(own *state.Owned, board *channel.Switchboard, calls func(port uint16) error) *VMs {
	return &VMs{own: own, board: board, calls: calls, started: time.Now(), watched: watched{died: make(chan struct{})}}
}

// Lost gets an error for each VM that ends before Stop; it names the VM. VMs are prepared.
func (m *VMs) Lost() <-chan error { return m.watched.lost }

// Died is closed when the last VM has ended.
func (m *VMs) Died() <-chan struct{} { return m.watched.died }

// start.Timings of the start, one per VM.
func (m *VMs) Timings() []start.Timings {
	var t []start.Timings
	for _, v := range m.vms {
		t = append(t, v.timings)
	}
	return t
}

// Prepare makes and reserves all that the VMs start from: their plan, devices, network, region and fences, and what
// clients and launchers find in the cluster's directory. When it fails, or ctx ends first, the caller stops and closes the VMs.
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
	m.again = &again{p: p, o: o}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.reserve(ctx, p, o, notice); err != nil {
		return err
	}
	if m.again.reg, err = m.join(ctx, p, o); err != nil {
		return err
	}
	m.watched.lost = make(chan error, len(m.vms))
	return m.open(p, o, notice)
}

// open puts what clients and launchers need into the cluster's directory.
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
	if !m.net.Late { // else awaitAddresses writes them
		if err := WriteHostFiles(m.own); err != nil {
			return err
		}
	}
	return m.prepareFabric(o, p.plan.Region, notice)
}

// Stop ends the VMs: with their agents' help while ctx lasts, or without it at once.
func (m *VMs) Stop(ctx context.Context, help bool) error {
	if help {
		m.holding.Lock() // VMs that stand still could not end by themselves
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

// Close releases what the VMs were started from. They have ended, and the journal is undone.
func (m *VMs) Close() {
	if m.driver != nil {
		m.driver.Close()
	}
	m.devices.Close()
	m.again.close()
	if m.fences.veil != nil {
		m.fences.veil.Close()
	}
}

// restartable says whether VMs of the cluster may be started again one by one: then their links, their region and
// what they start from stay open.
func (m *VMs) restartable() bool {
	return m.own.Record().Kept && m.caps.DiesWithOwner && m.net.Joined == nil
}

// reserve makes the plan, and takes what it needs of the host and the backend.
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

// join makes what joins the VMs, their network and their region (nil: none), and has the backend
// check every VM with it.
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

// host is the machine that the plan calls name.
func (p *prepared) host(name string) *topology.Host {
	for i := range p.hosts {
		if p.hosts[i].Name == name {
			return &p.hosts[i]
		}
	}
	return &p.hosts[0]
}

// names are those of the planned VMs.
func (p *prepared) names() []string {
	names := make([]string, len(p.plan.VMs))
	for i, v := range p.plan.VMs {
		names[i] = v.Name
	}
	return names
}
