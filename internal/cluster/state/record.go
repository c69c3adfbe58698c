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

// State is the stage of a cluster's life.
type State string

// States of a cluster, in their order.
const (
	Booting State = "booting"
	Ready   State = "ready"
	Ending  State = "ending"
	Dead    State = "dead"   // its owner has died; set only by List
	Silent  State = "silent" // a VM is ready and does not answer; set only by nearmetal ps
)

// Record is the description of a cluster in its directory. Only the owner writes it.
type Record struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Owner   int       `json:"owner"` // process id
	Command string    `json:"command"`
	Created time.Time `json:"created"`
	// Accel is how the VMs' instructions run: "kvm" or "tcg". For VMs on other machines it comes from their agents,
	// and is "" before.
	Accel   string        `json:"accel"`
	Backend string        `json:"backend,omitempty"` // that of Spec
	Spec    *spec.Cluster `json:"spec"`
	Plan    *plan.Plan    `json:"plan"`
	VMs     []VMRecord    `json:"vms"`
	Life
	Channels
	Across
}

// Life states how long a cluster lasts, and which operations it supports.
type Life struct {
	// Survives: the VMs do not end with their owner.
	Survives bool `json:"survives,omitempty"`
	// Kept: the cluster outlives the command that started it.
	Kept bool `json:"kept,omitempty"`
	// Restartable: nearmetal restart can restart a VM of the cluster.
	Restartable bool `json:"restartable,omitempty"`
	// Paused: the user has stopped the VMs (nearmetal pause).
	Paused bool `json:"paused,omitempty"`
}

// Channels are the paths available to messages between VMs.
type Channels struct {
	// Fabric is the libfabric provider on this host that is copied to the VMs; empty: none.
	Fabric string `json:"fabric,omitempty"`
	// UCX is the transport for UCX on this host that is copied to the VMs; empty: none.
	UCX string `json:"ucx,omitempty"`
	// Promised is the size in bytes of a region that the backend promises the VMs, in addition to the plan's; 0:
	// none.
	Promised uint64 `json:"promisedRegion,omitempty"`
	// DeviceFaults are the reasons why the VMs' devices are not used, one line each; none: any devices are used.
	DeviceFaults []string `json:"deviceFaults,omitempty"`
}

// Across describes the hosts of a cluster's VMs, if this host does not run all of them.
type Across struct {
	// Part is the cluster that this one is the local part of: a cluster over several hosts, which another nearmetal
	// owns.
	Part string `json:"partOf,omitempty"`
	// Remote are the hosts that run the VMs, reached by ssh; none: this host.
	Remote []RemoteHost `json:"remoteHosts,omitempty"`
	// Caller is the user who runs programs in the VMs of Remote; nil: the calling user.
	Caller *Caller `json:"caller,omitempty"`
	// Overlay are the hosts whose VMs share one network with these; none: only this host.
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
	Uplink      bool   `json:"uplink,omitempty"` // the VM reaches the host
	PID         int    `json:"pid,omitempty"`    // of the VM's process on this host; 0: none
	State       State  `json:"state"`
	ReadyNs     int64  `json:"readyNs,omitempty"` // from the VM's start to ready, ns
	Ended       string `json:"ended,omitempty"`   // why it no longer runs, one line
	// Devices as the VM's agent reported them when it was ready.
	Devices []guest.Device `json:"devices,omitempty"`
}

// RemoteHost is a host of a cluster in its record, reached by ssh.
type RemoteHost struct {
	Name string   `json:"name"`           // as the user named it
	Addr string   `json:"addr,omitempty"` // by which the other hosts reach it
	VMs  []string `json:"vms"`
	Lost string   `json:"lost,omitempty"` // why it is no longer reached
}

// RecordHost is a host of the cluster's overlay, in its record.
type RecordHost struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Self   bool   `json:"self,omitempty"` // it is this host
	Joined bool   `json:"joined"`
	Why    string `json:"why,omitempty"` // the last reason why it is not joined
	// DevicesReached: the devices of its VMs have answered those of this host. Otherwise DeviceFault is the reason.
	DevicesReached bool       `json:"devicesReached,omitempty"`
	DeviceFault    string     `json:"deviceFault,omitempty"`
	VMs            []VMRecord `json:"vms"`
}

// Running returns the number of the record's VMs that have not ended.
func (r *Record) Running() int {
	n := 0
	for _, v := range r.VMs {
		if v.State != Dead {
			n++
		}
	}
	return n
}

// MayRun reports whether the cluster's VMs may be running: its owner is alive, or they outlive it. A Dead cluster
// whose VMs ended with the owner is also listed until the sweep removes it.
func (r *Record) MayRun() bool { return r.State != Dead || r.Survives }

// OutOfMemory returns a line that reports that a VM's kernel killed a process because memory ran out; option
// increases a VM's memory.
func (r *Record) OutOfMemory(vm, option string) string {
	for _, v := range r.VMs {
		if v.Name == vm {
			return fmt.Sprintf("%s ran out of memory, and its kernel killed a process: the VM has %s (%s raises that)", vm, spec.Size(v.MemoryBytes/(1<<20)*(1<<20)), option)
		}
	}
	return vm + " ran out of memory, and its kernel killed a process"
}

// FindVM returns the name of the VM that a user named, or of the first VM if name is "".
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

// write replaces the record in dir atomically.
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

// maxRecord bounds a record, in bytes: 1,024 VMs need about 200 KiB.
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
