package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

// held reports whether a function that is bound to vfio-pci is open: the kernel enables the device when it is opened
// (vfio_pci_core_enable).
func (h *Host) held(f *Function) bool {
	n, _ := h.number(h.dev(f.Address, "enable"))
	return f.Driver == vfioDriver && n > 0
}

// holders fills in the holders of the functions in a list.
func (h *Host) holders(list []*Function) {
	open := h.openGroups(list)
	for _, f := range list {
		f.Holder = h.holder(f, open)
	}
}

// holder returns the holder of a function, as far as that can be known.
func (h *Host) holder(f *Function, open map[string]string) string {
	if claim := h.claimant(f.Address); claim != "" {
		return claim
	}
	if who := open[f.VFIO]; who != "" && f.VFIO != "" {
		return who
	}
	if h.held(f) {
		return "a process that is not shown to this user"
	}
	return ""
}

// keptBy returns who keeps a function from another user, "" for nobody: any process that has it or its group open, in
// this and, as far as the kernel reports it, in any other namespace, or in transit through a socket.
func (h *Host) keptBy(at string) string {
	if !h.there(at) {
		return ""
	}
	f := h.read(at)
	if f.Driver != vfioDriver {
		return ""
	}
	if who := h.scanGroups()[f.VFIO]; who != "" {
		return who
	}
	if h.held(f) {
		return "a process that is not shown here"
	}
	// A group can be opened only once: VFIO rejects a second open (vfio_group_fops_open).
	fd, err := unix.Open(h.path(f.VFIO), unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	} else if err == unix.EBUSY {
		return "a process that is not shown here"
	}
	return ""
}

// openGroups returns the process that has each group file open, if a function in the list has such a file: a group
// may be open without its device.
func (h *Host) openGroups(list []*Function) map[string]string {
	for _, f := range list {
		if f.Driver == vfioDriver {
			return h.scanGroups()
		}
	}
	return nil
}

// scanGroups returns the process that has each open group file. Only root sees the open files of other users'
// processes.
func (h *Host) scanGroups() map[string]string {
	groups := map[string]string{}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(to, h.root+"/dev/vfio/") {
			continue
		}
		to = strings.TrimPrefix(to, h.root)
		pid := strings.Split(fd, "/")[2]
		if _, err := strconv.Atoi(strings.TrimPrefix(to, "/dev/vfio/")); err == nil {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			groups[to] = fmt.Sprintf("%s (process %s)", text.ASCII(strings.TrimSpace(string(comm))), pid)
		}
	}
	return groups
}
