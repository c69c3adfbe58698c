// Package limits creates the cgroups of isolation: strict, one for each VM's processes, if this process may create
// any.
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

// prefix starts the names of nearmetal's cgroups. No others are ever removed.
const prefix = "nearmetal-"

func validGroup(c journal.Change) error {
	p := c.Args["path"]
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || !strings.HasPrefix(filepath.Base(p), prefix) {
		return fmt.Errorf("%.200q is not one of nearmetal's cgroups", p)
	}
	return nil
}

func undoGroup(c journal.Change) (did bool, err error) { return isolate.RemoveGroup(c.Args["path"]) }

// besideBytes is the memory allowed for a VM's process and its user network in addition to the VM's memory, in bytes.
const besideBytes = 512 << 20

// limitsOf returns the limits of a VM: its share of the plan, plus an allowance for its process and its user network.
func limitsOf(vm *plan.VM, region *plan.Region) isolate.Limits {
	l := isolate.Limits{
		MemoryBytes: vm.MemoryBytes + besideBytes,
		Processes:   2*vm.VCPUs + 160, // up to 64 workers for files
		CPUs:        vm.VCPUs + 2,     // the process's other threads, and the user network
		IOWeight:    50,
	}
	if region != nil {
		l.MemoryBytes += region.SizeBytes // the region counts for the VM that touches it first
	}
	return l
}

// Groups creates the cgroups of a cluster's VMs. The zero value creates none.
type Groups struct {
	parent  string   // "": none can be created
	missing []string // controllers that are not delegated
}

// Find determines where VMs' cgroups can be created. The error names the resources that cannot be limited.
func Find() (Groups, error) {
	parent, missing, err := isolate.GroupParent()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no controller for %s", strings.Join(missing, " and "))
	}
	return Groups{parent, missing}, err
}

// Any reports whether VMs have cgroups.
func (g Groups) Any() bool { return g.parent != "" }

// Make creates the cgroup of a VM of the cluster called name, after recording it in j. region is the VMs' shared
// region, or nil. Make returns the open directory of the cgroup; nil if VMs have none.
func (g Groups) Make(name string, vm *plan.VM, region *plan.Region, j *journal.Journal) (*os.File, error) {
	if g.parent == "" {
		return nil, nil
	}
	path := filepath.Join(g.parent, fmt.Sprintf("%s%d-%s-%s", prefix, os.Getuid(), name, vm.Name))
	if _, err := j.Record(journal.Change{Kind: kind, Args: map[string]string{"path": path}}); err != nil {
		return nil, err
	}
	// An owner whose directory is gone may have left a cgroup of that name.
	if _, err := isolate.RemoveGroup(path); err != nil {
		return nil, err
	}
	return isolate.MakeGroup(path, limitsOf(vm, region), g.missing)
}
