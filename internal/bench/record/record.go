// Package record holds what a run of benchmarks leaves behind: a folder with run.json (what
// was run, on what) and samples.jsonl (one measured value a line, in the order measured).
// internal/bench writes it, internal/report reads it, and users may read it with anything.
package record

import (
	"encoding/json"
	"time"

	"nearmetal/internal/traffic"
)

// Version is the format's version; a reader refuses a larger one.
const Version = 1

// Run describes one run; it is run.json. The folder's name is its ID.
type Run struct {
	Version   int               `json:"version"`
	ID        string            `json:"id"`              // like 20261122-004500-demo
	Nearmetal string            `json:"nearmetal"`       // version and commit of the program
	Started   time.Time         `json:"started"`         // UTC
	Ended     time.Time         `json:"ended,omitempty"` // UTC; zero while it runs or if it was cut short
	Command   []string          `json:"command"`         // the command line as typed
	Quick     bool              `json:"quick,omitempty"` // --quick: small sizes and few repetitions
	Host      Host              `json:"host"`
	Variants  []Variant         `json:"variants"` // in the order asked for; the first is the baseline
	Cases     []Case            `json:"cases"`
	Checks    json.RawMessage   `json:"checks,omitempty"`    // output of `nearmetal check --json`, as it was
	Plan      json.RawMessage   `json:"plan,omitempty"`      // the plan of the VMs (JSON), if there were any
	PlanSVG   string            `json:"plan_svg,omitempty"`  // picture of that plan on its hosts (plan.SVG)
	Channels  []Channels        `json:"channels,omitempty"`  // of variants over nearmetal's provider, a line for each case
	Traffic   []Traffic         `json:"traffic,omitempty"`   // with --traffic: what ranks sent to each other, by case and variant
	Unreached []string          `json:"unreached,omitempty"` // with --time: points that the time was too short for
	Slurm     map[string]string `json:"slurm,omitempty"`     // job id, nodes, partition
	SSHHosts  []string          `json:"ssh_hosts,omitempty"` // the hosts, reached by ssh, on which the VMs were
}

// Host is the machine's state.
type Host struct {
	Name         string            `json:"name"`
	CPU          string            `json:"cpu"`          // model name
	Cores        int               `json:"cores"`        // cores the run could use
	Threads      int               `json:"threads"`      // hardware threads
	Nodes        int               `json:"nodes"`        // NUMA nodes
	MemoryBytes  int64             `json:"memory_bytes"` // of the host
	Kernel       string            `json:"kernel"`       // uname -r
	Acceleration string            `json:"acceleration"` // "kvm", "tcg"
	Topology     string            `json:"topology_svg,omitempty"`
	Versions     map[string]string `json:"versions,omitempty"` // program → what it says of its version
}

// Channels are those that a case's ranks used over nearmetal's provider, the last time it ran:
// peers, counted at each rank, that it reached in its own VM, in other VMs of its host over
// the region, and over the network.
type Channels struct {
	Case     string `json:"case"`
	Variant  string `json:"variant"`
	Ranks    int    `json:"ranks"` // that reported it
	SameVM   int    `json:"same_vm"`
	OtherVMs int    `json:"other_vms"`
	Network  int    `json:"network"`
}

// Traffic is what a case's ranks sent to each other over nearmetal's provider, in a warm-up at its last point.
type Traffic struct {
	Case    string            `json:"case"`
	Variant string            `json:"variant"`
	Point   map[string]string `json:"point,omitempty"`
	traffic.Matrix
	// Carried stands in the matrix's place where no rank counts, since the VMs have no provider: what their interfaces
	// carried meanwhile.
	Carried []traffic.Carried `json:"carried,omitempty"`
}

// Variant is one side of a comparison.
type Variant struct {
	Label       string   `json:"label"`               // unique in the run; like "native.48" or "VM.44.144.RoCE.VF"
	Kind        string   `json:"kind"`                // "native" or "vm"
	Cores       int      `json:"cores,omitempty"`     // cores a host that it may use
	KeptBack    int      `json:"kept_back,omitempty"` // cores a host kept from the program (paper 002's tolerance is KeptBack over the host's cores)
	Ablated     []string `json:"ablated,omitempty"`   // switches taken away: hugepages, pinning, vnuma, locality, region, vf
	Foreign     bool     `json:"foreign,omitempty"`   // a VM that nearmetal did not make: of a cloud or another hypervisor
	Emulated    bool     `json:"emulated"`            // guest under TCG: its times mean nothing and enter no ratio
	Description string   `json:"description"`
	// Baseline is the label of the variant that this one is compared with; "": the first one
	// (which itself is compared with nothing).
	Baseline string `json:"baseline,omitempty"`
	MPI      string `json:"mpi,omitempty"` // MPI library and channel, like "openmpi", "mpich", "ivshmem"
	// Host and Checks are those of a Foreign variant's VM: its machine, and nearmetal check --profile guest in it.
	Host   *Host           `json:"host,omitempty"`
	Checks json.RawMessage `json:"checks,omitempty"`
	// MemoryBytes of a host's VMs together, and VMs a host; 0: native.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	VMs         int   `json:"vms,omitempty"`
}

// Case is one experiment: a program with one setting of what is not swept.
type Case struct {
	Name    string   `json:"name"`  // unique: suite/experiment, like "osu/latency"
	Title   string   `json:"title"` // for people
	Suite   string   `json:"suite"`
	Program string   `json:"program"` // what really ran, like "kernels/nm_latency (OSU's method)"
	Command []string `json:"command"` // as run natively, parameters filled in for the first point
	Metric  string   `json:"metric"`  // like "latency"
	Unit    string   `json:"unit"`    // like "us", "GB/s", "s"
	Better  string   `json:"better"`  // "up" or "down"
	// Kind says how it is drawn: "size" (metric over message size in bytes, both axes
	// logarithmic), "scaling" (strong scaling over nodes or ranks), "sweep" (over any other
	// parameter), "bar" (one value a variant).
	Kind string `json:"kind"`
	X    string `json:"x,omitempty"`    // the parameter on the x axis, a key of Sample.Point
	Seed string `json:"seed,omitempty"` // the seed's figure that it repeats, like "002 fig 12"
	// Hosts is how many hosts it needs at least and ran on; 0: one is enough.
	Hosts int `json:"hosts,omitempty"`
	// Differs says what the run has otherwise than a paper whose figure Seed names, by the paper's name:
	// "mesh 20x8x8 instead of 80x32x32".
	Differs map[string]string `json:"differs,omitempty"`
	// Smaller says what emulated VMs ran instead, like "cells 4 instead of 64"; "": the same.
	Smaller string `json:"smaller,omitempty"`
}

// Sample is one measured value; it is a line of samples.jsonl.
type Sample struct {
	Case    string            `json:"case"`            // Case.Name
	Variant string            `json:"variant"`         // Variant.Label
	Point   map[string]string `json:"point,omitempty"` // swept parameters, like size=8 ranks=2
	Rep     int               `json:"rep"`             // 0, 1, …; warm-ups are negative and enter nothing
	Value   float64           `json:"value"`           // in Case.Unit
	OK      bool              `json:"ok"`              // false: failed, wrong answer or killed; Value is meaningless
	Error   string            `json:"error,omitempty"` // why not OK
	At      time.Time         `json:"at"`              // when the repetition began, UTC
	Seconds float64           `json:"seconds"`         // wall clock of the whole repetition
	Log     string            `json:"log,omitempty"`   // the program's output, relative to the run's folder
	// PingPong is the time that a cache line takes from one core to another and back, in us, around the repetition; Moved
	// says that it changed so much meanwhile that the host has moved the cores. 0: not measured.
	PingPong float64 `json:"ping_pong,omitempty"`
	Moved    bool    `json:"moved,omitempty"`
}
