package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
)

// List returns the records of the user's clusters, sorted by name. A cluster whose owner has died has the state Dead.
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
			continue // the directory is between its creation and its first record, or is being removed
		}
		if err != nil {
			r = &Record{}
		}
		r.Name = e.Name() // the record of a cluster that is being renamed may have the other name
		// If the lock cannot be read, the state in the record is kept.
		if live, err := locked(dir); !live && err == nil {
			r.State = Dead
		}
		list = append(list, *r)
	}
	return list, nil
}

// Ledger returns the resources that VMs of the user's clusters use on the hosts, including VMs that may have outlived
// their owner.
func Ledger() (plan.Ledger, error) {
	var l plan.Ledger
	list, err := List()
	if err != nil {
		return l, err
	}
	for i := range list {
		if r := &list[i]; r.Plan != nil && r.MayRun() && len(r.Remote) == 0 {
			l.Hold(r.Plan)
		}
	}
	return l, nil
}

// clusterNames returns the names of clusters.
func clusterNames(list []Record) []string {
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.Name
	}
	return names
}

// Find returns the record of the cluster called name. If name is empty, it returns that of $NEARMETAL_CLUSTER, or
// else that of the only running cluster.
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
	// An empty name selects a part of a cluster only if no whole cluster runs.
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
