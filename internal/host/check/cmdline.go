package check

import (
	"sort"
	"strings"

	"nearmetal/internal/words"
)

var cmdlineRows = []Row{
	{
		ID: "cmdline.iommu", Group: Cmdline, Title: "the kernel uses the IOMMU",
		Reads: "/sys/kernel/iommu_groups; intel_iommu and amd_iommu in /proc/cmdline", Wants: "IOMMU groups (intel_iommu=on on Intel)",
		Why:    "Many distributions leave Intel's IOMMU off until the command line asks for it; without groups vfio binds nothing.",
		Source: "NASA AT5 report, section 4.1 step 7; kernel-parameters: intel_iommu",
		Costs:  "no VF and no passed-through card",
		Fix:    "add intel_iommu=on iommu=pt (Intel) or iommu=pt (AMD) to the kernel's command line: grubby --update-kernel=ALL --args='intel_iommu=on iommu=pt', or GRUB_CMDLINE_LINUX in /etc/default/grub and update-grub",
		Needs:  Reboot, Profiles: onVMHosts,
		look: func(f *facts) finding {
			groups := len(f.list("/sys/kernel/iommu_groups"))
			if f.argHas("intel_iommu", "off") || f.argHas("amd_iommu", "off") || f.argHas("iommu", "off") {
				return found(Fail, "switched off on the command line")
			}
			if groups > 0 {
				return found(OK, "%s", words.Count(groups, "IOMMU group", "IOMMU groups"))
			}
			if f.inVM() {
				return found(Fail, "no IOMMU groups: this host is a VM without an emulated IOMMU").fixedBy(
					"on the machine below give this VM an IOMMU (QEMU: -device intel-iommu,intremap=on with kernel-irqchip=split), then intel_iommu=on here")
			}
			if f.argHas("intel_iommu", "on") {
				return found(Fail, "intel_iommu=on, but no IOMMU groups: off in the firmware")
			}
			return found(Fail, "no IOMMU groups")
		},
	},
	{
		ID: "cmdline.passthrough", Group: Cmdline, Title: "the host's own devices bypass the IOMMU",
		Reads: "/sys/kernel/iommu_groups/*/type, iommu in /proc/cmdline", Wants: "identity for the host's devices (iommu=pt)",
		Why:    "With translation each of the host's own transfers maps and unmaps pages in the IOMMU; native MPI, and the VMs' emulated network, pay for it.",
		Source: "kernel-parameters: iommu",
		Costs:  "a mapping, an unmapping and an IOTLB miss for every packet of the host's own network; nothing for VFs in VMs",
		Fix:    "add iommu=pt to the kernel's command line (grubby --update-kernel=ALL --args=iommu=pt)",
		Needs:  Reboot, Profiles: onHosts,
		look: func(f *facts) finding {
			kinds := map[string]int{}
			for _, g := range f.numbered("/sys/kernel/iommu_groups", "") {
				if kind := f.line("/sys/kernel/iommu_groups/" + g + "/type"); kind != "" {
					kinds[kind]++
				}
			}
			if len(f.list("/sys/kernel/iommu_groups")) == 0 {
				return found(NotApplicable, "no IOMMU groups")
			}
			if kinds["DMA"]+kinds["DMA-FQ"] > 0 {
				return found(Warn, "%s are translated", words.Count(kinds["DMA"]+kinds["DMA-FQ"], "group", "groups"))
			}
			if kinds["identity"] > 0 || f.argHas("iommu", "pt") {
				return found(OK, "identity")
			}
			return found(Warn, "no iommu=pt on the command line")
		},
	},
	{
		ID: "cmdline.acs-override", Group: Cmdline, Title: "IOMMU groups are real",
		Reads: "pcie_acs_override in /proc/cmdline", Wants: "not there",
		Why:    "The override splits groups that the hardware does not keep apart: a VM's device could reach another's memory.",
		Source: "kernel documentation: driver-api/vfio (groups)",
		Costs:  "no speed; isolation between VMs",
		Fix:    "remove pcie_acs_override from the kernel's command line; take a slot behind a root port with ACS",
		Needs:  Reboot, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if _, ok := f.arg("pcie_acs_override"); ok {
				return found(Warn, "pcie_acs_override is set")
			}
			return found(OK, "not set")
		},
	},
	{
		ID: "cmdline.isolation", Group: Cmdline, Title: "CPUs for VMs are kept from the scheduler and its tick",
		Reads: "/sys/devices/system/cpu/isolated, nohz_full", Wants: "the VMs' CPUs in isolcpus (or cpuset partitions) and nohz_full",
		Why:    "Other tasks and the timer tick interrupt vCPUs; an MPI program waits for its slowest rank.",
		Source: "tuned profile cpu-partitioning; kernel-parameters: isolcpus, nohz_full",
		Costs:  "100 to 1000 interruptions a second on each vCPU's CPU (the kernel's CONFIG_HZ), and the tasks that run in them",
		Fix:    "add isolcpus=managed_irq,domain,LIST nohz_full=LIST rcu_nocbs=LIST for the CPUs of VMs, and leave some to the host",
		Needs:  Reboot, Profiles: onVMHosts,
		Conflict: "isolated CPUs get no load balancing: what is not pinned piles up on one of them; nearmetal pins every vCPU, " +
			"but native MPI on the same host must pin as well",
		look: func(f *facts) finding {
			isolated, full := f.line(cpuDir+"isolated"), f.line(cpuDir+"nohz_full")
			if full == "(null)" {
				full = ""
			}
			switch {
			case isolated != "" && full != "":
				return found(OK, "isolated %s, nohz_full %s", isolated, full)
			case isolated != "":
				return found(Warn, "isolated %s, but no nohz_full", isolated)
			case full != "":
				return found(Warn, "nohz_full %s, but none isolated", full)
			}
			return found(Warn, "none isolated, no nohz_full")
		},
	},
	{
		ID: "cmdline.sp-off", Group: Cmdline, Title: "the IOMMU's large pages are not switched off",
		Reads: "intel_iommu in /proc/cmdline", Wants: "no sp_off",
		Why:    "Small-message latency of MPI lost 20 % to IOTLB misses until 2 MB pages were used in the IOMMU.",
		Source: "VMware FDR paper, Point-to-Point MPI (Large Intel VT-d Pages)",
		Costs:  "about 20 % of MPI small-message latency over a passed-through card (VMware FDR paper)",
		Fix:    "remove sp_off from intel_iommu= on the kernel's command line",
		Needs:  Reboot, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if f.argHas("intel_iommu", "sp_off") {
				return found(Fail, "intel_iommu=sp_off")
			}
			return found(OK, "not there")
		},
	},
	{
		ID: "cmdline.slow", Group: Cmdline, Title: "no word that slows the whole host",
		Reads: "/proc/cmdline", Wants: "none of maxcpus, nosmp, nopat, noapic, nolapic, nohugeiomap, idle=halt, nohz=off, notsc, mce=off, debug options",
		Why:    "Such words stay from an old search for a fault and are forgotten.",
		Source: "kernel-parameters",
		Costs:  "see each word in the kernel's documentation",
		Fix:    "remove the words from the kernel's command line",
		Needs:  Reboot, Profiles: anywhere,
		look: func(f *facts) finding {
			var list []string
			for _, word := range []string{"maxcpus", "nosmp", "nopat", "noapic", "nolapic", "notsc", "slub_debug", "kasan", "debug_pagealloc", "nohugeiomap"} {
				if v, ok := f.arg(word); ok && !(len(v) > 0 && (v[0] == "off" || v[0] == "0")) {
					list = append(list, word)
				}
			}
			if f.argHas("nohz", "off") {
				list = append(list, "nohz=off")
			}
			sort.Strings(list)
			if len(list) > 0 {
				return found(Warn, "%s", strings.Join(list, " "))
			}
			return found(OK, "none")
		},
	},
}
