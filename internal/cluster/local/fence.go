package local

import (
	"errors"
	"fmt"
	"os"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/limits"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/spec"
)

// A VM's process runs as the user. docs/security.md describes how a guest is kept from the user's and the host's
// resources; this file has the part of the cluster's owner.

// fence sets up the VMs' isolation. With isolation: auto it reports which mechanisms are unavailable.
func (m *VMs) fence(o options, notice func(string)) error {
	s := o.Spec
	if len(m.caps.Exports) == 0 || m.caps.Remote {
		return nil
	}
	strict := s.Isolation == "strict"
	demanded := strict || s.Isolation == "standard"
	if strict {
		if err := m.fenceStrict(o, notice); err != nil {
			return err
		}
	}
	for _, line := range unfenced(m.caps, s.Network.Uplink == "user") {
		notice(line)
	}
	if !m.caps.Veil {
		return nil
	}
	var dirs, write []string
	for _, e := range exports(s) {
		dirs = append(dirs, e.Path)
		if !e.ReadOnly {
			write = append(write, e.Path)
		}
	}
	if len(dirs) == 0 {
		return nil
	}
	hidden, err := state.HiddenDirs()
	if err != nil {
		return err
	}
	switch {
	case s.Files == string(backend.ExportVirtiofs):
		m.fences.veil, err = isolate.NewTreeVeil(dirs, hidden, write)
	case strict:
		m.fences.veil, err = isolate.NewLockedVeil(dirs, hidden, write)
	default:
		m.fences.veil, err = isolate.NewVeil(dirs, hidden)
	}
	var no *isolate.NoNamespace
	switch {
	case errors.As(err, &no) && demanded:
		return fmt.Errorf("isolation: %s is not available: %w; nearmetal check --only limits.userns shows what to change", s.Isolation, err)
	case errors.As(err, &no):
		notice(fmt.Sprintf("the VMs see this host's /proc, /sys, /run and /tmp as you do: %v (isolation: standard refuses that)", no))
		return nil
	}
	return err
}

// unfenced returns one line for each isolation mechanism that the backend lacks, with the reason. uplink: the VMs
// reach this host's network.
func unfenced(c backend.Caps, uplink bool) (lines []string) {
	add := func(what string, lacks backend.Cap) {
		if why := c.Why[lacks]; why != "" {
			what += ": " + why
		}
		lines = append(lines, what+" (isolation: standard refuses that)")
	}
	if !c.Sandbox {
		add("the VMs' system calls are not filtered", backend.CapSandbox)
	}
	if !c.Filter && uplink {
		add("the VMs reach this host's loopback", backend.CapFilter)
	}
	return lines
}

// fenceStrict sets up isolation: strict as far as the host supports it. Each missing mechanism is a notice, or an
// error if placement.strict is set.
func (m *VMs) fenceStrict(o options, notice func(string)) error {
	demanded := o.Spec.Placement.Strict
	var missing error
	if text := isolate.LandlockLacks(); text != "" {
		missing = errors.New(text)
	}
	if err := lack("a VM's process is not fenced in by Landlock as far as it could be", missing, demanded, notice); err != nil {
		return err
	}
	if o.Limited || os.Getenv("SLURM_JOB_ID") != "" {
		return nil // the job's limits apply
	}
	var err error
	m.fences.groups, err = limits.Find()
	return lack("the VMs' memory, processes, CPUs and I/O are not all limited", err, demanded, notice)
}

// lack returns an error if the missing mechanism is demanded, and else calls notice; err nil: nothing is missing.
func lack(what string, err error, demanded bool, notice func(string)) error {
	switch {
	case err == nil:
		return nil
	case demanded:
		return fmt.Errorf("isolation: strict, and placement: {strict: true}: %s: %w", what, err)
	}
	notice(fmt.Sprintf("%s: %v (--strict refuses that)", what, err))
	return nil
}

// veiled returns the exports as the VMs see them.
func (m *VMs) veiled(list []backend.Export) []backend.Export {
	for i := range list {
		list[i].Veiled = m.fences.veil != nil
	}
	return list
}

// veilFiles adds the VM's filtered view of the file system to f, according to the cluster file s. The caller calls
// done when the VM has started.
func (m *VMs) veilFiles(f *backend.Files, s *spec.Cluster) (done func(), err error) {
	if m.fences.veil == nil {
		return func() {}, nil
	}
	f.Exports, f.Veil = m.fences.veil.Dirs(), m.fences.veil.Namespace()
	if s.Files != string(backend.ExportVirtiofs) {
		return func() {}, nil
	}
	var trees []*os.File
	done = func() {
		for _, t := range trees {
			t.Close()
		}
	}
	for i := range exports(s) {
		t, err := m.fences.veil.Tree(i)
		if err != nil {
			done()
			return nil, err
		}
		trees = append(trees, t)
	}
	f.Exports = trees
	return done, nil
}
