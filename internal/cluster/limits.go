package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nearmetal/internal/host/isolate"
	"nearmetal/internal/journal"
	"nearmetal/internal/plan"
)

// With isolation: strict each VM's processes are in a cgroup with limits, where this process may make one.

// groupKind is the kind of the change that makes a cgroup.
const groupKind = "cgroup"

func init() {
	journal.Register(groupKind, validGroup, undoGroup, func(c journal.Change) string { return "cgroup " + c.Args["path"] })
}

// groupPrefix is what the names of cgroups of ours start with: no others are ever removed.
const groupPrefix = "nearmetal-"

func validGroup(c journal.Change) error {
	p := c.Args["path"]
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || !strings.HasPrefix(filepath.Base(p), groupPrefix) {
		return fmt.Errorf("%.200q is no cgroup of ours", p)
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

// findGroups finds where VMs' cgroups can be made. Where they cannot, or a limit is missing, that is a notice, or
// an error where demanded.
func (c *Cluster) findGroups(o Options, demanded bool, notice func(string)) error {
	if o.Limited || os.Getenv("SLURM_JOB_ID") != "" {
		return nil
	}
	parent, missing, err := isolate.GroupParent()
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("no controller for %s", strings.Join(missing, " and "))
	}
	c.groups.parent, c.groups.missing = parent, missing
	return lack("the VMs' memory, processes, CPUs and I/O are not all limited", err, demanded, notice)
}

// groups are the VMs' cgroups.
type groups struct {
	parent  string // "": none can be made
	missing []string
}

// makeGroup makes the cgroup of a VM, before it starts; nil: it has none.
func (c *Cluster) makeGroup(vm *plan.VM, p *prepared) (*os.File, error) {
	if c.groups.parent == "" {
		return nil, nil
	}
	path := filepath.Join(c.groups.parent, fmt.Sprintf("%s%d-%s-%s", groupPrefix, os.Getuid(), c.rec.Name, vm.Name))
	if _, err := c.journal.Record(journal.Change{Kind: groupKind, Args: map[string]string{"path": path}}); err != nil {
		return nil, err
	}
	// One of that name was left by an owner whose directory is gone.
	if _, err := isolate.RemoveGroup(path); err != nil {
		return nil, err
	}
	return isolate.MakeGroup(path, limitsOf(vm, p.plan.Region), c.groups.missing)
}
