// Package verify reads running VMs back and compares them with their plan, row by row: threads on their CPUs, memory on
// its nodes and in its pages, the topology, devices and region that QEMU shows, and the guest kernel's view of them.
package verify

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
)

// Status is the result of a row.
type Status string

// The statuses of a row.
const (
	OK      Status = "ok"
	Differs Status = "differs"
	// Note marks a row that could not be read, or that no QEMU could have rendered. It is neither a fault of the
	// running VM nor a difference.
	Note Status = "note"
)

// Row compares one planned property with its actual value.
type Row struct {
	VM      string `json:"vm"`
	What    string `json:"what"`
	Planned string `json:"planned"`
	Found   string `json:"found"`
	Status  Status `json:"status"`
}

// String returns the row as a sentence, for a warning.
func (r Row) String() string {
	return fmt.Sprintf("%s: %s: planned %s, found %s", r.VM, r.What, r.Planned, r.Found)
}

// Report is the result of Check.
type Report struct {
	Cluster string `json:"cluster"`
	// Guest is set if the guests' own view was also read.
	Guest bool  `json:"guest"`
	Rows  []Row `json:"rows"`
}

// Count returns the number of rows with a status.
func (r *Report) Count(s Status) int {
	n := 0
	for i := range r.Rows {
		if r.Rows[i].Status == s {
			n++
		}
	}
	return n
}

// Differences returns the rows that differ.
func (r *Report) Differences() []Row {
	var rows []Row
	for _, row := range r.Rows {
		if row.Status == Differs {
			rows = append(rows, row)
		}
	}
	return rows
}

// VM is a VM to check.
type VM struct {
	Plan  plan.VM
	Ended bool              // the VM does not run
	Host  backend.Inspector // reads it from outside; nil: its backend cannot
	Run   Run               // nil: the guest is not asked
	// Region is the size of the region that the VM's backend has promised in addition to the plan, in bytes
	// (backend.Promiser).
	Region     uint64
	RegionLook string
}

// together bounds the number of VMs that are checked concurrently. Checking mostly waits.
const together = 16

// Check checks the VMs of a cluster whose plan has the region (nil: none), and returns their rows in the VMs' order. A
// part that cannot be read has a row of its own. ctx bounds the check.
func Check(ctx context.Context, cluster string, region *plan.Region, vms []VM) *Report {
	r := &Report{Cluster: cluster}
	facts := make([]*backend.Facts, len(vms))
	guests := make([]*Guest, len(vms))
	var g errgroup.Group
	g.SetLimit(together)
	for i := range vms {
		if vms[i].Run != nil {
			r.Guest = true
		}
		g.Go(func() error {
			v := &vms[i]
			facts[i] = gather(ctx, v, region)
			if v.Run != nil && !v.Ended {
				guests[i] = AskGuest(ctx, v.Plan.Name, v.Run)
			}
			return nil
		})
	}
	g.Wait()
	shared := regionFile(facts)
	for i := range vms {
		r.Rows = append(r.Rows, Compare(&vms[i].Plan, region, facts[i], shared)...)
		if guests[i] != nil {
			seen := &vms[i].Plan
			if f := facts[i]; f != nil && f.Guest != nil {
				seen = f.Guest
			}
			r.Rows = append(r.Rows, CompareGuest(seen, region, guests[i])...)
			r.Rows = append(r.Rows, comparePromise(&vms[i], guests[i])...)
		}
	}
	return r
}

// gather reads a VM from outside; nil: its backend cannot.
func gather(ctx context.Context, v *VM, region *plan.Region) *backend.Facts {
	switch {
	case v.Ended:
		return &backend.Facts{VM: v.Plan.Name, Ended: true}
	case v.Host == nil:
		return nil
	}
	return v.Host.Inspect(ctx, &v.Plan, region)
}

// rows collects the rows of one VM.
type rows struct {
	vm   string
	list []Row
}

// add adds a row; ok means that the value found equals the planned one.
func (r *rows) add(ok bool, what, planned, found string) {
	s := OK
	if !ok {
		s = Differs
	}
	r.list = append(r.list, Row{r.vm, what, planned, found, s})
}

// note adds a row with the reason why there is nothing to compare with the plan.
func (r *rows) note(what, planned, found string) {
	r.list = append(r.list, Row{r.vm, what, planned, found, Note})
}
