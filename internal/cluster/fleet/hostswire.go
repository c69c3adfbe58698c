package fleet

import (
	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// A cluster over several hosts has an owner, the front, and on each host a part: the same program, which the front
// has started over ssh (package remote), and which owns the VMs there as it would own a cluster's. They speak over
// the part's standard input and output. First the front asks (hostAsk), the part answers (hostFacts), and the front
// has it start its VMs (start.Request); the part says how far it is (message) until they are ready. All of these
// are JSON objects, a line each. From then on the connection is a channel: the part serves the streams to its VMs,
// as a control socket does, and one of kind "lead" by which the front says that it lives. The end of the connection,
// or a front that says nothing for leadBound, ends the part.

// hostProtocol is the version of what follows. Both ends are one program: this is for mistakes.
const hostProtocol = 1

// hostAsk is the front's first line.
type hostAsk struct {
	Protocol int           `json:"protocol"`
	Spec     *spec.Cluster `json:"spec"`
}

// hostFacts are a host as the front plans for it.
type hostFacts struct {
	Protocol int          `json:"protocol"`
	Error    string       `json:"error,omitempty"`
	Machine  string       `json:"machine"` // the same for two names of one host
	Addr     string       `json:"addr"`    // by which the front has reached it; "": not known
	User     state.Caller `json:"user"`
	Accel    string       `json:"accel"`
	Notice   string       `json:"notice,omitempty"` // of Accel
	Topology []byte       `json:"topology"`         // an archive of topology.Gather
	Ledger   plan.Ledger  `json:"ledger"`
	Swept    []string     `json:"swept,omitempty"` // what dead clusters had left there, a line each
	// Taken are functions that the VMs cannot have, by address, and why; only where they want any.
	Taken claim.Taken `json:"taken,omitempty"`
}

// message is a line of the part's until it is ready.
type message struct {
	start.Progress
	// Host is the last.
	Host *hostReady `json:"host,omitempty"`
}

// hostReady is the part's last line.
type hostReady struct {
	Accel        string           `json:"accel"`
	Fabric       string           `json:"fabric,omitempty"`
	UCX          string           `json:"ucx,omitempty"`
	DeviceFaults []string         `json:"deviceFaults,omitempty"`
	Unreached    string           `json:"unreached,omitempty"` // which of the other hosts' VMs do not answer by their devices
	VMs          []state.VMRecord `json:"vms"`
}

// hostEvent is what a part says on the stream "lead", a line each.
type hostEvent struct {
	Lost  string   `json:"lost,omitempty"` // a VM that has ended
	Why   string   `json:"why,omitempty"`
	Lines []string `json:"lines,omitempty"` // the end of its console
	Down  bool     `json:"down,omitempty"`  // the part has ended, or Why says what is left
}
