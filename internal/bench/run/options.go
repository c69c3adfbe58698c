// Package run carries benchmarks out: variants in turns, natively and in VMs, every result
// checked, and everything written down as it comes.
package run

import (
	"time"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/spec"
)

// MinRepetitions is how many a run has at least unless it is asked for a quick look: fewer
// give no interval worth the name.
const MinRepetitions = 5

// Variant is one side of a comparison, with what it takes to run it.
type Variant struct {
	record.Variant
	CPUs []int         // of this host, for a native variant that is not given all; else none
	Spec *spec.Cluster // of the VMs; nil: native
	// MPI its programs run over. Its Name is not empty.
	MPI mpi.Flavour
	// Step says that it runs as steps of a Slurm job, in VMs or not; nil: on this host.
	Step *Step
	// Hosts is how many hosts its VMs are on that are reached by ssh, as many vCPUs on each; 0: they are on this one.
	Hosts int
	// FirstMPI: programs that use no MPI run for this variant, not for its kin with another one.
	FirstMPI bool
}

// Step is how a variant's programs are started in a Slurm job.
type Step struct {
	Nodes int  // of the job
	VM    bool // the job's VMs; else, where it has some, around them
	HasVM bool // the job has VMs
	// FirstVM is the name of each host's first VM, behind the host's own; "": natively.
	FirstVM string
}

// Request is what is to be run. It is kept in the run's folder, so that a run that was cut
// short can go on.
type Request struct {
	Suites      []*suite.Suite
	Variants    []Variant
	Repetitions int
	// Decide repeats points on from Repetitions until each value that two variants have is decided (package verdict), or the
	// bounds of that are reached.
	Decide bool
	Time   time.Duration // that the run may take, which chooses points and repetitions; 0: Repetitions are made
	Warmup int
	Quick  bool
	Paper  string              // whose sizes are run, like "002"; "": the suites' own
	Set    map[string][]string // values of parameters, over those of the suites; "NAME" or "EXPERIMENT.NAME"
	// Fitted are values in the place of those that need more memory than there is, "EXPERIMENT.NAME".
	Fitted      map[string][]string
	KernelDirs  []string
	PeakPerCore float64 // GFLOP/s
	SkipMissing bool    // leave out what has no program here, instead of refusing
	Traffic     bool    // count in the warm-ups what ranks send to each other
	KeepWork    bool    // leave the working directories
}

// Events are called as things happen; any of them may be nil.
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

// Progress is where a run is.
type Progress struct {
	Done, Total int // repetitions, warm-ups among them; Total 0: as many as the time allows
	What        string
	Left        time.Duration // about how long the rest takes, or the rest of the run's time; 0: not known
}

// Outcome is how a run ended.
type Outcome struct {
	Dir     string
	Samples int // values measured
	Failed  []Failure
}

// Failure is a repetition without a result.
type Failure struct {
	Case, Variant string
	Point         string // "size=8 ranks=2"
	Rep           int
	Err           error
	Log           string // path of what the program printed
}
