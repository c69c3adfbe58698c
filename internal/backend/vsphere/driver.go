package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

func init() {
	backend.Register("vsphere", func(string) (backend.Driver, error) { return driver{}, nil })
}

// driver plans for ESXi. It starts no VMs so far.
type driver struct{}

// errPlansOnly says what cannot be done.
var errPlansOnly = errors.New("back end vsphere plans, and starts no VMs so far: nearmetal plan --on vsphere shows what their settings are (docs/vsphere.md)")

func (driver) Probe(context.Context, *spec.Cluster) (*backend.Probed, error) {
	return nil, errPlansOnly
}

func (driver) Check(plan.VM, backend.Settings) error { return errPlansOnly }

func (driver) Start(context.Context, backend.Request) (backend.Instance, error) {
	return nil, errPlansOnly
}

func (driver) Attach(context.Context, backend.Ref) (backend.Instance, error) {
	return nil, errPlansOnly
}

func (driver) Close() error { return nil }

// Plans are what ESXi can do, wherever it is.
func (driver) Plans() *backend.Probed {
	return &backend.Probed{Accel: host.KVM, Caps: backend.Caps{
		Links: []backend.LinkKind{backend.LinkOwn}, OwnDisk: true, VFIO: true, Cores: true, Remote: true,
		Why: map[backend.Cap]string{
			backend.CapPins:   "each vCPU has a core of its own, which ESXi chooses: leave pin out",
			backend.CapRegion: "ESXi has no memory that VMs share: write region: 0",
		}}}
}

// Advise says what ESXi does not promise of a plan, and what DRS and HA would undo.
func (driver) Advise(p *plan.Plan, hosts []topology.Host) []string {
	t, err := esx.Translate(p, hosts)
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
func (driver) Translate(p *plan.Plan, hosts []topology.Host) (backend.Translation, error) {
	t, err := esx.Translate(p, hosts)
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
