// Package limits makes the cgroups of isolation: strict: one for each VM's processes, where this process may make any.
package limits

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/host/isolate"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
)

// kind is the kind of the change that makes a cgroup.
const kind = "cgroup"

func init() {
	journal.Register(kind, validGroup, undoGroup, func(c journal.Change) string { return "cgroup " + c.Args["path"] })
}

// prefix is what the names of cgroups of ours start with: no others are ever removed.
const prefix = "nearmetal-"

func validGroup(c journal.Change) error {
	p := c.Args["path"]
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || !strings.HasPrefix(filepath.Base(p), prefix) {
		return fmt.Errorf("%.200q is not one of nearmetal's cgroups", p)
	}
	return nil
}

func undoGroup(c journal.Change) (did bool, err error) { return isolate.RemoveGroup(c.Args["path"]) }

// besideBytes is what a VM's process and its user network may take beside the VM's memory, in bytes.
const besideBytes = 512 << 20

// limitsOf are those of a VM: what its plan has, and what its process and its user network take beside.
func limitsOf(vm *plan.VM, region *plan.Region) isolate.Limits {
	l := isolate.Limits{
		MemoryBytes: vm.MemoryBytes + besideBytes,
		Processes:   2*vm.VCPUs + 160, // up to 64 workers for files
		CPUs:        vm.VCPUs + 2,     // the process's other threads, and the user network
		IOWeight:    50,
	}
	if region != nil {
		l.MemoryBytes += region.SizeBytes // it counts where it is touched first
	}
	return l
}

// Groups are the cgroups of a cluster's VMs. The zero value has none.
type Groups struct {
	parent  string   // "": none can be made
	missing []string // controllers that are not handed on
}

// Find finds where VMs' cgroups can be made. The error names what cannot be limited.
func Find() (Groups, error) {
	parent, missing, err := isolate.GroupParent()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no controller for %s", strings.Join(missing, " and "))
	}
	return Groups{parent, missing}, err
}

// Any reports whether VMs have cgroups.
func (g Groups) Any() bool { return g.parent != "" }

// Make makes the cgroup of a VM of the cluster called name, written down in j before; region is that of the VMs, or nil. The
// file is the cgroup's directory; nil: the VM has none.
func (g Groups) Make(name string, vm *plan.VM, region *plan.Region, j *journal.Journal) (*os.File, error) {
	if g.parent == "" {
		return nil, nil
	}
	path := filepath.Join(g.parent, fmt.Sprintf("%s%d-%s-%s", prefix, os.Getuid(), name, vm.Name))
	if _, err := j.Record(journal.Change{Kind: kind, Args: map[string]string{"path": path}}); err != nil {
		return nil, err
	}
	// One of that name was left by an owner whose directory is gone.
	if _, err := isolate.RemoveGroup(path); err != nil {
		return nil, err
	}
	return isolate.MakeGroup(path, limitsOf(vm, region), g.missing)
}
