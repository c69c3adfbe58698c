package libvirt

import (
	"fmt"
	"strings"

	"nearmetal/internal/backend/libvirt/daemon"
)

// parse parses a backend's name: libvirt, libvirt:///session, libvirt:qemu:///system; backend.Open also passes
// qemu:///session.
func parse(name string) (daemon.Address, error) {
	own := strings.TrimPrefix(name, "libvirt:")
	switch {
	case name == "libvirt":
		return daemon.Default()
	case strings.HasPrefix(own, "//"):
		own = "qemu:" + own
	}
	if own == "" {
		return daemon.Address{}, fmt.Errorf("backend %.60q: libvirt, libvirt:///session or libvirt:///system", name)
	}
	a, err := daemon.Parse(own)
	if err != nil {
		return a, fmt.Errorf("backend %.60q: %w", name, err)
	}
	return a, nil
}

// nameOf returns the name by which any process opens the same daemon.
func nameOf(a daemon.Address) string { return "libvirt:" + a.String() }
