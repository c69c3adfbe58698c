// Package run executes benchmarks: alternating variants, natively and in VMs, every result checked, and everything
// recorded as it arrives.
package run

import (
	"time"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/spec"
)

// MinRepetitions is the least number of repetitions of a run unless a quick one is requested, because fewer give no
// useful interval.
const MinRepetitions = 5

// Variant is one side of a comparison, with everything needed to run it.
type Variant struct {
	record.Variant
	CPUs []int         // of this host, for a native variant that does not use all; else none
	Spec *spec.Cluster // of the VMs; nil: native
	// MPI is the library its programs use. Its Name is not empty.
	MPI mpi.Flavour
	// Step makes it run as steps of a Slurm job, in VMs or not; nil: on this host.
	Step *Step
	// Hosts is the number of hosts of its VMs that are reached by ssh, with equal vCPUs on each; 0: they are on this
	// one.
	Hosts int
	// FirstMPI: programs that use no MPI run for this variant, and not for the equal ones with another MPI.
	FirstMPI bool
}

// Step states how a variant's programs are started in a Slurm job.
type Step struct {
	Nodes int  // of the job
	VM    bool // in the job's VMs; else, if it has some, outside them
	HasVM bool // the job has VMs
	// FirstVM is the name of each host's first VM, after the host's own; "": natively.
	FirstVM string
}

// Request describes a run. It is stored in the run's directory, so that an interrupted run can be resumed.
type Request struct {
	Suites      []*suite.Suite
	Variants    []Variant
	Repetitions int
	// Decide repeats points beyond Repetitions until each value that two variants have is decided (package verdict),
	// or its bounds are reached.
	Decide bool
	Time   time.Duration // time limit of the run, which selects points and repetitions; 0: Repetitions are made
	Warmup int
	Quick  bool
	Paper  string              // paper whose sizes are run, like "002"; "": the suites' own
	Set    map[string][]string // values of parameters, overriding the suites'; "NAME" or "EXPERIMENT.NAME"
	// Fitted replaces values that need more memory than available, "EXPERIMENT.NAME".
	Fitted      map[string][]string
	KernelDirs  []string
	PeakPerCore float64 // GFLOP/s
	SkipMissing bool    // omit experiments without a program here, instead of failing
	Traffic     bool    // count in the warm-ups the messages between ranks
	KeepWork    bool    // keep the working directories
}

// Events are called during a run; any of them may be nil.
type Events struct {
	// Alone is called when the request has been checked, before anything is measured or written: it returns when
	// nothing else measures on this machine. Its error ends the run.
	Alone  func() error
	Step   func(p Progress)
	Notice func(line string)
}

func (e Events) alone() error {
	if e.Alone == nil {
		return nil
	}
	return e.Alone()
}

// Progress is the progress of a run.
type Progress struct {
	Done, Total int // repetitions, including warm-ups; Total 0: as many as the time permits
	What        string
	Left        time.Duration // estimated duration of the rest, or the rest of the run's time; 0: not known
}

// Outcome is the result of a run.
type Outcome struct {
	Dir     string
	Samples int // number of measured values
	Failed  []Failure
}

// Failure is a repetition without a result.
type Failure struct {
	Case, Variant string
	Point         string // "size=8 ranks=2"
	Rep           int
	Err           error
	Log           string // path of the program's output
}
