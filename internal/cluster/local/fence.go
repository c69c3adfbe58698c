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

// A VM's process is the user's. What keeps a guest from what is the user's and the host's is
// written in docs/security.md; here is what the cluster's owner does for it.

// fence makes what the VMs are fenced in with. With isolation: auto it says what cannot be had.
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

// unfenced are the lines on what the backend cannot fence VMs in with, each with its own reason. uplink: the VMs reach
// this host's network.
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

// fenceStrict finds what isolation: strict takes where the host has it. What is missing is a notice, or an error where
// the cluster file is strict about what it asks for.
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
		return nil // a job's limits hold
	}
	var err error
	m.fences.groups, err = limits.Find()
	return lack("the VMs' memory, processes, CPUs and I/O are not all limited", err, demanded, notice)
}

// lack is an error where what is missing is demanded, else a notice; err nil: nothing is missing.
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

// veilFiles puts what a VM sees through into f, of the cluster file s. The caller calls done when the VM has started.
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
