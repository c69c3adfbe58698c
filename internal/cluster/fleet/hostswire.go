package fleet

import (
	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// A cluster over several hosts has an owner, the front, and a part on each host: the same program, which the front
// starts over ssh (package remote), and which owns the VMs there like those of a cluster. Front and part communicate
// over the part's standard input and output. First the front sends its query (hostAsk), the part answers (hostFacts),
// and the front asks it to start its VMs (start.Request); the part reports its progress (message) until they are
// ready. All of these are JSON objects, one per line. From then on the connection is a channel: the part serves
// streams to its VMs, as a control socket does, and one stream of kind "lead" for the front's heartbeats. The part
// ends if the connection ends, or if no heartbeat arrives for leadBound.

// hostProtocol is the version of the protocol. Both ends are the same program, so that a difference is a mistake.
const hostProtocol = 1

// hostAsk is the front's first line.
type hostAsk struct {
	Protocol int           `json:"protocol"`
	Spec     *spec.Cluster `json:"spec"`
}

// hostFacts are the facts about a host that the front plans with.
type hostFacts struct {
	Protocol int          `json:"protocol"`
	Error    string       `json:"error,omitempty"`
	Machine  string       `json:"machine"` // the same for two names of one host
	Addr     string       `json:"addr"`    // by which the front has reached it; "": unknown
	User     state.Caller `json:"user"`
	Accel    string       `json:"accel"`
	Notice   string       `json:"notice,omitempty"` // about Accel
	Topology []byte       `json:"topology"`         // an archive of topology.Gather
	Ledger   plan.Ledger  `json:"ledger"`
	Swept    []string     `json:"swept,omitempty"` // remains of dead clusters that were removed there, one line each
	// Taken maps the functions that the VMs cannot use to the reason; only set if a VM requests a device.
	Taken claim.Taken `json:"taken,omitempty"`
}

// message is a line from the part until it is ready.
type message struct {
	start.Progress
	// Host is set in the last line only.
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

// hostEvent is an event from a part on the stream "lead", one per line.
type hostEvent struct {
	Lost  string   `json:"lost,omitempty"` // name of a VM that has ended
	Why   string   `json:"why,omitempty"`
	Lines []string `json:"lines,omitempty"` // the end of its console
	Down  bool     `json:"down,omitempty"`  // the part has ended, or Why names what is left
}
