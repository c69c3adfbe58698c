package check

import (
	"fmt"
	"strconv"
	"strings"
)

// fault is a known vulnerability of QEMU in a device that nearmetal's VMs have.
type fault struct {
	id    string
	what  string   // what a guest can do with it
	fixed [][3]int // upstream releases with the fix: the first of each release series, ascending
}

// qemuFaults are the known vulnerabilities, newest first. A release series older than the first in fixed has the
// fault, one newer than the last does not. Each comment names the commit in QEMU's master branch that fixed it, and
// how the releases were determined.
var qemuFaults = []fault{
	// abae50de244a, of the stable branch 11.1: in 11.1.2. Which releases of older series contain it is not known.
	{"CVE-2026-93834", "leave what is shared and run code in QEMU, by a race in 9p", [][3]int{{11, 1, 2}}},
	// b4295bff25f7, with ec0504b989ca: merged before 9.0.0; named by the announcements of 8.2.3 and 7.2.11.
	{"CVE-2024-3446", "run code in QEMU, by a double free in virtio-serial", [][3]int{{7, 2, 11}, {8, 2, 3}, {9, 0, 0}}},
	// 2220e8189fb9: merged after 8.2.0; named by the announcements of 8.2.1, 8.1.5 and 7.2.9.
	{"CVE-2023-6693", "overflow QEMU's stack, by virtio-net", [][3]int{{7, 2, 9}, {8, 1, 5}, {8, 2, 1}, {9, 0, 0}}},
	// f6b0de53fb87: merged for 8.1.0; named by the announcements of 8.0.3 and 7.2.4.
	{"CVE-2023-2861", "open device files and sockets of the host, by 9p", [][3]int{{7, 2, 4}, {8, 0, 3}, {8, 1, 0}}},
	// bedd7e93d019: merged for 6.2.0; named by the announcements of 6.1.1 and 6.0.1.
	{"CVE-2021-3748", "run code in QEMU, by virtio-net", [][3]int{{6, 0, 1}, {6, 1, 1}, {6, 2, 0}}},
	// 89fbea8737e8: merged for 6.0.0; no announcement of a 5.2.1 was found.
	{"CVE-2021-20181", "become root of what is shared, by a race in 9p", [][3]int{{6, 0, 0}}},
}

// has reports whether an upstream release has the fault.
func (f *fault) has(v [3]int) bool {
	for _, fix := range f.fixed {
		if v[0] == fix[0] && v[1] == fix[1] {
			return v[2] < fix[2]
		}
	}
	last := f.fixed[len(f.fixed)-1]
	return v[0] < last[0] || v[0] == last[0] && v[1] < last[1]
}

func (f *fault) fixedIn() string {
	var list []string
	for _, v := range f.fixed {
		list = append(list, fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]))
	}
	if last := len(list) - 1; last > 0 {
		return strings.Join(list[:last], ", ") + " and " + list[last]
	}
	return list[0]
}

var qemuFaultsRow = Row{
	ID: "qemu.faults", Group: QEMU, Title: "known faults of QEMU",
	Reads: qemuProgram + " -version", Wants: "a release with all fixes, or a distribution's package that has them",
	Why:    "A guest that uses a fault of QEMU's gets what its user may do on the host. Listed are faults of the devices that nearmetal's VMs have.",
	Source: "docs/security.md (the release of upstream that fixed each)",
	Costs:  "a hostile guest may leave its VM",
	Fix:    "install the distribution's newest package. Distributions put fixes into older releases: its changelog names the CVEs that are fixed",
	Needs:  Other, Profiles: onVMHosts,
	look: func(f *facts) finding {
		out, err := f.askQEMU("-version")
		if err != nil {
			return qemuMissing(err)
		}
		_, version, ok := parseQEMUVersion(out)
		v, whole := threeNumbers(version)
		if !ok || !whole {
			return found(Unknown, "its version is not understood")
		}
		var items []Item
		for i := range qemuFaults {
			q := &qemuFaults[i]
			if q.has(v) {
				items = append(items, Item{q.id, Warn, fmt.Sprintf("a guest may %s; fixed in %s", q.what, q.fixedIn())})
			}
		}
		if len(items) == 0 {
			return found(OK, "%s: none known", version)
		}
		n := found(Warn, "upstream's %s has %d, unless your distribution has fixed them", version, len(items))
		n.items = items
		return n
	},
}

var qemuSandboxRow = Row{
	ID: "qemu.sandbox", Group: QEMU, Title: "QEMU's system call filter",
	Reads: "-sandbox in " + qemuProgram + " -help", Wants: "it is there",
	Why:    "nearmetal starts each VM with -sandbox: a guest that takes QEMU over can start no program and change no privileges.",
	Source: "docs/security.md",
	Costs:  "isolation: standard and strict are refused; without it, a line at each start",
	Fix:    "a QEMU that was built with seccomp (all distributions' are)",
	Needs:  Other, Profiles: onVMHosts,
	look: func(f *facts) finding {
		out, err := f.askQEMU("-help")
		if err != nil {
			return qemuMissing(err)
		}
		if !strings.Contains(out, "\n-sandbox ") {
			return found(Warn, "it is built without")
		}
		return found(OK, "-sandbox")
	},
}

// threeNumbers parses 7.2.22, or 9.1.
func threeNumbers(s string) (v [3]int, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) < 2 || len(parts) > 4 {
		return v, false
	}
	for i, p := range parts[:min(3, len(parts))] {
		n, err := strconv.Atoi(p)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}
