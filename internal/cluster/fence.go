package cluster

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/spec"
)

// A VM's process is the user's. What keeps a guest from what is the user's and the host's is
// written in docs/security.md; here is what the cluster's owner does for it.

// fence makes what the VMs are fenced in with. With isolation: auto it says what cannot be had.
func (c *Cluster) fence(o Options, notice func(string)) error {
	s := o.Spec
	if len(c.caps.Exports) == 0 || c.caps.Remote {
		return nil
	}
	strict := s.Isolation == "strict"
	demanded := strict || s.Isolation == "standard"
	if strict {
		if err := c.fenceStrict(o, notice); err != nil {
			return err
		}
	}
	for _, line := range unfenced(c.caps, s.Network.Uplink == "user") {
		notice(line)
	}
	if !c.caps.Veil {
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
	hidden, err := hiddenDirs()
	if err != nil {
		return err
	}
	switch {
	case s.Files == string(backend.ExportVirtiofs):
		c.veil, err = isolate.NewTreeVeil(dirs, hidden, write)
	case strict:
		c.veil, err = isolate.NewLockedVeil(dirs, hidden, write)
	default:
		c.veil, err = isolate.NewVeil(dirs, hidden)
	}
	var no *isolate.NoNamespace
	switch {
	case errors.As(err, &no) && demanded:
		return fmt.Errorf("isolation: %s cannot be had: %w; nearmetal check --only limits.userns says what to change", s.Isolation, err)
	case errors.As(err, &no):
		notice(fmt.Sprintf("the VMs see this host's /proc, /sys, /run and /tmp as you do: %v (isolation: standard refuses that)", no))
		return nil
	}
	return err
}

// unfenced are the lines on what the back end cannot fence VMs in with, each with its own reason. uplink: the VMs reach
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
func (c *Cluster) fenceStrict(o Options, notice func(string)) error {
	demanded := o.Spec.Placement.Strict
	var missing error
	if text := isolate.LandlockLacks(); text != "" {
		missing = errors.New(text)
	}
	if err := lack("a VM's process is not fenced in by Landlock as far as it could be", missing, demanded, notice); err != nil {
		return err
	}
	return c.findGroups(o, demanded, notice)
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

// hiddenDirs hold what belongs to clusters and to the user's session.
func hiddenDirs() ([]string, error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	list := []string{base, "/tmp/nearmetal-" + strconv.Itoa(os.Getuid())}
	x, err := runtimeDir()
	if err != nil {
		return nil, err
	}
	if x != "" {
		list = append(list, x)
	}
	return list, nil
}

// veiled returns the exports as the VMs see them.
func (c *Cluster) veiled(list []backend.Export) []backend.Export {
	for i := range list {
		list[i].Veiled = c.veil != nil
	}
	return list
}

// veilFiles puts what a VM sees through into f, of the cluster file s. The caller calls done when the VM has started.
func (c *Cluster) veilFiles(f *backend.Files, s *spec.Cluster) (done func(), err error) {
	if c.veil == nil {
		return func() {}, nil
	}
	f.Exports, f.Veil = c.veil.Dirs(), c.veil.Namespace()
	if s.Files != string(backend.ExportVirtiofs) {
		return func() {}, nil
	}
	var trees []*os.File
	done = func() { closeAll(trees) }
	for i := range exports(s) {
		t, err := c.veil.Tree(i)
		if err != nil {
			done()
			return nil, err
		}
		trees = append(trees, t)
	}
	f.Exports = trees
	return done, nil
}

// admit is the policy of the switchboard: over that of who may ask for what, a client's command has the
// VMs see what the user has made since, and opens the ports of this host that its launcher listens on.
func (c *Cluster) admit(next func(from, to, kind string, h channel.Fields) (channel.Fields, error)) func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
	return func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
		h, err := next(from, to, kind, h)
		if err != nil || from != "" {
			return h, err
		}
		if !c.hasVM(to) {
			return c.allowCalls(to, h)
		}
		if err := errors.Join(c.openPorts(h.All(guest.KeyHostPort)), c.answer(h.All(keyFrontPort))); err != nil {
			return nil, err
		}
		if c.veil != nil && kind == "exec" {
			if err := c.veil.Refresh(); err != nil {
				return nil, err
			}
		}
		return h.Without(guest.KeyHostPort).Without(keyFrontPort), nil
	}
}

// hasVM reports whether a VM runs on this host.
func (c *Cluster) hasVM(name string) bool {
	for _, v := range c.vms {
		if v.plan.Name == name {
			return true
		}
	}
	return false
}

// maxHostPorts is how many ports one command may ask for.
const maxHostPorts = 64

// openPorts opens the ports of a command's header to the VMs.
func (c *Cluster) openPorts(list []string) error {
	ports, err := parseHostPorts(list)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if c.wiring == nil || c.wiring.ports == nil {
			continue // nothing is closed
		}
		if err := c.wiring.ports.Open(p.number); err != nil && !p.optional {
			return err
		}
	}
	return nil
}

// hostPort is a port that a command asks for.
type hostPort struct {
	number   uint16
	optional bool // it is no error if nothing listens on it
}

// parseHostPorts reads the values of guest.KeyHostPort in a header.
func parseHostPorts(list []string) ([]hostPort, error) {
	if len(list) > maxHostPorts {
		return nil, fmt.Errorf("%d ports of this host are more than a command can ask for", len(list))
	}
	var ports []hostPort
	for _, text := range list {
		number, optional := strings.CutSuffix(text, " optional")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is no port of this host", channel.Clean(text))
		}
		ports = append(ports, hostPort{uint16(n), optional})
	}
	return ports, nil
}
