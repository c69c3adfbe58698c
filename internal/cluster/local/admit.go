package local

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/text"
)

// KeyFrontPort is the header field of a command by which the front of a cluster over several hosts asks a part to
// listen on a launcher's port.
const KeyFrontPort = "front-port"

// Policy decides which streams a switchboard passes on; see channel.Switchboard.
type Policy func(from, to, kind string, h channel.Fields) (channel.Fields, error)

// Admit returns the policy of the switchboard, which wraps next: a client's command makes files that the user has
// created since visible in the VMs, and opens the ports of this host on which its launcher listens.
func (m *VMs) Admit(next Policy) Policy {
	return func(from, to, kind string, h channel.Fields) (channel.Fields, error) {
		h, err := next(from, to, kind, h)
		if err != nil || from != "" || !m.Has(to) {
			return h, err
		}
		if err := errors.Join(m.openPorts(h.All(guest.KeyHostPort)), m.answer(h.All(KeyFrontPort))); err != nil {
			return nil, err
		}
		if m.fences.veil != nil && kind == "exec" {
			if err := m.fences.veil.Refresh(); err != nil {
				return nil, err
			}
		}
		return h.Without(guest.KeyHostPort).Without(KeyFrontPort), nil
	}
}

// answer makes a part listen on the ports of launchers at its front, and opens them to its VMs.
func (m *VMs) answer(list []string) error {
	ports, err := ParsePorts(list)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if m.calls == nil {
			return errors.New("this cluster has no front with an MPI launcher")
		}
		if err := m.calls(p.Number); err != nil {
			return err
		}
	}
	return m.openPorts(list)
}

// Has reports whether a VM runs on this host.
func (m *VMs) Has(name string) bool {
	for _, v := range m.vms {
		if v.plan.Name == name {
			return true
		}
	}
	return false
}

// maxHostPorts bounds the ports that one command may request.
const maxHostPorts = 64

// openPorts opens the ports in a command's header to the VMs.
func (m *VMs) openPorts(list []string) error {
	ports, err := ParsePorts(list)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if m.net == nil || m.net.Ports == nil {
			continue // all ports are open
		}
		if err := m.net.Ports.Open(p.Number); err != nil && !p.Optional {
			return err
		}
	}
	return nil
}

// Port is a port that a command requests.
type Port struct {
	Number   uint16
	Optional bool // no error if no program listens on it
}

// ParsePorts parses the values of guest.KeyHostPort in a header.
func ParsePorts(list []string) ([]Port, error) {
	if len(list) > maxHostPorts {
		return nil, fmt.Errorf("%d ports of this host are more than a command can ask for", len(list))
	}
	var ports []Port
	for _, port := range list {
		number, optional := strings.CutSuffix(port, " optional")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a port of this host", text.CleanLines(port))
		}
		ports = append(ports, Port{uint16(n), optional})
	}
	return ports, nil
}
