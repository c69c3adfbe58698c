package check

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

var firmwareRows = []Row{
	{
		ID: "firmware.virtualization", Group: Firmware, Title: "hardware virtualization",
		Reads: "flags vmx or svm in /proc/cpuinfo", Wants: "vmx (Intel VT-x) or svm (AMD-V)",
		Why:    "Without it a VM's instructions are emulated by QEMU (TCG).",
		Source: "VMware ConnectX study, section 2.1 (Virtualization Technology); NASA AT5 report, section 4.1 step 2",
		Costs:  "everything: emulation runs ten to a hundred times slower, and no timing means anything",
		Fix:    "firmware setup: switch on Intel Virtualization Technology (VT-x) or SVM Mode",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			switch {
			case f.cpuField("flags") == "" && f.cpuField("Features") == "":
				return found(Unknown, "/proc/cpuinfo has no flags")
			case f.cpuFlag("vmx"):
				return found(OK, "vmx")
			case f.cpuFlag("svm"):
				return found(OK, "svm")
			case f.inVM():
				return found(Fail, "neither: this host is a VM without nested virtualization").fixedBy(
					"on the machine below: modprobe kvm_intel nested=1 (or kvm_amd nested=1) and start this VM with -cpu host; " +
						"in a cloud, take a bare-metal instance or one that offers nested virtualization")
			}
			return found(Fail, "neither vmx nor svm: off in the firmware, or not in this CPU")
		},
	},
	{
		ID: "firmware.iommu", Group: Firmware, Title: "the firmware describes an IOMMU",
		Reads: "/sys/firmware/acpi/tables/DMAR (Intel), IVRS (AMD), IORT (Arm)", Wants: "one of them is there",
		Why:    "VFs and cards are handed to a VM only behind an IOMMU; without the table the kernel finds none.",
		Source: "VMware FDR paper, BIOS Settings (Intel VT-d: Enabled); NASA AT5 report, section 3.1.2",
		Costs:  "no VF and no passed-through card: MPI between hosts runs over an emulated network, \"a factor of 10x or more\" in latency (NASA AT5 report, section 3.1.1)",
		Fix:    "firmware setup: switch on Intel VT-d or AMD IOMMU (AMD-Vi)",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			const dir = "/sys/firmware/acpi/tables"
			for _, table := range []string{"DMAR", "IVRS", "IORT"} {
				if f.has(dir + "/" + table) {
					return found(OK, "%s", table)
				}
			}
			if len(f.list("/sys/kernel/iommu_groups")) > 0 {
				return found(OK, "%s (the tables are not shown)", words.Count(len(f.list("/sys/kernel/iommu_groups")), "IOMMU group", "IOMMU groups"))
			}
			if len(f.list(dir)) == 0 {
				return found(Unknown, "%s cannot be read", dir)
			}
			if f.inVM() {
				return found(Fail, "no DMAR, IVRS or IORT table: this host is a VM without an emulated IOMMU").fixedBy(
					"on the machine below give this VM an IOMMU (QEMU: -device intel-iommu,intremap=on with kernel-irqchip=split)")
			}
			return found(Fail, "no DMAR, IVRS or IORT table")
		},
	},
	{
		ID: "firmware.x2apic", Group: Firmware, Title: "x2APIC",
		Reads: "flag x2apic in /proc/cpuinfo; nox2apic in /proc/cmdline; flag X2APIC_OPT_OUT of the DMAR table", Wants: "on",
		Why:    "Interrupts of a VM's vCPUs are virtualized through x2APIC registers; the older interface takes an exit each time.",
		Source: "NASA AT5 report, section 6 and reference 3; Intel VT-d specification, section 8.1 (DMAR flags)",
		Costs:  "a VM exit for each interrupt between vCPUs: wake-ups of blocked ranks",
		Fix:    "firmware setup: switch on x2APIC (and Extended APIC); remove nox2apic from the kernel's command line",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if f.cpuField("flags") == "" {
				return found(NotApplicable, "not an x86 CPU, or no /proc/cpuinfo")
			}
			if _, off := f.arg("nox2apic"); off {
				return found(Warn, "switched off by nox2apic")
			}
			if !f.cpuFlag("x2apic") {
				return found(Warn, "the CPU does not show it")
			}
			if t, err := f.read("/sys/firmware/acpi/tables/DMAR"); err == nil {
				if flags, ok := dmarFlags(t); ok && flags&2 != 0 {
					return found(Warn, "the firmware asks to leave it off (X2APIC_OPT_OUT)")
				}
			}
			return found(OK, "x2apic")
		},
	},
	{
		ID: "firmware.interleave", Group: Firmware, Title: "nodes are not interleaved",
		Reads: "packages in /sys/devices/system/cpu/cpu*/topology, nodes in /sys/devices/system/node", Wants: "a NUMA node for each package, or more",
		Why:    "With node interleaving the firmware spreads every page over all packages, so no placement can be local.",
		Source: "VMware FDR paper, vSphere Settings (local memory and the device's socket); VMware vNUMA paper, virtual NUMA",
		Costs:  "half or more of all memory accesses are remote",
		Fix:    "firmware setup: Node Interleaving = Disabled (NUMA = Enabled); take numa=off from the kernel's command line",
		Needs:  Setup, Profiles: anywhere,
		look: func(f *facts) finding {
			h := f.host()
			if h == nil {
				return found(Unknown, "%v", f.topoErr)
			}
			packages, _, _ := h.Counts()
			nodes := 0
			for _, n := range h.Nodes {
				if len(n.CPUs) > 0 {
					nodes++
				}
			}
			if f.argHas("numa", "off") {
				return found(Fail, "numa=off on the kernel's command line")
			}
			if packages > 1 && nodes < packages {
				return found(Fail, "%d packages, %s with CPUs", packages, words.Count(nodes, "node", "nodes"))
			}
			return found(OK, "%s, %s with CPUs", words.Count(packages, "package", "packages"), words.Count(nodes, "node", "nodes"))
		},
	},
	{
		ID: "firmware.bars", Own: true, Group: Firmware, Title: "every PCI window has its address",
		Reads: "resource of each PCI device in /sys/bus/pci/devices", Wants: "no window without an address, those for VFs included",
		Why:    "Firmware without SR-IOV or with too little room above 4 GB leaves windows of cards, or of their VFs, without an address; such VFs cannot be made and such cards do not work.",
		Source: "VMware ConnectX study, section 2.1 (SR-IOV Global); NASA AT5 report, section 4.1 step 1; room for windows: the Linux kernel's parameters, pci=realloc",
		Costs:  "the VFs of the device cannot be made",
		Fix:    "firmware setup: switch on SR-IOV (SR-IOV Global) and Above 4G Decoding, raise the MMIO size; or add pci=realloc to the kernel's command line",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			var items []Item
			n := 0
			for _, d := range f.devices() {
				if d.bridge() {
					continue
				}
				n++
				own, vf := unassigned(d.resource)
				switch {
				case own && vf:
					items = append(items, Item{d.address, Warn, "windows without an address, its own and its VFs'"})
				case vf:
					items = append(items, Item{d.address, Fail, "windows of its VFs without an address"})
				case own:
					items = append(items, Item{d.address, Warn, "a window without an address"})
				}
			}
			if n == 0 {
				return found(NotApplicable, "no PCI devices")
			}
			return worst(items, found(OK, "%s", words.Count(n, "device", "devices")))
		},
	},
	{
		ID: "firmware.power-control", Group: Firmware, Title: "the kernel governs frequencies",
		Reads: "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", Wants: "intel_pstate, amd-pstate or acpi-cpufreq",
		Why:    "The profile \"Performance Per Watt (OS)\" hands P- and C-states to the system, which is then set to performance; HP's firmware-governed driver takes a lock for each change.",
		Source: "VMware ConnectX study, section 2.1 best practice; VMware FDR paper, BIOS Settings (Power Regulator: Static High Performance)",
		Costs:  "frequencies that nothing in the system can hold high",
		Fix:    "firmware setup: System Profile = Performance Per Watt (OS); HPE: Power Regulator = OS Control Mode, or Static High Performance",
		Needs:  Setup, Profiles: onHosts,
		Conflict: "VMware's FDR paper leaves power to the firmware (Maximum Performance, Static High Performance), its ConnectX study to the system: " +
			"either is right when nothing lowers the frequency",
		look: func(f *facts) finding {
			d := f.line(cpuDir + "cpu0/cpufreq/scaling_driver")
			switch {
			case d == "pcc-cpufreq":
				return found(Warn, "pcc-cpufreq: the firmware governs")
			case d != "":
				return found(OK, "%s", d)
			case f.inVM():
				return found(NotApplicable, "this host is a VM: the machine below governs")
			}
			return found(Unknown, "no cpufreq driver: the firmware governs, and cannot be asked")
		},
	},
}

// dmarFlags returns the flags of an ACPI DMAR table: bit 0 INTR_REMAP, bit 1 X2APIC_OPT_OUT
// (Intel VT-d specification, section 8.1: byte 37).
func dmarFlags(table string) (byte, bool) {
	if len(table) < 48 || table[:4] != "DMAR" || binary.LittleEndian.Uint32([]byte(table[4:8])) > uint32(len(table)) {
		return 0, false
	}
	return table[37], true
}

// unassigned parses a PCI device's resource file, a line "start end flags" for each window: 0 to 5 are its own, 6 its
// ROM, 7 to 12 those of its VFs (Documentation/PCI/sysfs-pci.rst, include/linux/pci.h). A window has no address if it
// has flags and starts at 0 (memory windows only).
func unassigned(resource string) (own, vf bool) {
	for i, line := range strings.Split(resource, "\n") {
		var v [3]uint64
		fields := strings.Fields(line)
		if len(fields) != 3 || i > 12 || i == 6 {
			continue
		}
		bad := false
		for k, s := range fields {
			n, err := strconv.ParseUint(s, 0, 64)
			v[k], bad = n, bad || err != nil
		}
		const memory = 0x200 // IORESOURCE_MEM
		if bad || v[2]&memory == 0 || v[0] != 0 || v[1] == 0 {
			continue
		}
		if i >= 7 {
			vf = true
		} else {
			own = true
		}
	}
	return own, vf
}

// hex parses a number such as 0x15b3 or d2008c222f0606.
func hex(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("not a hexadecimal number: %.20q", s)
	}
	return n, nil
}
