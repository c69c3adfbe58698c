package slurm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/host/change"
	"nearmetal/internal/host/device"
	"nearmetal/internal/journal"
	"nearmetal/internal/slurm/conf"
)

// LeaseRequest is a prolog's request for the VFs of a job.
type LeaseRequest struct {
	Root     string // parent of /sys, /dev, /run and /var; "": this host
	Conf     string // directory of Slurm's gres.conf and cgroup.conf
	Detail   string // Slurm's description of the job's GRES on this node, see Indices
	Job      string // JOB.NODE
	State    string // the plugin's directory of running jobs
	Node     string
	UID, GID int
}

// Lease leases the VFs of a job to its user. It returns their PCI addresses, and notes for the administrator. If it
// fails, no VF remains leased.
//
// If a process still has a VF open, Lease skips that VF and leases a free VF of the same type instead, unless Slurm
// restricts jobs to the devices that it has chosen (ConstrainDevices). Without a substitute, the error contains a
// *device.HeldError, because it is not a fault of the host.
func Lease(ctx context.Context, l LeaseRequest) (leased, notes []string, err error) {
	indices, err := Indices(l.Detail, GresVF)
	if err != nil || len(indices) == 0 {
		return nil, nil, err
	}
	config, err := conf.Read(filepath.Join(l.Conf, "gres.conf"))
	if err != nil {
		return nil, nil, err
	}
	slots, err := Slots(config, l.Node, GresVF)
	if err != nil {
		return nil, nil, err
	}
	host, err := device.Open(l.Root, 0)
	if err != nil {
		return nil, nil, err
	}
	all, err := host.List(true)
	if err != nil {
		return nil, nil, err
	}
	runs := func(name string) bool {
		job, own := jobOf(name, l.State)
		if !own {
			return true // a lease by another Slurm on this host
		}
		_, err := os.Lstat(filepath.Join(l.State, job))
		return err == nil
	}
	one := func(s Slot) error {
		at, err := inGroup(all, s.File)
		if err == nil {
			err = host.Lease(ctx, leaseName(l.Job, l.State), at, l.UID, l.GID, runs)
		}
		if err == nil {
			leased = append(leased, at)
		}
		return err
	}
	// Slurm's choices for this job are leased first, so that none of them is used as a substitute.
	var held []Slot
	var why []error
	for _, i := range indices {
		if i >= len(slots) {
			err = fmt.Errorf("the job has %s number %d, but gres.conf has %d on %s", GresVF, i, len(slots), l.Node)
			break
		}
		err = one(slots[i])
		if errors.As(err, new(*device.HeldError)) {
			held, why, err = append(held, slots[i]), append(why, err), nil
		}
		if err != nil {
			break
		}
	}
	for i := 0; i < len(held) && err == nil; i++ {
		if err = l.substitute(held[i], slots, indices, one); err != nil {
			err = fmt.Errorf("%w; no other VF of its type can be had on %s", why[i], l.Node)
		} else {
			notes = append(notes, fmt.Sprintf("%v: set aside, job %s has %s instead", why[i], l.Job, leased[len(leased)-1]))
		}
	}
	if err != nil {
		_, bad := host.Return(func(job string) bool { return job == leaseName(l.Job, l.State) })
		return nil, nil, errors.Join(err, bad)
	}
	return leased, notes, nil
}

// errNone reports that there is no substitute.
var errNone = errors.New("no other VF")

// substitute leases another slot of the type of a held one, which Slurm did not choose for this job.
func (l LeaseRequest) substitute(held Slot, slots []Slot, chosen []int, lease func(Slot) error) error {
	cgroup, err := conf.Read(filepath.Join(l.Conf, "cgroup.conf"))
	if err == nil {
		if v, _, _ := cgroup.Last("ConstrainDevices"); strings.EqualFold(v, "yes") {
			return errNone
		}
	}
	for i, s := range slots {
		if s.Type == held.Type && !slices.Contains(chosen, i) && lease(s) == nil {
			return nil
		}
	}
	return errNone
}

// leaseName returns the name under which a job leases VFs. It includes the state directory, because two Slurms on a
// host may use the same names for their jobs, but have separate directories.
func leaseName(job, state string) string {
	h := fnv.New32a()
	h.Write([]byte(filepath.Clean(state)))
	return fmt.Sprintf("%s.%08x", job, h.Sum32())
}

// jobOf returns the job in a lease's name, and whether the lease belongs to the Slurm whose directory state is.
func jobOf(name, state string) (job string, own bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", false
	}
	return name[:dot], leaseName(name[:dot], state) == name
}

// inGroup returns the address of the only function in the IOMMU group of a file.
func inGroup(all []*device.Function, file string) (string, error) {
	group, err := groupOf(file)
	if err != nil {
		return "", err
	}
	at := ""
	for _, f := range all {
		if f.Group != group || f.Class>>16 == 0x06 {
			continue
		}
		if at != "" {
			return "", fmt.Errorf("IOMMU group %d has %s and %s: it cannot be one job's VF", group, at, f.Address)
		}
		at = f.Address
	}
	if at == "" {
		return "", fmt.Errorf("gres.conf: %s: no device of this host is in IOMMU group %d", file, group)
	}
	return at, nil
}

// Return returns the VFs of a job to the host. With job "" it returns those of all jobs without a directory in state,
// which remain after a reboot.
func Return(root, job, state string) error {
	_, err := giveBack(root, job, state)
	return err
}

// giveBack is Return, and also returns the changes that it undid.
func giveBack(root, job, state string) ([]journal.Change, error) {
	// A host without PCI has never leased a VF.
	if list, err := change.List(filepath.Join(root+"/", change.Dir)); err != nil || len(list) == 0 {
		return nil, err
	}
	host, err := device.Open(root, 0)
	if err != nil {
		return nil, err
	}
	return host.Return(func(j string) bool {
		if job != "" {
			return j == leaseName(job, state)
		}
		of, own := jobOf(j, state)
		if !own {
			return false
		}
		_, err := os.Lstat(filepath.Join(state, of))
		return errors.Is(err, os.ErrNotExist)
	})
}
