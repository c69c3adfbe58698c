package cluster

import (
	"time"

	"nearmetal/internal/spec"
)

// Options of Up.
type Options struct {
	// Spec is the cluster file: checked, defaults filled in, paths absolute.
	Spec *spec.Cluster
	// Command is what the user typed, for `nearmetal ps`.
	Command string
	// Events are told how far the start is; any of them may be nil.
	Events Events
	// BootTimeout bounds the time from QEMU's start to ready, per cluster; 0: 5 minutes.
	BootTimeout time.Duration
	// NoVerify leaves out that the VMs are held against the plan once they are ready.
	NoVerify bool
	// Verbose tells of what went well, too.
	Verbose bool
	// Until is a process, by its id, whose end ends a cluster of Supervised; 0: none.
	Until int
	// Devices are the PCI addresses of the host's functions that the VMs may have; nil: all that
	// the user may.
	Devices []string
	// Trunk joins the VMs to those of other hosts; nil: they are alone.
	Trunk *Trunk
}

// Events are functions that are told what happens while a cluster starts. They are
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
	StageDevices = "handing devices over"
	StageBoot    = "booting VMs"
	StageDown    = "ending VMs"
)

// Timings are what the phases of one VM's life took, in ns. The kernel's, root's and
// agent's are told by the guest and lie between Started and Ready.
type Timings struct {
	VM      string        `json:"vm"`
	Prepare time.Duration `json:"prepareNs"` // from Up to the start of QEMU
	Started time.Duration `json:"startedNs"` // from the start of QEMU's process until its monitor answered
	Ready   time.Duration `json:"readyNs"`   // from the start of QEMU's process until the agent was ready
	Phases  []PhaseAt     `json:"phases"`    // in the guest
}

// PhaseAt is a point of a guest's boot, since its kernel started.
type PhaseAt struct {
	Name string        `json:"name"`
	At   time.Duration `json:"atNs"`
}
