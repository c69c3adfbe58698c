package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

func init() {
	backend.Register("vsphere", func(string) (backend.Driver, error) { return &driver{}, nil })
}

// driver carries plans out in a vCenter. Probe logs in and finds what the cluster file names, Hosts reads the hosts, Prepare and Network
// settle what the VMs become.
type driver struct {
	mu    sync.Mutex
	c     *center // nil before Probe or Attach
	login *Access

	file       *spec.Cluster
	place      *place
	hosts      []topology.Host
	translated *esx.Translation
	cards      map[string]backend.Card // by VM; none: the template's own
	keys       keys
}

// center logs in, once.
func (d *driver) center(ctx context.Context) (*center, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c != nil {
		return d.c, nil
	}
	a, err := ReadAccess("")
	if err != nil {
		return nil, err
	}
	c, err := openCenter(ctx, a)
	if err != nil {
		return nil, err
	}
	d.c, d.login = c, a
	return c, nil
}

// Probe logs in and finds the template, the folder, the datastore, the pool and the network that the cluster file names.
func (d *driver) Probe(ctx context.Context, s *spec.Cluster) (*backend.Probed, error) {
	c, err := d.center(ctx)
	if err != nil {
		return nil, err
	}
	if s.Network.Type == "none" {
		return nil, errors.New("backend vsphere reaches its VMs over their network: leave network: none out")
	}
	d.file = s
	if d.place, err = c.find(ctx, s.VSphere); err != nil {
		return nil, err
	}
	return d.Plans(), nil
}

// Hosts are the ESXi hosts that VMs may run on.
func (d *driver) Hosts(ctx context.Context) ([]topology.Host, error) {
	if d.place == nil {
		return nil, errNotProbed
	}
	devices := false
	for i := range d.file.VMs {
		devices = devices || len(d.file.VMs[i].Devices) > 0
	}
	hosts, err := d.c.findHosts(ctx, d.place, devices)
	d.hosts = hosts
	return hosts, err
}

// errNotProbed says that calls came in another order than the seam has.
var errNotProbed = errors.New("backend vsphere: nobody has logged in yet")

// Prepare settles what the plan's VMs become, and checks it against the template and the pools.
func (d *driver) Prepare(ctx context.Context, p *plan.Plan, _ func(backend.Ref) error) error {
	t, err := esx.Translate(d.file.VSphere, p, d.hosts)
	if err != nil {
		return err
	}
	d.translated = t
	return d.checkPlan(ctx)
}

// Check fails for a VM that the plan does not have.
func (d *driver) Check(vm plan.VM, _ backend.Settings) error {
	_, err := d.vm(vm.Name)
	return err
}

// vm is what a plan's VM becomes.
func (d *driver) vm(name string) (*esx.VM, error) {
	if d.translated != nil {
		for i := range d.translated.VMs {
			if d.translated.VMs[i].Name == name {
				return &d.translated.VMs[i], nil
			}
		}
	}
	return nil, fmt.Errorf("VM %s: %w", name, errNotProbed)
}

// Close ends the session, unless another driver of this process has it too.
func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.c == nil {
		return nil
	}
	c := d.c
	d.c = nil
	return c.release()
}

// Version says which simulator or vCenter answers; without a login it is the library's.
func (d *driver) Version(context.Context) (string, error) { return "govmomi 0.48.1", nil }

// Plans are what ESXi can do, wherever it is.
func (*driver) Plans() *backend.Probed {
	return &backend.Probed{Accel: host.KVM, Caps: backend.Caps{
		Links: []backend.LinkKind{backend.LinkOwn}, OwnDisk: true, VFIO: true, Dynamic: true, Cores: true, Remote: true,
		Why: map[backend.Cap]string{
			backend.CapPins:   "each vCPU has a core of its own, which ESXi chooses: leave pin out",
			backend.CapRegion: "ESXi has no memory that VMs share: write region: 0",
		}}}
}

// Advise says what ESXi does not promise of a plan, and what DRS and HA would undo.
func (*driver) Advise(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) []string {
	t, err := esx.Translate(s.VSphere, p, hosts)
	if err != nil {
		return nil // Translate says it
	}
	var list []string
	for _, s := range t.Lost {
		list = append(list, "not promised by ESXi: "+s)
	}
	return append(list, t.Undone...)
}

// Translate says what a plan's VMs become.
func (*driver) Translate(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) (backend.Translation, error) {
	t, err := esx.Translate(s.VSphere, p, hosts)
	if err != nil {
		return nil, err
	}
	return translation{t}, nil
}

type translation struct{ *esx.Translation }

// JSON writes it for programs.
func (t translation) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(t.Translation)
}
