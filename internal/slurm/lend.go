package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"nearmetal/internal/host/device"
	"nearmetal/internal/slurm/conf"
)

// Lending is what the prolog of a job asks for.
type Lending struct {
	Root     string // below which /sys, /dev, /run and /var are; "": this host
	Gres     string // path of gres.conf
	Detail   string // Slurm's own words of the job's GRES on this node, see Indices
	Job      string // JOB.NODE
	Node     string
	UID, GID int
}

// Lend hands the VFs of a job to its user, and gives their PCI addresses. When it fails nothing
// of it is left.
func Lend(ctx context.Context, l Lending) ([]string, error) {
	indices, err := Indices(l.Detail, GresVF)
	if err != nil || len(indices) == 0 {
		return nil, err
	}
	config, err := conf.Read(l.Gres)
	if err != nil {
		return nil, err
	}
	files, err := Slots(config, l.Node, GresVF)
	if err != nil {
		return nil, err
	}
	host, err := device.Open(l.Root, 0)
	if err != nil {
		return nil, err
	}
	all, err := host.List(true)
	if err != nil {
		return nil, err
	}
	var lent []string
	for _, i := range indices {
		if i >= len(files) {
			err = fmt.Errorf("the job has %s number %d, but gres.conf has %d on %s", GresVF, i, len(files), l.Node)
			break
		}
		var at string
		if at, err = inGroup(all, files[i]); err != nil {
			break
		}
		if err = host.Lend(ctx, l.Job, at, l.UID, l.GID); err != nil {
			break
		}
		lent = append(lent, at)
	}
	if err != nil {
		_, bad := host.Return(func(job string) bool { return job == l.Job })
		return nil, errors.Join(err, bad)
	}
	return lent, nil
}

// inGroup gives the address of the only function in the group of a file.
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
	host, err := device.Open(root, 0)
	if err != nil {
		return err
	}
	_, err = host.Return(func(j string) bool {
		if job != "" {
			return j == job
		}
		_, err := os.Lstat(filepath.Join(state, j))
		return errors.Is(err, os.ErrNotExist)
	})
	return err
}
