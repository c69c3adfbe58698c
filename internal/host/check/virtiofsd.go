package check

import (
	"errors"
	"slices"

	"nearmetal/internal/lazyregexp"
)

// virtiofsdPrograms are the paths of virtiofsd in distributions, in the order in which nearmetal searches them: in
// PATH, Red Hat's and Debian 13's directory, Arch's, and that of QEMU's own older one in Debian 12.
var virtiofsdPrograms = []string{"virtiofsd", "/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"}

// The oldest virtiofsd that nearmetal supports, and the oldest that it supports for root's VMs (docs/files.md).
var (
	virtiofsdLeast = [3]int{1, 5}
	virtiofsdRoots = [3]int{1, 13}
)

// virtiofsdVersion matches the output of --version. QEMU's own, in C, prints "virtiofsd version".
var virtiofsdVersion = lazyregexp.New(`^virtiofsd (version )?([0-9.]{1,20})`)

var virtiofsdRow = Row{
	ID: "qemu.virtiofsd", Group: QEMU, Title: "virtiofsd",
	Reads: "virtiofsd --version (in PATH, /usr/libexec, /usr/lib)", Wants: "1.13 or later, where QEMU has no 9p",
	Why:    "Where QEMU has no virtio-9p-pci, a virtiofsd serves this host's files to each VM. Before 1.13 it cannot keep root in a VM from writing.",
	Source: "docs/files.md",
	Costs:  "no VMs with root: host; with one older than 1.13, none that root starts",
	Fix:    "dnf install virtiofsd; apt-get install virtiofsd (Debian 13, Ubuntu 24.04); cargo install virtiofsd",
	Needs:  Other, Profiles: onVMHosts,
	look: func(f *facts) finding {
		help, err := f.askQEMU("-device", "help")
		switch {
		case errors.Is(err, errNoProgram):
			return found(NotApplicable, "no QEMU")
		case err != nil:
			return qemuMissing(err)
		case !hasDevice(help, "vhost-user-fs-pci"):
			return found(NotApplicable, "QEMU has no virtiofs")
		}
		// A missing or old one is not a fault if 9p provides the files.
		bad, instead := Fail, ""
		if hasDevice(help, "virtio-9p-pci") {
			bad, instead = NotApplicable, "; QEMU has 9p"
		}
		out, err := f.askVirtiofsd()
		if errors.Is(err, errNoProgram) {
			return found(bad, "not installed%s", instead)
		}
		if err != nil {
			return found(Unknown, "virtiofsd: %s", printable(err.Error()))
		}
		m := virtiofsdVersion().FindStringSubmatch(out)
		if m == nil {
			return found(Unknown, "its version is not understood")
		}
		v, ok := threeNumbers(m[2])
		switch {
		case !ok:
			return found(Unknown, "its version is not understood")
		case m[1] != "":
			return found(bad, "%s is QEMU's older one, in C%s", m[2], instead)
		case slices.Compare(v[:], virtiofsdLeast[:]) < 0:
			return found(bad, "%s is too old%s", m[2], instead)
		case slices.Compare(v[:], virtiofsdRoots[:]) < 0 && instead == "":
			return found(Warn, "%s: root starts no VMs with it", m[2])
		}
		return found(OK, "%s", m[2])
	},
}

// askVirtiofsd queries the version of the virtiofsd that nearmetal uses.
func (f *facts) askVirtiofsd() (out string, err error) {
	for _, path := range virtiofsdPrograms {
		if out, err = f.ask(path, "--version"); !errors.Is(err, errNoProgram) {
			break
		}
	}
	return out, err
}
