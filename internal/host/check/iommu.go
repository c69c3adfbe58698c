package check

import (
	"fmt"
	"sort"
	"strings"
)

const vfioType1 = "/sys/module/vfio_iommu_type1/parameters/"

var iommuRows = []Row{
	{
		ID: "iommu.remapping", Group: IOMMU, Title: "interrupt remapping",
		Reads: vfioType1 + "allow_unsafe_interrupts; flag INTR_REMAP of the DMAR table", Wants: "N, and remapping offered",
		Why:    "Without remapping a VM with a card could raise any interrupt of the host; vfio refuses the card unless that is allowed.",
		Source: "kernel documentation: driver-api/vfio; Intel VT-d specification, section 8.1",
		Costs:  "no passed-through cards, or no isolation",
		Fix:    "firmware setup: interrupt remapping and x2APIC on; remove allow_unsafe_interrupts=1 from /etc/modprobe.d",
		Needs:  Setup, Profiles: onVMHosts,
		Conflict: "NASA AT5 report, section 4.1 step 10, sets kvm allow_unsafe_assigned_interrupts=1: right for its 2010 machines without remapping, wrong since",
		look: func(f *facts) finding {
			unsafe := f.line(vfioType1 + "allow_unsafe_interrupts")
			if unsafe == "Y" || unsafe == "1" {
				return found(Warn, "allow_unsafe_interrupts=%s", unsafe)
			}
			if t, err := f.read("/sys/firmware/acpi/tables/DMAR"); err == nil {
				if flags, ok := dmarFlags(t); ok && flags&1 == 0 {
					return found(Fail, "the DMAR table offers no interrupt remapping")
				}
			}
			switch {
			case unsafe == "N" || unsafe == "0":
				return found(OK, "allow_unsafe_interrupts=N")
			case len(f.list("/sys/kernel/iommu_groups")) == 0:
				return found(NotApplicable, "no IOMMU groups")
			}
			return found(Unknown, "vfio_iommu_type1 is not loaded")
		},
	},
	{
		ID: "iommu.large-pages", Group: IOMMU, Title: "large pages in the IOMMU",
		Reads: "bits 34 (2 MiB) and 35 (1 GiB) of /sys/class/iommu/dmar*/intel-iommu/cap; " + vfioType1 + "disable_hugepages", Wants: "offered and used",
		Why:    "A card that cycles through many small buffers misses the IOTLB; large pages make the misses rare.",
		Source: "VMware FDR paper, Point-to-Point MPI; Intel VT-d specification, section 11.4.2 (SLLPS)",
		Costs:  "about 20 % of MPI small-message latency (VMware FDR paper)",
		Fix:    "modprobe -r vfio_pci vfio_iommu_type1 && modprobe vfio_iommu_type1 disable_hugepages=0; and give VMs huge pages (memory.hugepages)",
		Needs:  Reload, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if v := f.line(vfioType1 + "disable_hugepages"); v == "Y" || v == "1" {
				return found(Fail, "vfio_iommu_type1 disable_hugepages=%s", v)
			}
			var items []Item
			for _, unit := range f.numbered("/sys/class/iommu", "dmar") {
				v, err := hex(f.line("/sys/class/iommu/" + unit + "/intel-iommu/cap"))
				if err != nil {
					continue
				}
				items = append(items, largePages(unit, v))
			}
			if len(items) > 0 {
				return worst(items, finding{})
			}
			if len(f.numbered("/sys/class/iommu", "ivhd")) > 0 {
				return found(OK, "AMD IOMMU: every page size")
			}
			if len(f.list("/sys/kernel/iommu_groups")) == 0 {
				return found(NotApplicable, "no IOMMU groups")
			}
			return found(Unknown, "the IOMMU does not show its capabilities")
		},
	},
	{
		ID: "iommu.groups", Group: IOMMU, Title: "each network card and VF is alone in its group",
		Reads: "iommu_group of each device, /sys/kernel/iommu_groups/*/devices", Wants: "no other device, bridges aside",
		Why:    "A group goes to a VM as a whole: what shares it with a VF can be used by nobody else.",
		Source: "kernel documentation: driver-api/vfio (groups)",
		Costs:  "the VFs of the group are one",
		Fix:    "another slot (behind a root port with ACS); firmware setup: ACS and ARI on",
		Needs:  Setup, Profiles: onVMHosts,
		look: func(f *facts) finding {
			var items []Item
			for _, d := range f.devices() {
				if !d.network() || d.virtual() {
					continue
				}
				group := f.link(d.dir() + "iommu_group")
				if group == "" {
					continue
				}
				var others []string
				for _, o := range f.list("/sys/kernel/iommu_groups/" + group + "/devices") {
					if class, _ := hex(f.line(pciDir + printable(o) + "/class")); o != d.address && class>>16 != 0x06 {
						others = append(others, printable(o))
					}
				}
				item := Item{d.address, OK, "alone in group " + group}
				if len(others) > 0 {
					sort.Strings(others)
					item.Status, item.Found = Warn, "in group "+group+" with "+strings.Join(others[:min(4, len(others))], ", ")
				}
				items = append(items, item)
			}
			return worst(items, found(NotApplicable, "no network card with an IOMMU group"))
		},
	},
	{
		ID: "iommu.vfio", Group: IOMMU, Title: "vfio-pci is there",
		Reads: "/sys/bus/pci/drivers/vfio-pci, the kernel's modules", Wants: "loaded, built in, or a module of this kernel",
		Why:    "It hands VFs and cards to QEMU.",
		Source: "kernel documentation: driver-api/vfio",
		Costs:  "no VF and no passed-through card",
		Fix:    "modprobe vfio-pci; install the kernel's extra modules (linux-modules-extra, kernel-modules-extra)",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			if f.has("/sys/bus/pci/drivers/vfio-pci") {
				return found(OK, "loaded")
			}
			release := f.line("/proc/sys/kernel/osrelease")
			if release != "" && !strings.Contains(release, "/") {
				for _, list := range []string{"modules.dep", "modules.builtin"} {
					if s, err := f.read("/lib/modules/" + release + "/" + list); err == nil && strings.Contains(s, "/vfio-pci.ko") {
						return found(OK, "in this kernel's %s", list)
					}
				}
			}
			if !f.live {
				return found(Unknown, "not loaded, and the tree has no list of modules")
			}
			return found(Fail, "neither loaded nor a module of %s", release)
		},
	},
	{
		ID: "iommu.posted-interrupts", Group: IOMMU, Title: "interrupts of VFs reach a running vCPU without an exit",
		Reads: "bit 59 of /sys/class/iommu/dmar*/intel-iommu/cap; kvm_intel enable_apicv; kvm_amd avic", Wants: "posted interrupts, apicv or avic on",
		Why:    "Otherwise each interrupt of a VF stops the vCPU and goes through the host.",
		Source: "Intel VT-d specification, section 11.4.2 (PI); kernel-parameters: kvm_intel.enable_apicv, kvm-amd.avic",
		Costs:  "an exit and an entry for each interrupt: nothing while MPI polls, microseconds when it blocks",
		Fix:    "modprobe kvm_intel enable_apicv=1, or modprobe kvm_amd avic=1; a CPU that has it",
		Needs:  Reload, Profiles: onVMHosts,
		look: func(f *facts) finding {
			switch {
			case f.line(kvmAMD+"avic") == "Y", f.line(kvmAMD+"avic") == "1":
				return found(OK, "avic")
			case f.line(kvmAMD+"avic") != "":
				return found(Warn, "avic=%s", f.line(kvmAMD+"avic"))
			}
			apicv := f.line(kvmIntel + "enable_apicv")
			if apicv == "N" || apicv == "0" {
				return found(Warn, "enable_apicv=%s", apicv)
			}
			units := 0
			for _, unit := range f.numbered("/sys/class/iommu", "dmar") {
				if v, err := hex(f.line("/sys/class/iommu/" + unit + "/intel-iommu/cap")); err == nil {
					if units++; v>>59&1 == 0 {
						return found(Warn, "%s has no posted interrupts", unit)
					}
				}
			}
			if apicv == "" || units == 0 {
				return found(NotApplicable, "no KVM or no IOMMU to ask")
			}
			return found(OK, "apicv and posted interrupts")
		},
	},
}

// largePages judges an Intel IOMMU's capability register: bits 34 and 35 are the large pages of its second-level
// tables.
func largePages(unit string, capability uint64) Item {
	two, one := capability>>34&1 != 0, capability>>35&1 != 0
	switch {
	case two && one:
		return Item{unit, OK, "2 MiB and 1 GiB"}
	case two:
		return Item{unit, OK, "2 MiB"}
	}
	return Item{unit, Warn, fmt.Sprintf("none (cap %x)", capability)}
}
