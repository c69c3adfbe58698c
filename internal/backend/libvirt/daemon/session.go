package daemon

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// programs are the user's own daemons: the one for QEMU only, and the one for all hypervisors.
var programs = []string{"virtqemud", "libvirtd"}

// idle is the time in seconds after which such a daemon exits without clients and domains, as with virsh.
const idle = "120"

// startSession starts the user's own daemon, in a session of its own: it outlives this process and its terminal.
// ended is closed if the daemon ends while this process runs.
func startSession() (ended <-chan struct{}, err error) {
	path := os.Getenv("LIBVIRTD_PATH") // as for libvirt's own clients
	for _, name := range programs {
		if path != "" {
			break
		}
		path, _ = exec.LookPath(name)
		for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/"} { // not in a user's PATH
			if _, err := os.Stat(dir + name); err == nil && path == "" {
				path = dir + name
			}
		}
	}
	if path == "" {
		return nil, errors.New("neither virtqemud nor libvirtd is installed: install libvirt-daemon (Debian, Ubuntu) or libvirt-daemon-driver-qemu (Red Hat, Fedora)")
	}
	if sessionDir() == "libvirt" {
		return nil, errors.New("neither XDG_RUNTIME_DIR nor HOME is set: it has no place for its socket")
	}
	cmd := exec.Command(path, "--timeout="+idle)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	gone := make(chan struct{})
	go func() {
		cmd.Wait()
		close(gone)
	}()
	return gone, nil
}
