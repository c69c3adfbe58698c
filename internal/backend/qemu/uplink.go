package qemu

import (
	"fmt"
	"os"

	"nearmetal/internal/host/isolate"
)

// With isolation: strict a VM's user network is a process of its own: a QEMU without a machine, which the guest
// reaches only by frames through the owner's filter. It is also in a jail, but uses the host's network, and has no
// files of the VM. A compromised QEMU of the VM therefore has no network at all.

// uplinkArgs returns the command line of such a process; the filter's end is its first inherited file.
func uplinkArgs(path string) []string {
	args := []string{path, "-name", "uplink", "-machine", "none", "-nodefaults", "-no-user-config", "-display", "none"}
	args = append(args, sandbox{}.Args()...)
	for _, dev := range []string{
		option("user", "id=user", "net="+userNet, "host="+userHost, "ipv6=off"),
		option("stream", "id=way", "addr.type=fd", fmt.Sprintf("addr.str=%d", firstFD)),
		"hubport,id=hubuser,hubid=0,netdev=user",
		"hubport,id=hubway,hubid=0,netdev=way",
	} {
		args = append(args, "-netdev", dev)
	}
	return args
}

// startUplink starts the user network at the other end of a filter.
func startUplink(path string, filter, cgroup *os.File) (*child, error) {
	j, err := qemuJail(path, cgroup)
	if err != nil {
		return nil, err
	}
	j.Network = true
	// Names are resolved by queries to the host's servers.
	j.Binds = append(j.Binds, isolate.Bind{Path: "/etc/resolv.conf", Optional: true})
	j.Files = []isolate.JailFile{{File: filter}}
	c, err := spawn(uplinkArgs(path), nil, j)
	if err != nil {
		err = strictError(err)
	}
	return c, err
}

// startUplinks starts the user networks of m's cards, and has each recorded.
func (v *VM) startUplinks(m *Machine, f Files, o Options) error {
	for _, n := range m.uplinks {
		path := m.path
		var c *child
		var err error
		if m.passt != "" {
			path = m.passt
			c, err = startPasst(path, f.Links[n])
		} else {
			c, err = startUplink(path, f.Links[n], f.Cgroup)
		}
		if err != nil {
			return fmt.Errorf("its user network: %w", err)
		}
		if err := v.addHelper(c, "user network", path, o, "network of "); err != nil {
			return err
		}
	}
	return nil
}

// words returns how a process ended and its last output.
func (c *child) words(path string) string {
	if said := complaint(path, c.stderr.String()); said != "" {
		return said
	}
	return c.state()
}
