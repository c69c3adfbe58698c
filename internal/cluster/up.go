package cluster

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"time"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/journal"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

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
		dir: dir, lock: l, started: start, kept: o.Kept,
		board: channel.NewSwitchboard(),
		asked: make(chan struct{}), died: make(chan struct{}),
		rec: Record{Name: name, State: Booting, Backend: o.Spec.Backend, Owner: os.Getpid(), Command: o.Command, Part: o.Part,
			Created: start.UTC().Truncate(time.Second), Kept: o.Kept, Spec: o.Spec},
	}
	if o.Part != "" {
		c.answers = newAnswering()
	}
	c.board.Policy = c.admit(ownPolicy().Check)
	if err := c.up(ctx, o); err != nil {
		c.end(ctx, false)
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause // the failure is only what the interruption broke
		}
		return nil, err
	}
	return c, nil
}

// up is the start, concern by concern. What it leaves when it fails, end removes.
func (c *Cluster) up(ctx context.Context, o Options) error {
	var err error
	if c.journal, err = journal.Open(filepath.Join(c.dir, journalFile)); err != nil {
		return err
	}
	if err := c.write(nil); err != nil {
		return err
	}
	if len(o.Spec.Placement.Hosts) > 0 {
		return c.upHosts(ctx, o)
	}
	var noticeMu sync.Mutex
	notice := func(line string) {
		noticeMu.Lock()
		defer noticeMu.Unlock()
		o.Events.notice(line)
	}
	stage := StagePrepare
	if o.Spec.Root == spec.RootBackend {
		stage = StageAsk
	}
	o.Events.stage(stage, 0, 0)
	p, err := c.prepare(ctx, o, notice)
	if err != nil {
		return err
	}
	more := &again{p: p, o: o}
	defer func() {
		if c.again == nil {
			more.close()
		}
	}()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := c.reserve(ctx, p, o, notice); err != nil {
		return err
	}
	reg, err := c.join(ctx, p, o)
	if err != nil {
		return err
	}
	more.reg = reg
	if err := c.open(p, o, notice); err != nil {
		return err
	}
	if err := c.boot(ctx, p, o, reg); err != nil {
		return err
	}
	if c.restartable() {
		more.o.Events = Events{} // whoever got them is gone by then
		c.again = more
	}
	return nil
}

// restartable says whether VMs of the cluster may be started again one by one: then their links, their region and
// what they start from stay open.
func (c *Cluster) restartable() bool {
	return c.kept && c.caps.DiesWithOwner && c.wiring.overlay == nil
}

// reserve makes the plan, and takes what it needs of the host and the back end.
func (c *Cluster) reserve(ctx context.Context, p *prepared, o Options, notice func(string)) error {
	if err := c.place(p, o, notice); err != nil {
		return err
	}
	if d, ok := c.driver.(backend.Preparer); ok {
		if err := d.Prepare(ctx, p.plan, c.record); err != nil {
			return err
		}
	}
	if c.devices == nil {
		return p.openImage(o.Spec, nil, notice)
	}
	o.Events.stage(StageDevices, 0, 0)
	if err := c.bind(ctx, p.plan); err != nil {
		return err
	}
	return p.openImage(o.Spec, c.devices.host, notice)
}

// join makes what joins the VMs, their network and their region (nil: none), and has the back end
// check every VM with it.
func (c *Cluster) join(ctx context.Context, p *prepared, o Options) (*region.Region, error) {
	var id region.ID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	var err error
	if c.wiring, err = c.network(ctx, p, o, id); err != nil {
		return nil, err
	}
	for i, v := range p.plan.VMs {
		c.vms = append(c.vms, &vm{plan: v, index: i, timings: Timings{VM: v.Name}})
		if err := c.driver.Check(v, c.settings(c.vms[i], o.Spec, p)); err != nil {
			return nil, err
		}
	}
	return makeRegion(p.plan.Region, id)
}

// open puts what clients and launchers need into the cluster's directory, and serves its socket.
func (c *Cluster) open(p *prepared, o Options, notice func(string)) error {
	c.fill(p)
	if err := c.joinHosts(); err != nil {
		return err
	}
	if err := c.linkLauncher(); err != nil {
		return err
	}
	if err := c.prepareFabric(o, p.plan.Region, notice); err != nil {
		return err
	}
	return c.serve()
}

// fill writes the VMs of the plan into the record.
func (c *Cluster) fill(p *prepared) {
	c.mu.Lock()
	for i, v := range p.plan.VMs {
		c.rec.VMs = append(c.rec.VMs, VMRecord{
			Name: v.Name, VCPUs: v.VCPUs, Subnet: c.wiring.subnet(i), Uplink: c.wiring.uplink, MemoryBytes: v.MemoryBytes, State: Booting})
		if ip := c.wiring.ip(i); ip.IsValid() {
			c.rec.VMs[i].IP = ip.String()
		}
	}
	c.mu.Unlock()
	c.write(nil)
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
