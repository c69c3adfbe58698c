// Package start defines the request by which a cluster is started, and the reports of a start.
package start

import (
	"time"

	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// Request describes the cluster to start. It is sent unchanged, as JSON, to a supervisor and to the hosts that run
// the VMs.
type Request struct {
	// Spec is the cluster file: checked, defaults filled in, paths absolute.
	Spec *spec.Cluster `json:"spec"`
	// Command is the user's command line, for nearmetal ps.
	Command string `json:"command,omitempty"`
	// Launcher is the name of an MPI launcher that will run in the VMs: a root other than this host's must contain
	// it.
	Launcher string `json:"launcher,omitempty"`
	// BootTimeout bounds the time from the VMs' start to ready, in ns, per cluster; 0: 5 minutes.
	BootTimeout time.Duration `json:"bootTimeoutNs,omitempty"`
	// NoVerify: the VMs are not compared with the plan once they are ready.
	NoVerify bool `json:"noVerify,omitempty"`
	// Quiet: the way the VMs' instructions run (KVM or TCG) is not reported.
	Quiet bool `json:"quiet,omitempty"`
	// Verbose: successful steps are reported too.
	Verbose bool `json:"verbose,omitempty"`
	// Until is the id of a process whose end ends a cluster started by Supervised; 0: none.
	Until int `json:"until,omitempty"`
	// Devices are the PCI addresses of the host's functions that the VMs may use; nil: all that the user may use.
	Devices []string `json:"devices"`
	// Kept: the cluster outlives the command that starts it, and may be renamed.
	Kept bool `json:"kept,omitempty"`
	// Limited: a resource manager limits the VMs' resources; isolation: strict adds no cgroups.
	Limited bool `json:"limited,omitempty"`
	// Plan places the VMs. A front that plans for several hosts sets it, together with Planned, its ledger of this
	// host; nil: the VMs are planned here.
	Plan    *plan.Plan  `json:"plan,omitempty"`
	Planned plan.Ledger `json:"planned"`
	// Part is the name of the front's cluster that these VMs are a part of; "": none.
	Part string `json:"part,omitempty"`
	// Overlay joins the VMs to those of other hosts; nil: this host runs all VMs.
	Overlay *wiring.Overlay `json:"overlay,omitempty"`
}

// Events are functions that are called while a cluster starts, from one goroutine at a time. Any may be nil.
type Events struct {
	// Notice is called with a line for the user, once.
	Notice func(line string)
	// Stage is called when the start reaches a stage (StageBoot, …), with the number of VMs that have completed it.
	Stage func(name string, done, total int)
}

// Note calls Notice, unless the line is empty.
func (e Events) Note(line string) {
	if e.Notice != nil && line != "" {
		e.Notice(line)
	}
}

// At calls Stage.
func (e Events) At(name string, done, total int) {
	if e.Stage != nil {
		e.Stage(name, done, total)
	}
}

// Stages of a start.
const (
	StagePrepare = "preparing kernel and initramfs"
	StageAsk     = "asking the backend" // for VMs that start from the backend's own disk
	StageDevices = "handing devices over"
	StageBoot    = "booting VMs"
	StageDown    = "ending VMs"
)

// Timings are the durations of the phases of one VM's start, in ns. Kernel, root and agent are measured in the guest
// and lie between Started and Ready.
type Timings struct {
	VM      string        `json:"vm"`
	Prepare time.Duration `json:"prepareNs"` // from Up to the start of the VM
	Started time.Duration `json:"startedNs"` // from the start of the VM until its backend had it running
	Ready   time.Duration `json:"readyNs"`   // from the start of the VM until the agent was ready
	Phases  []PhaseAt     `json:"phases"`    // in the guest
}

// PhaseAt is a point of a guest's boot, relative to the start of its kernel.
type PhaseAt struct {
	Name string        `json:"name"`
	At   time.Duration `json:"atNs"`
}
