package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	Dead    State = "dead" // its owner is gone; only List says so
)

// Record is what a cluster's directory says of it. Only the owner writes it.
type Record struct {
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Owner   int       `json:"owner"` // process id
	Command string    `json:"command"`
	Created time.Time `json:"created"`
	// Accel is how the VMs' instructions run: "kvm" or "tcg", and of VMs elsewhere what their agents say, "" before.
	Accel   string `json:"accel"`
	Backend string `json:"backend,omitempty"` // that of Spec
	// Survives says that the VMs do not end with their owner.
	Survives bool          `json:"survives,omitempty"`
	Spec     *spec.Cluster `json:"spec"`
	Plan     *plan.Plan    `json:"plan"`
	VMs      []VMRecord    `json:"vms"`
	// Kept says that the cluster outlives the command that started it.
	Kept bool `json:"kept,omitempty"`
	// Restartable says that `nearmetal restart` can start a VM of it again.
	Restartable bool `json:"restartable,omitempty"`
	// Paused says that the user has stopped the VMs (`nearmetal pause`).
	Paused bool `json:"paused,omitempty"`
	// Fabric is the libfabric provider on this host of which the VMs have a copy; empty: none.
	Fabric string `json:"fabric,omitempty"`
	// Promised is the size in bytes of a region that the back end promises the VMs, beside the plan; 0: none.
	Promised uint64 `json:"promisedRegion,omitempty"`
	// UCX is the transport for UCX on this host of which the VMs have a copy; empty: none.
	UCX string `json:"ucx,omitempty"`
	// DeviceFaults say why the VMs' devices are not used, a line each; none: they are, where there are any.
	DeviceFaults []string `json:"deviceFaults,omitempty"`
	// Part is the cluster whose part this is on this host: one over several hosts, which another nearmetal owns.
	Part string `json:"partOf,omitempty"`
	// Remote are the hosts that have the VMs, reached by ssh; none: this host.
	Remote []RemoteHost `json:"remoteHosts,omitempty"`
	// Caller is who runs programs in the VMs of Remote; nil: who calls.
	Caller *caller `json:"caller,omitempty"`
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

// mayRun says whether the cluster's VMs may be running: its owner lives, or they outlive it. (What
// ended with its owner and is not swept yet is in the list too.)
func (r *Record) mayRun() bool { return r.State != Dead || r.Survives }

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

// List returns the records of the user's clusters, by name. One whose owner is gone is
// given with the state Dead.
func List() ([]Record, error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, err
	}
	var list []Record
	for _, e := range entries {
		if spec.CheckName(e.Name()) != nil || !e.IsDir() {
			continue
		}
		dir := filepath.Join(base, e.Name())
		r, err := readRecord(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // between its making and its first record, or between removal and its end
		}
		if err != nil {
			r = &Record{}
		}
		r.Name = e.Name() // the record of one that is being renamed may have the other
		// Where the lock does not say it the record is believed.
		if live, err := locked(dir); !live && err == nil {
			r.State = Dead
		}
		list = append(list, *r)
	}
	return list, nil
}

// Ledger returns what VMs of the user's clusters hold of the hosts, those included that may have
// outlived their owner.
func Ledger() (plan.Ledger, error) {
	var l plan.Ledger
	list, err := List()
	if err != nil {
		return l, err
	}
	for i := range list {
		if r := &list[i]; r.Plan != nil && r.mayRun() && len(r.Remote) == 0 {
			l.Hold(r.Plan)
		}
	}
	return l, nil
}

// clusterNames are the names of clusters.
func clusterNames(list []Record) []string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.Name
	}
	return names
}

// Find returns the record of the cluster called name; with an empty name, of
// $NEARMETAL_CLUSTER, else of the only cluster that runs.
func Find(name string) (*Record, error) {
	if name == "" {
		name = os.Getenv("NEARMETAL_CLUSTER")
	}
	if name != "" {
		if err := spec.CheckName(name); err != nil {
			return nil, err
		}
	}
	list, err := List()
	if err != nil {
		return nil, err
	}
	var live []Record
	for _, r := range list {
		if r.State != Dead && (name == "" || r.Name == name) {
			live = append(live, r)
		}
	}
	// A part is named only by whoever means it.
	if whole := slices.DeleteFunc(slices.Clone(live), func(r Record) bool { return r.Part != "" }); name == "" && len(whole) > 0 {
		live = whole
	}
	switch {
	case len(live) == 1:
		return &live[0], nil
	case len(live) > 1:
		return nil, fmt.Errorf("%d clusters run (%s): name one of them", len(live), few(clusterNames(live)))
	case name != "":
		for _, r := range list {
			for _, v := range r.VMs {
				if r.State != Dead && v.Name == name {
					return nil, fmt.Errorf("no cluster %q runs: did you mean the VM %s/%s?", name, r.Name, name)
				}
			}
		}
		return nil, fmt.Errorf("no cluster %q runs (nearmetal ps lists those that do)", name)
	}
	return nil, errors.New("no cluster runs: start one with nearmetal up")
}
