package check

import (
	"errors"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// qemuProgram is QEMU's name; nearmetal runs VMs on x86-64 only. Red Hat's has another path, which is used if no
// other exists.
const (
	qemuProgram    = "qemu-system-x86_64"
	qemuRedHatPath = "/usr/libexec/qemu-kvm"
)

// askQEMU is ask for this host's QEMU.
func (f *facts) askQEMU(args ...string) (string, error) {
	out, err := f.ask(qemuProgram, args...)
	if !errors.Is(err, errNoProgram) {
		return out, err
	}
	return f.ask(qemuRedHatPath, args...)
}

// qemuLeast is the major version of the oldest QEMU with which nearmetal's VMs are tested.
const qemuLeast = 7

var errCaptured = errors.New("a captured tree runs no programs")

var qemuRows = []Row{
	{
		ID: "qemu.version", Group: QEMU, Title: "QEMU",
		Reads: qemuProgram + " -version", Wants: "7.0 or later",
		Why:    "It carries the VMs out; older ones lack options that the VMs' command lines have.",
		Source: "docs/install.md (QEMU 7.2)",
		Costs:  "no VMs",
		Fix:    "apt-get install qemu-system-x86, dnf install qemu-kvm; or name another with qemu: in the cluster file",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			out, err := f.askQEMU("-version")
			if err != nil {
				return qemuMissing(err)
			}
			major, version, ok := parseQEMUVersion(out)
			switch {
			case !ok:
				return found(Unknown, "its version is not understood")
			case major < qemuLeast:
				return found(Fail, "%s", version)
			}
			return found(OK, "%s", version)
		},
	},
	qemuDevice("qemu.region", []string{"ivshmem-plain", "nvdimm"}, "the region that VMs of one host share",
		"MPI between VMs of one host goes over the network instead of shared memory", Fail,
		"a QEMU with one of them: Red Hat's has no ivshmem, and shows the region as persistent memory (nvdimm)"),
	qemuDevice("qemu.files", []string{"virtio-9p-pci", "vhost-user-fs-pci"}, "this host's files in VMs",
		"no VMs with root: host", Fail,
		"a QEMU with one of them: Red Hat's has no 9p; for virtiofs (vhost-user-fs-pci), install the package virtiofsd as well"),
	virtiofsdRow,
	qemuDevice("qemu.expander", []string{"pxb-pcie"}, "root complexes of several nodes in a VM",
		"a VM over several nodes cannot see which node its VF is on", Warn,
		"a QEMU with PCI expander bridges (upstream has them)"),
	qemuDevice("qemu.vfio", []string{"vfio-pci"}, "VFs and cards in VMs",
		"no VF in a VM", Fail, "a QEMU that was built with VFIO (upstream is)"),
	qemuSandboxRow,
	qemuFaultsRow,
}

// qemuDevice returns a row for devices of which QEMU has to support at least one.
func qemuDevice(id string, devices []string, title, costs string, bad Status, fix string) Row {
	any := strings.Join(devices, " or ")
	return Row{
		ID: id, Group: QEMU, Title: title,
		Reads: any + " in " + qemuProgram + " -device help", Wants: "it is there",
		Why:    "nearmetal's command lines use it for: " + title + ".",
		Source: "docs/region.md, docs/plan.md, docs/files.md",
		Costs:  costs, Fix: fix, Needs: Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			out, err := f.askQEMU("-device", "help")
			if err != nil {
				return qemuMissing(err)
			}
			var there []string
			for _, d := range devices {
				if hasDevice(out, d) {
					there = append(there, d)
				}
			}
			if len(there) == 0 {
				return found(bad, "%s is not among its devices", any)
			}
			return found(OK, "%s", strings.Join(there, ", "))
		},
	}
}

// hasDevice searches the output of -device help for a device; its lines are: name "NAME", bus …
func hasDevice(help, device string) bool {
	return strings.Contains(help, `name "`+device+`"`)
}

func qemuMissing(err error) finding {
	switch {
	case errors.Is(err, errNoProgram):
		return found(Fail, "%s is not installed", qemuProgram)
	case errors.Is(err, errCaptured):
		return found(Unknown, "a captured tree runs no programs")
	}
	return found(Unknown, "%s: %s", qemuProgram, printable(err.Error()))
}

var qemuVersion = lazyregexp.New(`^QEMU emulator version (([0-9]{1,3})\.[0-9.]{1,20})`)

// parseQEMUVersion parses the first line of -version.
func parseQEMUVersion(s string) (major int, version string, ok bool) {
	m := qemuVersion().FindStringSubmatch(s)
	if m == nil {
		return 0, "", false
	}
	major, err := strconv.Atoi(m[2])
	return major, m[1], err == nil
}
