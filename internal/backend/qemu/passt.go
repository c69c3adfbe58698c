package qemu

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"nearmetal/internal/backend"
)

// If QEMU is built without slirp, a VM's user network is passt's: a process at the other end of the owner's filter,
// which opens connections as the user, as slirp does. It sandboxes itself.

// findPasst returns the path of this host's passt; "": not installed.
func findPasst() string {
	path, err := exec.LookPath("passt")
	if err != nil {
		return ""
	}
	if path, err = filepath.Abs(path); err != nil {
		return ""
	}
	return path
}

// passtArgs returns the command line of the user network; the filter's end is its first inherited file.
func passtArgs(path string) []string {
	return []string{path, "--foreground", "--quiet", "--fd", fmt.Sprint(firstFD), "--ipv4-only",
		"--address", backend.UserGuest.Addr().String(), "--netmask", fmt.Sprint(backend.UserGuest.Bits()),
		"--gateway", backend.UserHost.String(), "--no-dhcp"}
}

// startPasst starts the user network at the other end of a filter.
func startPasst(path string, filter *os.File) (*child, error) {
	return spawn(passtArgs(path), []*os.File{filter}, nil)
}
