package check

import (
	"slices"
	"strings"
)

// Rows about defaults of Red Hat's family, which other distributions may also install.

// forHosts are tuned's profiles that are suitable for hosts of VMs or ranks; Red Hat recommends the first two for
// VMs' hosts.
var forHosts = []string{"virtual-host", "realtime-virtual-host", "cpu-partitioning", "realtime", "hpc-compute",
	"latency-performance", "network-latency", "throughput-performance", "network-throughput", "accelerator-performance"}

var tunedRow = Row{
	ID: "power.tuned", Group: Power, Title: "tuned's profile",
	Reads: "/etc/tuned/active_profile, while tuned runs", Wants: "virtual-host, or another for servers",
	Why:    "tuned sets the governor, the energy preference and memory at each boot, after its profile. On Red Hat's family it is there by default, with balanced where no server was recognized.",
	Source: "Red Hat Enterprise Linux 9: Configuring and managing virtualization, optimizing VM performance with tuned (virtual-host)",
	Costs:  "frequency, and pages swapped early; what other rows fix is undone when tuned starts",
	Fix:    "tuned-adm profile virtual-host",
	Needs:  Other, Profiles: onHosts,
	look: func(f *facts) finding {
		profile := f.line("/etc/tuned/active_profile")
		switch {
		case profile == "":
			return found(NotApplicable, "no tuned")
		case len(f.processes("tuned")) == 0:
			return found(NotApplicable, "tuned does not run")
		}
		for _, p := range strings.Fields(profile) {
			if slices.Contains(forHosts, p) {
				return found(OK, "%s", printable(profile))
			}
		}
		return found(Warn, "%s", printable(profile))
	},
}

// unconfined are SELinux's types of processes that its targeted policy does not restrict beyond their user's rights.
var unconfined = []string{"unconfined_t", "unconfined_service_t", "initrc_t", "kernel_t"}

var selinuxRow = Row{
	ID: "limits.selinux", Own: true, Group: Limits, Title: "SELinux",
	Reads: "/sys/fs/selinux/enforce, /proc/self/attr/current", Wants: "not enforcing, or an unconfined user",
	Why:    "QEMU and virtiofsd run as children of the user's own processes, with their type. A confined one may be kept from /dev/kvm, from namespaces, or from memory without a name.",
	Source: "docs/files.md; selinux-policy-targeted: unconfined_t",
	Costs:  "VMs that do not start",
	Fix:    "semanage login -a -s unconfined_u USER; or a policy module for the user's type, made by audit2allow (docs/files.md)",
	Needs:  Other, Profiles: onHosts,
	look: func(f *facts) finding {
		switch f.line("/sys/fs/selinux/enforce") {
		case "":
			return found(NotApplicable, "no SELinux")
		case "0":
			return found(OK, "permissive")
		}
		context := strings.TrimRight(f.line("/proc/self/attr/current"), "\x00")
		words := strings.SplitN(context, ":", 4)
		if len(words) < 3 {
			return found(Unknown, "enforcing; the type of this process is not known")
		}
		if slices.Contains(unconfined, words[2]) {
			return found(OK, "enforcing, and this process is %s", printable(words[2]))
		}
		return found(Warn, "enforcing, and this process is %s, which is confined", printable(words[2]))
	},
}
