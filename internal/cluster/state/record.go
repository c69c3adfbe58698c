package state

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// State is where a cluster is in its life.
type State string

// The states, in their order.
const (
	Booting State = "booting"
	Ready   State = "ready"
	Ending  State = "ending"
	Dead    State = "dead"   // its owner is gone; only List says so
	Silent  State = "silent" // a VM that is ready and does not answer; only nearmetal ps says so
)

// Record is what a cluster's directory says of it. Only the owner writes it.
type Record struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Owner   int       `json:"owner"` // process id
	Command string    `json:"command"`
	Created time.Time `json:"created"`
	// Accel is how the VMs' instructions run: "kvm" or "tcg", and of VMs elsewhere what their agents say, "" before.
	Accel   string        `json:"accel"`
	Backend string        `json:"backend,omitempty"` // that of Spec
	Spec    *spec.Cluster `json:"spec"`
	Plan    *plan.Plan    `json:"plan"`
	VMs     []VMRecord    `json:"vms"`
	Life
	Channels
	Across
}

// Life is how long a cluster lasts, and what can be done to it.
type Life struct {
	// Survives: the VMs do not end with their owner.
	Survives bool `json:"survives,omitempty"`
	// Kept: the cluster outlives the command that started it.
	Kept bool `json:"kept,omitempty"`
	// Restartable: nearmetal restart can start a VM of it again.
	Restartable bool `json:"restartable,omitempty"`
	// Paused: the user has stopped the VMs (nearmetal pause).
	Paused bool `json:"paused,omitempty"`
}

// Channels are what messages between VMs can go through.
type Channels struct {
	// Fabric is the libfabric provider on this host of which the VMs have a copy; empty: none.
	Fabric string `json:"fabric,omitempty"`
	// UCX is the transport for UCX on this host of which the VMs have a copy; empty: none.
	UCX string `json:"ucx,omitempty"`
	// Promised is the size in bytes of a region that the backend promises the VMs, besides the plan's; 0: none.
	Promised uint64 `json:"promisedRegion,omitempty"`
	// DeviceFaults are why the VMs' devices are not used, a line each; none: they are, where there are any.
	DeviceFaults []string `json:"deviceFaults,omitempty"`
}

// Across are the hosts of a cluster's VMs, where this host does not have all of them.
type Across struct {
	// Part is the cluster whose part this is on this host: one over several hosts, which another nearmetal owns.
	Part string `json:"partOf,omitempty"`
	// Remote are the hosts that have the VMs, reached by ssh; none: this host.
	Remote []RemoteHost `json:"remoteHosts,omitempty"`
	// Caller is who runs programs in the VMs of Remote; nil: who calls.
	Caller *Caller `json:"caller,omitempty"`
	// Overlay are the hosts whose VMs are one network with these; none: this host alone.
	Overlay []RecordHost `json:"overlay,omitempty"`
}

// VMRecord is one VM of a Record.
type VMRecord struct {
	Name        string `json:"name"`
	Host        string `json:"host,omitempty"` // of Remote
	VCPUs       int    `json:"vcpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	IP          string `json:"ip,omitempty"`
	Subnet      string `json:"subnet,omitempty"` // of IP
	Uplink      bool   `json:"uplink,omitempty"` // it reaches the host
	PID         int    `json:"pid,omitempty"`    // of the VM on this host, 0: none
	State       State  `json:"state"`
	ReadyNs     int64  `json:"readyNs,omitempty"` // from the VM's start to ready, ns
	Ended       string `json:"ended,omitempty"`   // why it runs no more, one line
	// Devices as the VM's agent reported them when it was ready.
	Devices []guest.Device `json:"devices,omitempty"`
}

// RemoteHost is a host of a cluster's, reached by ssh, in its record.
type RemoteHost struct {
	Name string   `json:"name"`           // as the user named it
	Addr string   `json:"addr,omitempty"` // by which the other hosts reach it
	VMs  []string `json:"vms"`
	Lost string   `json:"lost,omitempty"` // why it is not reached any more
}

// RecordHost is another host of the cluster's overlay, in its record.
type RecordHost struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Self   bool   `json:"self,omitempty"` // it is this host
	Joined bool   `json:"joined"`
	Why    string `json:"why,omitempty"` // not joined: the last reason
	// DevicesReached: the devices of its VMs have answered those of this host's. DeviceFault says why not.
	DevicesReached bool       `json:"devicesReached,omitempty"`
	DeviceFault    string     `json:"deviceFault,omitempty"`
	VMs            []VMRecord `json:"vms"`
}

// Running is how many of the record's VMs have not ended.
func (r *Record) Running() int {
	n := 0
	for _, v := range r.VMs {
		if v.State != Dead {
			n++
		}
	}
	return n
}

// MayRun says whether the cluster's VMs may be running: its owner lives, or they outlive it. (What
// ended with its owner and is not swept yet is in the list too.)
func (r *Record) MayRun() bool { return r.State != Dead || r.Survives }

// OutOfMemory returns the line that a VM's kernel has killed a process because memory ran out; option raises what a VM has.
func (r *Record) OutOfMemory(vm, option string) string {
	for _, v := range r.VMs {
		if v.Name == vm {
			return fmt.Sprintf("%s ran out of memory, and its kernel killed a process: the VM has %s (%s raises that)", vm, spec.Size(v.MemoryBytes/(1<<20)*(1<<20)), option)
		}
	}
	return vm + " ran out of memory, and its kernel killed a process"
}

// FindVM returns the name of the VM that a user named, or of the first where name is "".
func (r *Record) FindVM(name string) (string, error) {
	var names []string
	for _, v := range r.VMs {
		if v.Name == name || name == "" {
			return v.Name, nil
		}
		names = append(names, v.Name)
	}
	return "", fmt.Errorf("cluster %s has no VM %q: it has %s", r.Name, name, few(names))
}

// few joins the first of names for a message.
func few(names []string) string {
	const shown = 8
	if len(names) > shown {
		names = append(names[:shown:shown], "…")
	}
	return strings.Join(names, ", ")
}

// write puts the record into dir, whole or not at all.
func (r *Record) write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, recordFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, recordFile))
}

// maxRecord bounds a record, in bytes: 1,024 VMs take about 200 KiB.
const maxRecord = 8 << 20

func readRecord(dir string) (*Record, error) {
	path := filepath.Join(dir, recordFile)
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxRecord {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxRecord)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}
