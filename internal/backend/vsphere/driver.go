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

// driver carries out plans in a vCenter. Probe logs in and finds the objects that the cluster file names, Hosts reads
// the hosts, Prepare and Network determine the VMs' configuration.
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

// Hosts returns the ESXi hosts on which VMs may run.
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

// errNotProbed reports that calls were made in the wrong order.
var errNotProbed = errors.New("backend vsphere: nobody has logged in yet")

// Prepare determines the configuration of the plan's VMs, and checks it against the template and the pools.
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

// vm returns the configuration of a plan's VM.
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

// Close ends the session, unless another driver of this process uses it.
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

// Version returns the version of the library, because the version of the simulator or vCenter is not known without a
// login.
func (d *driver) Version(context.Context) (string, error) { return "govmomi 0.48.1", nil }

// Plans returns ESXi's capabilities, which are the same everywhere.
func (*driver) Plans() *backend.Probed {
	return &backend.Probed{Accel: host.KVM, Caps: backend.Caps{
		Links: []backend.LinkKind{backend.LinkOwn}, OwnDisk: true, VFIO: true, Dynamic: true, Cores: true, Remote: true,
		Why: map[backend.Cap]string{
			backend.CapPins:   "each vCPU has a core of its own, which ESXi chooses: leave pin out",
			backend.CapRegion: "ESXi has no memory that VMs share: write region: 0",
		}}}
}

// Advise returns the parts of a plan that ESXi does not guarantee, and those that DRS and HA would undo.
func (*driver) Advise(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) []string {
	t, err := esx.Translate(s.VSphere, p, hosts)
	if err != nil {
		return nil // Translate returns the error
	}
	var list []string
	for _, s := range t.Lost {
		list = append(list, "not promised by ESXi: "+s)
	}
	return append(list, t.Undone...)
}

// Translate returns the configuration of a plan's VMs.
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
