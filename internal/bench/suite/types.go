// Package suite is the definition of benchmarks: what is run, what is swept, what is read
// from the output, and which results are right. Definitions are YAML files (docs/suite.md);
// those that nearmetal comes with are embedded.
package suite

import "time"

// Version is the only version of the suite file there is so far.
const Version = 1

// LaunchPair is the launch of a server and its client on two hosts of a Slurm job, or in a VM on each: the command
// runs on both. SLURM_PROCID is 0 for the server. Where PAIR_SERVER is set the client finds the server
// there, else at SLURM_LAUNCH_NODE_IPADDR.
const LaunchPair = "pair"

// Suite is one suite file.
type Suite struct {
	Version int    `yaml:"version"`
	Name    string `yaml:"suite"` // letters, digits, hyphens
	Title   string `yaml:"title"`
	About   string `yaml:"about"`
	// Packages are those that have its programs, by where they come from: apt, dnf, pip, spack.
	Packages map[string][]string `yaml:"packages"`
	// Licence says what the programs' licence asks for and where, for those that nobody may simply install.
	Licence     string       `yaml:"licence"`
	Experiments []Experiment `yaml:"experiments"`
	File        string       `yaml:"-"` // where it was read; "" for an embedded one
}

// Experiment is one program with what is varied and what is measured.
type Experiment struct {
	Name  string `yaml:"name"` // unique in the suite
	Title string `yaml:"title"`
	About string `yaml:"about"`
	Seed  string `yaml:"seed"` // the figure of a paper that it repeats
	// Like is an earlier experiment of the suite, which has what this one does not say itself, but title, about and seed.
	Like string `yaml:"like"`
	// Notes say by a paper's name, or PAPER@HOSTS, what a run of its sizes has otherwise than it prints; said before anything runs.
	Notes map[string]string `yaml:"notes"`
	// Programs are tried in their order: the first that is found is run.
	Programs []Program `yaml:"programs"`
	// Install says how to get a program where none is found.
	Install string `yaml:"install"`
	// Needs are environment variables that say where its input is: without them it is as one without a program.
	Needs []string `yaml:"needs"`
	// Launch is "mpi" (ranks are started by the MPI's launcher), "plain" (the default): once, in
	// the first VM, or LaunchPair.
	Launch string `yaml:"launch"`
	// Ranks is how many an MPI program has: a number, "{PARAMETER}", or "all", a rank a core of
	// the variant. A value such as 2x4 counts as its product.
	Ranks string `yaml:"ranks"`
	// RanksRule is what numbers of ranks the program takes: "square", "power of 2", or "any" (the default).
	RanksRule string `yaml:"ranks-rule"`
	// RoundRobin deals neighbouring ranks to a job's hosts in turns, as paper 004's host file does.
	RoundRobin bool `yaml:"round-robin"`
	// Memory is what all ranks together need at least, by parameter and its value: {class: {D: 11GiB}}. Where less is
	// there the largest value that fits is run instead, and that is said.
	Memory map[string]map[string]string `yaml:"memory"`
	// Threads a rank has: OMP_NUM_THREADS. A number, "{PARAMETER}" or "all".
	Threads string `yaml:"threads"`
	// Spread puts neighbouring ranks on different VMs or hosts.
	Spread bool              `yaml:"spread"`
	Env    map[string]string `yaml:"env"`
	// Parameters have one value; Sweep are those of which each combination is a point.
	Parameters []Parameter `yaml:"parameters"`
	Sweep      []Parameter `yaml:"sweep"`
	// Files are written into the working directory before a repetition.
	Files map[string]string `yaml:"files"`
	// Prepare are commands that run once for each point and variant, in the working directory,
	// natively and unmeasured.
	Prepare [][]string `yaml:"prepare"`
	// Command is the program's words; {program} is the program that was found.
	Command []string `yaml:"command"`
	// Read is a file in the working directory to read instead of what the program prints.
	Read    string        `yaml:"read"`
	Output  []Output      `yaml:"output"`
	Check   []Check       `yaml:"check"`
	Timeout time.Duration `yaml:"timeout"` // of a repetition; default 10 minutes
	// Repetitions and Warmup, where this experiment wants others than the run's; 0 and nil: the run's.
	Repetitions int  `yaml:"repetitions"`
	Warmup      *int `yaml:"warmup"`
	// Hosts is how many machines it needs at least: 2 for LaunchPair. A run on fewer refuses it.
	Hosts int `yaml:"hosts"`
}

// Program is a way to have an experiment's program.
type Program struct {
	Name string `yaml:"name"` // as reports call it
	// Find are file names looked for in PATH, or paths, which may have *, ~ and $VARIABLES.
	Find []string `yaml:"find"`
	// Kernel is one of nearmetal's own programs (kernels/), built for each MPI.
	Kernel string `yaml:"kernel"`
	// Version is a command that prints the program's version; {program} stands for it.
	Version []string `yaml:"version"`
	// VersionMatch is a regular expression whose group "value" is the version, in what that
	// command prints or, without one, in what the program itself does.
	VersionMatch string `yaml:"version-match"`
	// The experiment's, where this program differs.
	Command []string `yaml:"command"`
	Read    string   `yaml:"read"`
	Output  []Output `yaml:"output"`
	Check   []Check  `yaml:"check"`
}

// Parameter is a named value. Values that depend on the variant: "all" (its cores), "all/2"
// and the like, ranges that double, such as "1..all" or "1..64", and these three. AllGrid is a process grid of all
// ranks, AllBlock the block size that goes with a matrix and a grid, AllMemory the order of a matrix that fills the memory, and for threads Rest the cores of a rank.
type Parameter struct {
	Name     string   `yaml:"-"`
	Values   []string `yaml:"values"`
	Quick    []string `yaml:"quick"`    // with --quick
	Emulated []string `yaml:"emulated"` // in emulated VMs, whose times mean nothing: a smaller one
	// Smaller are values to take instead, the largest first, where the time of a run (bench run --time) is too short.
	Smaller []string `yaml:"smaller"`
	// Papers are the values of papers whose figures the experiment repeats (bench run --paper), by the paper's name,
	// or for a number of hosts by PAPER@HOSTS.
	Papers map[string][]string `yaml:"papers"`
	// Chosen are the values that a run with a time has in place of all others; nil: none were chosen.
	Chosen []string `yaml:"-" json:"-"`
}

// Output is one metric and where its values are.
type Output struct {
	Metric string `yaml:"metric"`
	Title  string `yaml:"title"` // of its case; default the experiment's
	Unit   string `yaml:"unit"`
	Better string `yaml:"better"` // up or down
	Kind   string `yaml:"kind"`   // size, scaling, sweep or bar
	X      string `yaml:"x"`      // the parameter on the x axis
	// Match is a regular expression (Go's, ^ and $ at lines): each match is a value, its
	// group "value"; other groups are parameters of the value's point.
	Match string `yaml:"match"`
	// Last takes the last match alone, for programs that print a value again and again.
	Last bool `yaml:"last"`
	// JSON is the path of objects in JSON output, such as "results[]" or "." for the whole;
	// Value is the key of the value in them, Point of parameters: {size: bytes}.
	JSON  string            `yaml:"json"`
	Value string            `yaml:"value"`
	Point map[string]string `yaml:"point"`
	// Wall takes the repetition's wall clock, in s.
	Wall bool `yaml:"wall"`
	// Scale multiplies the value; 0 is 1.
	Scale float64 `yaml:"scale"`
	// Peak makes it per cent of the cores' theoretical peak, the value being GFLOP/s.
	Peak bool `yaml:"percent-of-peak"`
	// MayLack lets a repetition be without it: its program prints no number at times.
	MayLack bool `yaml:"may-lack"`
}

// Check is what a right output has.
type Check struct {
	Match  string   `yaml:"match"`  // this must be found
	Absent string   `yaml:"absent"` // this must not be found
	Min    *float64 `yaml:"min"`    // of the group "value" in every match
	Max    *float64 `yaml:"max"`
	Says   string   `yaml:"says"` // what it means if the check fails
}
