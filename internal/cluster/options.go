package cluster

import (
	"time"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// Options of Up.
type Options struct {
	// Spec is the cluster file: checked, defaults filled in, paths absolute.
	Spec *spec.Cluster
	// Command is what the user typed, for `nearmetal ps`.
	Command string
	// Launcher is an MPI launcher that will be run in the VMs, by its name: a root that is not this host's must have it.
	Launcher string
	// Events are called as the start goes on; any of them may be nil.
	Events Events
	// BootTimeout bounds the time from the VMs' start to ready, per cluster; 0: 5 minutes.
	BootTimeout time.Duration
	// NoVerify leaves out that the VMs are compared with the plan once they are ready.
	NoVerify bool
	// Quiet leaves out that this host emulates VMs: whoever starts one cluster after another knows.
	Quiet bool
	// Verbose reports what went well, too.
	Verbose bool
	// Until is a process, by its id, whose end ends a cluster of Supervised; 0: none.
	Until int
	// Devices are the PCI addresses of the host's functions that the VMs may have; nil: all that
	// the user may.
	Devices []string
	// Kept: the cluster outlives the command that starts it, and may be renamed.
	Kept bool
	// Limited: a resource manager limits what the VMs use; isolation: strict adds no cgroups.
	Limited bool
	// Plan is where the VMs are put, by a front that has planned for several hosts beside what Planned says of this
	// one; nil: Up plans. Part is the front's cluster.
	Plan    *plan.Plan
	Planned plan.Ledger
	Part    string
	// Overlay joins the VMs to those of other hosts; nil: they are alone.
	Overlay *Overlay
}

// Events are functions that are called while a cluster starts. They are
// called from one goroutine at a time.
type Events struct {
	// Notice is a line that the user should read, once.
	Notice func(line string)
	// Stage says that the start is at a stage ("preparing", "booting", …), and for how
	// many of the VMs it is over.
	Stage func(name string, done, total int)
}

func (e Events) notice(line string) {
	if e.Notice != nil && line != "" {
		e.Notice(line)
	}
}

func (e Events) stage(name string, done, total int) {
	if e.Stage != nil {
		e.Stage(name, done, total)
	}
}

// The stages of a start.
const (
	StagePrepare = "preparing kernel and initramfs"
	StageAsk     = "asking the back end" // where VMs start from what the back end has
	StageDevices = "handing devices over"
	StageBoot    = "booting VMs"
	StageDown    = "ending VMs"
)

// Timings are what the phases of one VM's life took, in ns. The kernel's, root's and
// agent's come from the guest and lie between Started and Ready.
type Timings struct {
	VM      string        `json:"vm"`
	Prepare time.Duration `json:"prepareNs"` // from Up to the start of the VM
	Started time.Duration `json:"startedNs"` // from the start of the VM until its back end had it running
	Ready   time.Duration `json:"readyNs"`   // from the start of the VM until the agent was ready
	Phases  []PhaseAt     `json:"phases"`    // in the guest
}

// PhaseAt is a point of a guest's boot, since its kernel started.
type PhaseAt struct {
	Name string        `json:"name"`
	At   time.Duration `json:"atNs"`
}
