// Package record defines the results of a run of benchmarks: a directory with run.json (the cases and the machine) and
// samples.jsonl (one measured value per line, in the order measured). internal/bench writes it, internal/report reads
// it, and users may read it with any program.
package record

import (
	"encoding/json"
	"time"

	"nearmetal/internal/traffic"
)

// Version is the format's version; a reader rejects a larger one.
const Version = 1

// Run describes one run; it is run.json. The directory's name is its ID.
type Run struct {
	Version   int             `json:"version"`
	ID        string          `json:"id"`              // like 20261122-004500-demo
	Nearmetal string          `json:"nearmetal"`       // version and commit of the program
	Started   time.Time       `json:"started"`         // UTC
	Ended     time.Time       `json:"ended,omitempty"` // UTC; zero while it runs or if it was interrupted
	Command   []string        `json:"command"`         // the command line as typed
	Quick     bool            `json:"quick,omitempty"` // --quick: small sizes and few repetitions
	Host      Host            `json:"host"`
	Variants  []Variant       `json:"variants"` // in the requested order; the first is the baseline
	Cases     []Case          `json:"cases"`
	Checks    json.RawMessage `json:"checks,omitempty"`   // unchanged output of `nearmetal check --json`
	Plan      json.RawMessage `json:"plan,omitempty"`     // the plan of the VMs (JSON), if there were any
	PlanSVG   string          `json:"plan_svg,omitempty"` // picture of that plan on its hosts (plan.SVG)
	Channels  []Channels      `json:"channels,omitempty"` // of variants over nearmetal's provider, one per case
	// With --traffic: messages between ranks, by case and variant.
	Traffic   []Traffic         `json:"traffic,omitempty"`
	Unreached []string          `json:"unreached,omitempty"` // with --time: points for which the time was too short
	Slurm     map[string]string `json:"slurm,omitempty"`     // job id, nodes, partition
	SSHHosts  []string          `json:"ssh_hosts,omitempty"` // hosts of the VMs that are reached by ssh
}

// Host describes the machine.
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
	Versions     map[string]string `json:"versions,omitempty"` // program → its reported version
}

// Channels are the channels that a case's ranks used over nearmetal's provider in its last run: the number of peers,
// counted at each rank, that it reached in its own VM, in other VMs of its host over the region, and over the
// network.
type Channels struct {
	Case     string `json:"case"`
	Variant  string `json:"variant"`
	Ranks    int    `json:"ranks"` // number of reporting ranks
	SameVM   int    `json:"same_vm"`
	OtherVMs int    `json:"other_vms"`
	Network  int    `json:"network"`
}

// Traffic has the messages between a case's ranks over nearmetal's provider, in a warm-up at its last point.
type Traffic struct {
	Case    string            `json:"case"`
	Variant string            `json:"variant"`
	Point   map[string]string `json:"point,omitempty"`
	traffic.Matrix
	// Carried replaces the matrix if no rank counts, because the VMs have no provider: the bytes that their
	// interfaces carried during that time.
	Carried []traffic.Carried `json:"carried,omitempty"`
}

// Variant is one side of a comparison.
type Variant struct {
	Label string `json:"label"`           // unique in the run; like "native.48" or "VM.44.144.RoCE.VF"
	Kind  string `json:"kind"`            // "native" or "vm"
	Cores int    `json:"cores,omitempty"` // cores per host that it may use
	// Cores per host reserved from the program (paper 002's tolerance is KeptBack over the host's cores).
	KeptBack int `json:"kept_back,omitempty"`
	// Switches turned off: hugepages, pinning, vnuma, locality, region, vf.
	Ablated []string `json:"ablated,omitempty"`
	// A VM that nearmetal did not make: in a cloud or another hypervisor.
	Foreign bool `json:"foreign,omitempty"`
	// Guest under TCG: its times are meaningless and are not used in ratios.
	Emulated    bool   `json:"emulated"`
	Description string `json:"description"`
	// Baseline is the label of the variant with which this one is compared; "": the first one (which itself is
	// compared with none).
	Baseline string `json:"baseline,omitempty"`
	MPI      string `json:"mpi,omitempty"` // MPI library and channel, like "openmpi", "mpich", "ivshmem"
	// Host and Checks are those of a Foreign variant's VM: its machine, and the result of nearmetal check --profile
	// guest in it.
	Host   *Host           `json:"host,omitempty"`
	Checks json.RawMessage `json:"checks,omitempty"`
	// MemoryBytes is the total memory of a host's VMs; VMs is their number per host; 0: native.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	VMs         int   `json:"vms,omitempty"`
}

// Case is one experiment: a program with one setting of the parameters that are not swept.
type Case struct {
	Name    string   `json:"name"`  // unique: suite/experiment, like "osu/latency"
	Title   string   `json:"title"` // for people
	Suite   string   `json:"suite"`
	Program string   `json:"program"` // the program that ran, like "kernels/nm_latency (OSU's method)"
	Command []string `json:"command"` // native command, with the parameters of the first point
	Metric  string   `json:"metric"`  // like "latency"
	Unit    string   `json:"unit"`    // like "us", "GB/s", "s"
	Better  string   `json:"better"`  // "up" or "down"
	// Kind states how it is drawn: "size" (metric over message size in bytes, both axes logarithmic), "scaling"
	// (strong scaling over nodes or ranks), "sweep" (over any other parameter), "bar" (one value per variant).
	Kind string `json:"kind"`
	X    string `json:"x,omitempty"`    // the parameter on the x axis, a key of Sample.Point
	Seed string `json:"seed,omitempty"` // figure of the seed that it repeats, like "002 fig 12"
	// Hosts is the least number of hosts that it needs, and on which it ran; 0: one is sufficient.
	Hosts int `json:"hosts,omitempty"`
	// Differs states, by a paper's name, how the run differs from the paper whose figure Seed names: "mesh 20x8x8
	// instead of 80x32x32".
	Differs map[string]string `json:"differs,omitempty"`
	// Smaller states what emulated VMs ran instead, like "cells 4 instead of 64"; "": the same.
	Smaller string `json:"smaller,omitempty"`
}

// Sample is one measured value, a line of samples.jsonl.
type Sample struct {
	Case    string            `json:"case"`            // Case.Name
	Variant string            `json:"variant"`         // Variant.Label
	Point   map[string]string `json:"point,omitempty"` // swept parameters, like size=8 ranks=2
	Rep     int               `json:"rep"`             // 0, 1, …; warm-ups are negative and are not used
	Value   float64           `json:"value"`           // in Case.Unit
	OK      bool              `json:"ok"`              // false: failed, wrong result or killed; Value is meaningless
	Error   string            `json:"error,omitempty"` // why OK is false
	At      time.Time         `json:"at"`              // when the repetition began, UTC
	Seconds float64           `json:"seconds"`         // wall clock of the whole repetition
	Log     string            `json:"log,omitempty"`   // path of the program's output, relative to the run's directory
	// PingPong is the round-trip time of a cache line between two cores, in us, around the repetition; Moved reports
	// that it changed so much in that time that the host must have moved the cores. 0: not measured.
	PingPong float64 `json:"ping_pong,omitempty"`
	Moved    bool    `json:"moved,omitempty"`
}
