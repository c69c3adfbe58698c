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

// LeaseRequest is what the prolog of a job asks for.
type LeaseRequest struct {
	Root     string // below which /sys, /dev, /run and /var are; "": this host
	Conf     string // the folder of Slurm's files: gres.conf, cgroup.conf
	Detail   string // Slurm's own words of the job's GRES on this node, see Indices
	Job      string // JOB.NODE
	State    string // the plugin's folder of running jobs
	Node     string
	UID, GID int
}

// Lease hands the VFs of a job to its user. It returns their PCI addresses, and notes for the administrator. When it
// fails nothing of it is left.
//
// A VF that somebody still has open is set aside, and the job gets another one of its type that is nobody's,
// unless Slurm keeps jobs from devices that it did not choose (ConstrainDevices). Without one the error
// has a *device.HeldError: it is no fault of the host.
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
			return true // another Slurm's on this host
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
	// Slurm's own choice first: what it chose for this job is no substitute.
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

// errNone says that there is no substitute.
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

// leaseName is the name under which a job has VFs: two Slurms on a host give the same names to their jobs, and have
// folders of their own.
func leaseName(job, state string) string {
	h := fnv.New32a()
	h.Write([]byte(filepath.Clean(state)))
	return fmt.Sprintf("%s.%08x", job, h.Sum32())
}

// jobOf is the job of a lease's name, and whether it is one of the Slurm whose folder state is.
func jobOf(name, state string) (job string, own bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", false
	}
	return name[:dot], leaseName(name[:dot], state) == name
}

// inGroup returns the address of the only function in the group of a file.
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

// Return takes a job's VFs back; with job "" those of all jobs that are not among the folders of
// state, which is what a reboot leaves.
func Return(root, job, state string) error {
	_, err := giveBack(root, job, state)
	return err
}

// giveBack is Return, with what it undid.
func giveBack(root, job, state string) ([]journal.Change, error) {
	// A host without PCI has never leased anything.
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
