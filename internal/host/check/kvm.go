package check

import (
	"path"
	"slices"
	"strings"

	"nearmetal/internal/host"
)

const (
	kvmDir   = "/sys/module/kvm/parameters/"
	kvmIntel = "/sys/module/kvm_intel/parameters/"
	kvmAMD   = "/sys/module/kvm_amd/parameters/"
)

// kvm returns the reason why no VM runs under KVM on this host; it is tested once.
func (f *facts) kvm() error {
	f.kvmOnce.Do(func() { _, _, f.kvmErr = (host.Host{}).DetectAccel("kvm") })
	return f.kvmErr
}

// emulates reports whether VMs on this host are emulated because KVM does not work. For a captured tree it is not
// known.
func (f *facts) emulates() bool { return f.live && f.kvm() != nil }

var kvmRows = []Row{
	{
		ID: "kvm.works", Group: KVM, Title: "KVM runs a VM",
		Reads: "/dev/kvm: a few instructions are run in a VM", Wants: "these instructions run",
		Why:    "/dev/kvm alone proves nothing: it is there on machines where no VM runs, and its permissions may keep the user out.",
		Source: "docs/architecture.md, decision 6; virt-host-validate",
		Costs:  "everything: emulation runs ten to a hundred times slower, and no timing means anything",
		Fix:    "modprobe kvm_intel or kvm_amd; add users to the group kvm: usermod -aG kvm USER",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if !f.live {
				if len(f.list("/sys/module/kvm")) > 0 {
					return found(Unknown, "the module is loaded; a captured tree runs no VM")
				}
				return found(Unknown, "a captured tree runs no VM")
			}
			if err := f.kvm(); err != nil {
				why := strings.TrimPrefix(err.Error(), "accel kvm: ")
				if strings.Contains(why, "vmx or svm") {
					if f.has("/dev/kvm") {
						return found(Fail, "/dev/kvm exists, but the CPU has neither vmx nor svm: this KVM probably runs only modified kernels").fixedBy(
							"ask the provider for machines with hardware virtualization: bare metal, or nested virtualization (vmx or svm in /proc/cpuinfo); " +
								"until then VMs run under TCG: everything works, no timing means anything")
					}
					return found(Fail, "%s", why).fixedBy("see firmware.virtualization; until then VMs run under TCG: everything works, no timing means anything")
				}
				return found(Fail, "%s", why)
			}
			return found(OK, "works")
		},
	},
	{
		ID: "kvm.nested-paging", Group: KVM, Title: "nested paging",
		Reads: kvmIntel + "ept, " + kvmAMD + "npt", Wants: "Y or 1",
		Why:    "The CPU walks the VM's and the host's page tables itself; without it every page table change in a VM is an exit.",
		Source: "kernel-parameters: kvm-intel.ept, kvm-amd.npt",
		Costs:  "an exit for each page fault and each change of a page table in a VM",
		Fix:    "modprobe -r kvm_intel && modprobe kvm_intel ept=1 (kvm_amd npt=1); remove options from /etc/modprobe.d",
		Needs:  Reload, Profiles: onVMHosts,
		load: parameters("1", kvmIntel+"ept", kvmAMD+"npt"),
		look: parameter(Fail, []string{"Y", "1"}, kvmIntel+"ept", kvmAMD+"npt"),
	},
	{
		ID: "kvm.apic", Group: KVM, Title: "the CPU virtualizes the interrupt controller",
		Reads: kvmIntel + "enable_apicv, " + kvmAMD + "avic", Wants: "Y or 1",
		Why:    "Interrupts between vCPUs, and their acknowledgements, then need no exit.",
		Source: "NASA AT5 report, section 6 (x2APIC); kernel-parameters: kvm-intel.enable_apicv",
		Costs:  "exits at each interrupt: the report suspects them behind its 6 to 9 % in runs with many ranks",
		Fix:    "modprobe -r kvm_intel && modprobe kvm_intel enable_apicv=1 (kvm_amd avic=1)",
		Needs:  Reload, Profiles: onVMHosts,
		load: parameters("1", kvmIntel+"enable_apicv", kvmAMD+"avic"),
		look: parameter(Warn, []string{"Y", "1"}, kvmIntel+"enable_apicv", kvmAMD+"avic"),
	},
	{
		ID: "kvm.ple", Group: KVM, Title: "no exits from spinning vCPUs",
		Reads: kvmIntel + "ple_gap, " + kvmAMD + "pause_filter_count", Wants: "0 where each vCPU has its own CPU",
		Why:    "Pause-loop exiting takes a spinning vCPU away for another one's good; where every vCPU has its CPU it only interrupts MPI's polling.",
		Source: "kernel source: arch/x86/kvm/vmx/vmx.c (ple_gap); KVM's hint-dedicated",
		Costs:  "an exit for each long run of PAUSE: MPI's wait loops",
		Fix:    "modprobe -r kvm_intel && modprobe kvm_intel ple_gap=0 (kvm_amd pause_filter_count=0); lasting: check --fix --persist",
		Needs:  Reload, Profiles: onVMHosts,
		Conflict: "hosts that run more vCPUs than CPUs need it: there leave it on",
		load:     parameters("0", kvmIntel+"ple_gap", kvmAMD+"pause_filter_count"),
		look:     parameter(Warn, []string{"0"}, kvmIntel+"ple_gap", kvmAMD+"pause_filter_count"),
	},
	{
		ID: "kvm.halt-poll", Group: KVM, Title: "a halted vCPU is polled for a while",
		Reads: kvmDir + "halt_poll_ns", Wants: "200000 ns or more",
		Why:    "A vCPU that halts and is woken within this time is not scheduled away: MPI that blocks wakes up faster.",
		Source: "kernel documentation: virt/kvm/halt-polling (default 200000)",
		Costs:  "scheduling, and perhaps an idle state, at each wake-up: some 5 to 50 µs",
		Fix:    "echo 200000 >" + kvmDir + "halt_poll_ns",
		Needs:  Nothing, Profiles: onVMHosts,
		Conflict: "tuned's realtime-virtual-host sets 0: right where a guest polls by itself (idle=poll) and the host's other CPUs need the power",
		look: func(f *facts) finding {
			n, ok := f.number(kvmDir + "halt_poll_ns")
			switch {
			case !ok:
				return noKVM(f)
			case n < 200000:
				return found(Warn, "%d ns", n)
			}
			return found(OK, "%d ns", n)
		},
		writes: writes(kvmDir+"halt_poll_ns", "200000"),
	},
	{
		ID: "kvm.nx-huge-pages", Group: KVM, Title: "code in VMs stays in huge pages",
		Reads: kvmDir + "nx_huge_pages, /sys/devices/system/cpu/vulnerabilities/itlb_multihit", Wants: "N, or a CPU that is not affected",
		Why:    "Against ITLB multihit KVM splits each huge page from which a VM executes, and a thread puts them together again later.",
		Source: "kernel documentation: admin-guide/hw-vuln/multihit",
		Costs:  "TLB misses on code, and jitter from the thread kvm-nx-lpage-recovery",
		Fix:    "echo never >" + kvmDir + "nx_huge_pages, only where all users of VMs are trusted: a VM can then stop the host",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			bug := f.line(cpuDir + "vulnerabilities/itlb_multihit")
			v := f.line(kvmDir + "nx_huge_pages")
			switch {
			case v == "":
				return noKVM(f)
			case v == "N" || v == "never" || v == "0" || v == "off":
				return found(OK, "%s", v)
			case strings.HasPrefix(bug, "Not affected"):
				return found(OK, "%s, and this CPU is not affected", v)
			}
			return found(Warn, "%s (%s)", v, bug)
		},
	},
}

// parameter returns the look of a row that reads a parameter of a module, which has another name in another module:
// ok for the values listed, else bad.
func parameter(bad Status, good []string, files ...string) func(*facts) finding {
	return func(f *facts) finding {
		for _, file := range files {
			v := f.line(file)
			if v == "" {
				continue
			}
			status := bad
			if slices.Contains(good, v) {
				status = OK
			}
			return found(status, "%s=%s", path.Base(file), v)
		}
		return noKVM(f)
	}
}

// noKVM returns the finding for missing module parameters.
func noKVM(f *facts) finding {
	if !f.cpuFlag("vmx") && !f.cpuFlag("svm") {
		return found(NotApplicable, "no hardware virtualization")
	}
	return found(Unknown, "neither kvm_intel nor kvm_amd is loaded")
}
