// Package host reads the properties of a machine that matter to VMs: hardware virtualization, memory, CPUs, the rate
// of its time-stamp counter. It changes nothing.
package host

import "path/filepath"

// Host is the machine whose properties are read below Root; the zero value is this machine. Tests set Root to a
// captured tree.
type Host struct {
	Root string // a directory; empty: /
}

// path returns an absolute path below the root.
func (h Host) path(p string) string {
	if h.Root == "" {
		return p
	}
	return filepath.Join(h.Root, p)
}
