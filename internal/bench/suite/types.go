// Package suite defines benchmarks: the programs, the swept parameters, the values parsed from the output, and the
// checks of results. Definitions are YAML files (docs/suite.md); nearmetal's own are embedded.
package suite

import "time"

// Version is the only version of the suite file so far.
const Version = 1

// LaunchPair launches a server and its client on two hosts of a Slurm job, or in a VM on each: the command runs on
// both. SLURM_PROCID is 0 for the server. The client finds the server at PAIR_SERVER if that is set, else at
// SLURM_LAUNCH_NODE_IPADDR.
const LaunchPair = "pair"

// Suite is one suite file.
type Suite struct {
	Version int    `yaml:"version"`
	Name    string `yaml:"suite"` // letters, digits, hyphens
	Title   string `yaml:"title"`
	About   string `yaml:"about"`
	// Packages are those with its programs, by their source: apt, dnf, pip, spack.
	Packages map[string][]string `yaml:"packages"`
	// Licence states what the programs' licence requires and where, for those that may not simply be installed.
	Licence     string       `yaml:"licence"`
	Experiments []Experiment `yaml:"experiments"`
	File        string       `yaml:"-"` // path; "" for an embedded one
}

// Experiment is one program with its parameters and its measured values.
type Experiment struct {
	Name  string `yaml:"name"` // unique in the suite
	Title string `yaml:"title"`
	About string `yaml:"about"`
	Seed  string `yaml:"seed"` // figure of a paper that it repeats
	// Like is an earlier experiment of the suite from which this one inherits missing values, except title, about and
	// seed.
	Like string `yaml:"like"`
	// Notes state, by a paper's name, or PAPER@HOSTS, how a run of its sizes differs from the paper; they are printed
	// before anything runs.
	Notes map[string]string `yaml:"notes"`
	// Programs are tried in their order: the first that is found is run.
	Programs []Program `yaml:"programs"`
	// Install states how to get a program if none is found.
	Install string `yaml:"install"`
	// Needs are environment variables with the place of its input: without them it is treated as one without a
	// program.
	Needs []string `yaml:"needs"`
	// Launch is "mpi" (ranks are started by the MPI's launcher), "plain" (the default): once, in the first VM, or
	// LaunchPair.
	Launch string `yaml:"launch"`
	// Ranks is the number of an MPI program's ranks: a number, "{PARAMETER}", or "all", a rank per core of the
	// variant. A value such as 2x4 counts as its product.
	Ranks string `yaml:"ranks"`
	// RanksRule states which numbers of ranks the program supports: "square", "power of 2", or "any" (the default).
	RanksRule string `yaml:"ranks-rule"`
	// RoundRobin assigns neighbouring ranks to a job's hosts alternately, as paper 004's host file does.
	RoundRobin bool `yaml:"round-robin"`
	// Memory is the least memory of all ranks together, by parameter and its value: {class: {D: 11GiB}}. If less is
	// available the largest value that fits is run instead, with a notice.
	Memory map[string]map[string]string `yaml:"memory"`
	// Threads is the number of threads per rank: OMP_NUM_THREADS. A number, "{PARAMETER}" or "all".
	Threads string `yaml:"threads"`
	// Spread puts neighbouring ranks on different VMs or hosts.
	Spread bool              `yaml:"spread"`
	Env    map[string]string `yaml:"env"`
	// Parameters have one value; each combination of those in Sweep is a point.
	Parameters []Parameter `yaml:"parameters"`
	Sweep      []Parameter `yaml:"sweep"`
	// Files are written into the working directory before a repetition.
	Files map[string]string `yaml:"files"`
	// Prepare are commands that run once for each point and variant, in the working directory, natively and
	// unmeasured.
	Prepare [][]string `yaml:"prepare"`
	// Command is the program's words; {program} is the program that was found.
	Command []string `yaml:"command"`
	// Read is a file in the working directory to parse instead of the program's output.
	Read    string        `yaml:"read"`
	Output  []Output      `yaml:"output"`
	Check   []Check       `yaml:"check"`
	Timeout time.Duration `yaml:"timeout"` // of a repetition; default 10 minutes
	// Repetitions and Warmup override the run's for this experiment; 0 and nil: the run's.
	Repetitions int  `yaml:"repetitions"`
	Warmup      *int `yaml:"warmup"`
	// Hosts is the least number of machines: 2 for LaunchPair. A run on fewer rejects it.
	Hosts int `yaml:"hosts"`
}

// Program is one of the possible programs of an experiment.
type Program struct {
	Name string `yaml:"name"` // its name in reports
	// Find are file names searched in PATH, or paths, which may contain *, ~ and $VARIABLES.
	Find []string `yaml:"find"`
	// Kernel is one of nearmetal's own programs (kernels/), built for each MPI.
	Kernel string `yaml:"kernel"`
	// Version is a command that prints the program's version; {program} represents it.
	Version []string `yaml:"version"`
	// VersionMatch is a regular expression whose group "value" is the version, in the output of that command or,
	// without one, of the program itself.
	VersionMatch string `yaml:"version-match"`
	// The experiment's, if this program differs.
	Command []string `yaml:"command"`
	Read    string   `yaml:"read"`
	Output  []Output `yaml:"output"`
	Check   []Check  `yaml:"check"`
}

// Parameter is a named value. Some values depend on the variant: "all" (its cores), "all/2" and similar, ranges that
// double, such as "1..all" or "1..64", and these three: AllGrid is a process grid of all ranks, AllBlock the block
// size that fits a matrix and a grid, and AllMemory the order of a matrix that fills the memory. For threads, Rest is
// the cores of a rank.
type Parameter struct {
	Name     string   `yaml:"-"`
	Values   []string `yaml:"values"`
	Quick    []string `yaml:"quick"`    // with --quick
	Emulated []string `yaml:"emulated"` // in emulated VMs, whose times are meaningless: a smaller one
	// Smaller are alternative values, the largest first, if the time of a run (bench run --time) is too short.
	Smaller []string `yaml:"smaller"`
	// Papers are the values of papers whose figures the experiment repeats (bench run --paper), by the paper's name,
	// or for a number of hosts by PAPER@HOSTS.
	Papers map[string][]string `yaml:"papers"`
	// Chosen are the values that a run with a time limit selected instead of all others; nil: none.
	Chosen []string `yaml:"-" json:"-"`
}

// Output is one metric and where its values are.
type Output struct {
	Metric string `yaml:"metric"`
	Title  string `yaml:"title"` // title of its case; default the experiment's
	Unit   string `yaml:"unit"`
	Better string `yaml:"better"` // up or down
	Kind   string `yaml:"kind"`   // size, scaling, sweep or bar
	X      string `yaml:"x"`      // the parameter on the x axis
	// Match is a regular expression (Go's, ^ and $ match at lines): each match is a value, its group "value"; other
	// groups are parameters of the value's point.
	Match string `yaml:"match"`
	// Last uses only the last match, for programs that print a value repeatedly.
	Last bool `yaml:"last"`
	// JSON is the path of objects in JSON output, such as "results[]" or "." for the whole; Value is the key of the
	// value in them, Point of parameters: {size: bytes}.
	JSON  string            `yaml:"json"`
	Value string            `yaml:"value"`
	Point map[string]string `yaml:"point"`
	// Wall uses the repetition's wall clock, in s.
	Wall bool `yaml:"wall"`
	// Scale multiplies the value; 0 is 1.
	Scale float64 `yaml:"scale"`
	// Peak converts a value in GFLOP/s to per cent of the cores' theoretical peak.
	Peak bool `yaml:"percent-of-peak"`
	// MayLack permits a repetition without it, for a program that sometimes prints no number.
	MayLack bool `yaml:"may-lack"`
}

// Check is a condition on a correct output.
type Check struct {
	Match  string   `yaml:"match"`  // must be found
	Absent string   `yaml:"absent"` // must not be found
	Min    *float64 `yaml:"min"`    // of the group "value" in every match
	Max    *float64 `yaml:"max"`
	Says   string   `yaml:"says"` // message if the check fails
}
