// Package start has what a cluster is started from, and how a start is reported.
package start

import (
	"time"

	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// Request is what a cluster is started from. It is passed on as JSON as it stands: to a supervisor, and to the hosts that
// have the VMs.
type Request struct {
	// Spec is the cluster file: checked, defaults filled in, paths absolute.
	Spec *spec.Cluster `json:"spec"`
	// Command is what the user typed, for nearmetal ps.
	Command string `json:"command,omitempty"`
	// Launcher is an MPI launcher that will be run in the VMs, by its name: a root that is not this host's must have it.
	Launcher string `json:"launcher,omitempty"`
	// BootTimeout bounds the time from the VMs' start to ready, in ns, per cluster; 0: 5 minutes.
	BootTimeout time.Duration `json:"bootTimeoutNs,omitempty"`
	// NoVerify: the VMs are not compared with the plan once they are ready.
	NoVerify bool `json:"noVerify,omitempty"`
	// Quiet: how the VMs' instructions run is not reported.
	Quiet bool `json:"quiet,omitempty"`
	// Verbose: what went well is reported as well.
	Verbose bool `json:"verbose,omitempty"`
	// Until is a process, by its id, whose end ends a cluster of Supervised; 0: none.
	Until int `json:"until,omitempty"`
	// Devices are the PCI addresses of the host's functions that the VMs may have; nil: all that the user may.
	Devices []string `json:"devices"`
	// Kept: the cluster outlives the command that starts it, and may be renamed.
	Kept bool `json:"kept,omitempty"`
	// Limited: a resource manager limits what the VMs use; isolation: strict adds no cgroups.
	Limited bool `json:"limited,omitempty"`
	// Plan places the VMs, by a front that has planned for several hosts with what Planned holds of this one; nil: the
	// VMs are planned here.
	Plan    *plan.Plan  `json:"plan,omitempty"`
	Planned plan.Ledger `json:"planned"`
	// Part is the front's cluster, of which these VMs are a part; "": of none.
	Part string `json:"part,omitempty"`
	// Overlay joins the VMs to those of other hosts; nil: this host has all VMs.
	Overlay *wiring.Overlay `json:"overlay,omitempty"`
}

// Events are functions that are called while a cluster starts, from one goroutine at a time. Any may be nil.
type Events struct {
	// Notice is called with a line that the user should read, once.
	Notice func(line string)
	// Stage is called when the start reaches a stage (StageBoot, …), and with how many of the VMs are through it.
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

// The stages of a start.
const (
	StagePrepare = "preparing kernel and initramfs"
	StageAsk     = "asking the backend" // where VMs start from what the backend has
	StageDevices = "handing devices over"
	StageBoot    = "booting VMs"
	StageDown    = "ending VMs"
)

// Timings are what the phases of one VM's life took, in ns. The kernel's, root's and
// agent's come from the guest and lie between Started and Ready.
type Timings struct {
	VM      string        `json:"vm"`
	Prepare time.Duration `json:"prepareNs"` // from Up to the start of the VM
	Started time.Duration `json:"startedNs"` // from the start of the VM until its backend had it running
	Ready   time.Duration `json:"readyNs"`   // from the start of the VM until the agent was ready
	Phases  []PhaseAt     `json:"phases"`    // in the guest
}

// PhaseAt is a point of a guest's boot, since its kernel started.
type PhaseAt struct {
	Name string        `json:"name"`
	At   time.Duration `json:"atNs"`
}
