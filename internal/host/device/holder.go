package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// held tells whether a function that is bound to vfio-pci is open: the kernel enables the
// device for who opens it (vfio_pci_core_enable).
func (h *Host) held(f *Function) bool {
	n, _ := h.number(h.dev(f.Address, "enable"))
	return f.Driver == vfioDriver && n > 0
}

// holders fills in who holds the functions of a list.
func (h *Host) holders(list []*Function) {
	open := h.openGroups(list)
	for _, f := range list {
		f.Holder = h.holder(f, open)
	}
}

// holder says who holds a function, as well as can be told.
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

// openGroups gives for each group file that is open the process that has it. What other
// users' processes have open only root sees.
func (h *Host) openGroups(list []*Function) map[string]string {
	groups := map[string]string{}
	wanted := false
	for _, f := range list {
		wanted = wanted || h.held(f)
	}
	if !wanted || h.root != "" {
		return groups
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		to, err := os.Readlink(fd)
		if err != nil || !strings.HasPrefix(to, "/dev/vfio/") {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		if _, err := strconv.Atoi(strings.TrimPrefix(to, "/dev/vfio/")); err == nil {
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			groups[to] = fmt.Sprintf("%s (process %s)", printable(strings.TrimSpace(string(comm))), pid)
		}
	}
	return groups
}
