// Package daemon connects to a libvirtd of this host: its socket, its domains, and their QEMU's monitors.
package daemon

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Address names a libvirtd of this host.
type Address struct {
	// Session selects the user's own libvirtd, otherwise the host's.
	Session bool
	// Socket is the path of its socket; "": libvirt's default.
	Socket string
}

// Default returns the libvirtd that virsh uses by default: the host's for root, the user's own for others.
// LIBVIRT_DEFAULT_URI overrides it, as for virsh.
func Default() (Address, error) {
	if uri := os.Getenv("LIBVIRT_DEFAULT_URI"); uri != "" {
		a, err := Parse(uri)
		if err != nil {
			err = fmt.Errorf("LIBVIRT_DEFAULT_URI: %w", err)
		}
		return a, err
	}
	return Address{Session: os.Geteuid() != 0}, nil
}

// Parse parses a URI as virsh does: qemu:///system or qemu:///session, with ?socket=PATH for another socket. "" is
// Default. It reads nothing else of the host.
func Parse(uri string) (Address, error) {
	if uri == "" {
		return Default()
	}
	u, err := url.Parse(uri)
	switch {
	case err != nil || u.Scheme == "" || u.Opaque != "":
		return Address{}, fmt.Errorf("%.80q is not an address of a libvirtd: qemu:///system or qemu:///session", uri)
	case u.Scheme != "qemu" || u.Host != "" || u.User != nil:
		return Address{}, fmt.Errorf("libvirt's %.80q: nearmetal reaches QEMU of this host only: qemu:///system or qemu:///session", uri)
	case u.Path != "/system" && u.Path != "/session":
		return Address{}, fmt.Errorf("libvirt's %.80q: qemu:///system or qemu:///session", uri)
	}
	a := Address{Session: u.Path == "/session"}
	q, err := url.ParseQuery(u.RawQuery)
	for k, v := range q {
		if k != "socket" || len(v) != 1 || !filepath.IsAbs(v[0]) || strings.ContainsRune(v[0], 0) {
			err = fmt.Errorf("only ?socket=PATH may follow")
		}
		a.Socket = v[0]
	}
	if err != nil {
		return Address{}, fmt.Errorf("libvirt's %.80q: %w", uri, err)
	}
	return a, nil
}

// String returns the URI, as accepted by virsh -c.
func (a Address) String() string {
	s := a.path()
	if a.Socket != "" {
		s += "?socket=" + url.QueryEscape(a.Socket)
	}
	return s
}

// path returns the URI as the daemon itself knows it.
func (a Address) path() string {
	if a.Session {
		return "qemu:///session"
	}
	return "qemu:///system"
}

// sockets returns the paths where the daemon may listen: first that of the daemon for QEMU only, which newer
// distributions have.
func (a Address) sockets() []string {
	dir := "/run/libvirt"
	switch {
	case a.Socket != "":
		return []string{a.Socket}
	case a.Session:
		dir = sessionDir()
	}
	return []string{filepath.Join(dir, "virtqemud-sock"), filepath.Join(dir, "libvirt-sock")}
}

// stateDir returns the directory in which the daemon keeps the pid files of its domains' QEMUs.
func (a Address) stateDir() string {
	if a.Session {
		return filepath.Join(sessionDir(), "qemu", "run")
	}
	return "/run/libvirt/qemu"
}

// sessionDir returns the directory of the user's own daemon's socket (virGetUserRuntimeDirectory): below
// XDG_RUNTIME_DIR, or without that in the user's cache.
func sessionDir() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		if dir = os.Getenv("XDG_CACHE_HOME"); dir == "" {
			dir = filepath.Join(os.Getenv("HOME"), ".cache")
		}
	}
	return filepath.Join(dir, "libvirt")
}
