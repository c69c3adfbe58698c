package check

import (
	"fmt"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

// guestRows are read inside a VM.
var guestRows = []Row{
	{
		ID: "vm.accel", Group: InVM, Title: "the VM's instructions run on the CPU",
		Reads: "flag hypervisor and model name in /proc/cpuinfo; kvm-clock among the clock sources", Wants: "KVM, not TCG",
		Why:    "QEMU's emulation works everywhere and means nothing for speed.",
		Source: "docs/architecture.md, decision 6",
		Costs:  "everything: ten to a hundred times slower",
		Fix:    "nearmetal check on the host says why KVM does not work there",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			model := f.cpuField("model name")
			switch {
			case strings.Contains(model, "QEMU TCG"), strings.Contains(f.cpuField("vendor_id"), "TCG"):
				return found(Fail, "emulated (TCG): %s", model)
			case !f.inVM():
				return found(NotApplicable, "this is not a VM")
			case hasWord(f.line("/sys/devices/system/clocksource/clocksource0/available_clocksource"), "kvm-clock"):
				return found(OK, "KVM: %s", model)
			}
			return found(Unknown, "a hypervisor without kvm-clock: %s", model)
		},
	},
	{
		ID: "vm.nested-paging", Own: true, Group: InVM, Title: "page tables are the VM's own",
		Reads: "flag vmmcall or ept in /proc/cpuinfo, DirectMap in /proc/meminfo", Wants: "the kernel maps memory in 2 MiB and 1 GiB pages",
		Why:    "With nested paging in huge pages a translation takes few steps on both sides.",
		Source: "NASA AT5 report, section 3.2.2",
		Costs:  "TLB misses: up to 24 memory accesses each in 4 KiB pages",
		Fix:    "huge pages for the VM's memory (memory: hugepages in the cluster file); a CPU model with pdpe1gb (host)",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			s, err := f.read("/proc/meminfo")
			if err != nil {
				return found(Unknown, "/proc/meminfo cannot be read")
			}
			m := parseMeminfo(s)
			small, two, one := m["DirectMap4k"], m["DirectMap2M"], m["DirectMap1G"]
			total := small + two + one
			switch {
			case total == 0:
				return found(Unknown, "no DirectMap in /proc/meminfo")
			case small > total/10 && small > 64<<10:
				return found(Warn, "%d %% of memory is mapped in 4 KiB pages", 100*small/total)
			}
			return found(OK, "%s in 1 GiB, %s in 2 MiB, %s in 4 KiB pages", words.Bytes(one<<10), words.Bytes(two<<10), words.Bytes(small<<10))
		},
	},
	{
		ID: "vm.tsc", Group: InVM, Title: "time is read without an exit",
		Reads: "/sys/devices/system/clocksource/clocksource0/current_clocksource; flags constant_tsc, nonstop_tsc", Wants: "tsc or kvm-clock",
		Why:    "MPI_Wtime and time-outs read the clock often; other sources leave the VM for each reading.",
		Source: "kernel documentation: virt/kvm/x86/timekeeping",
		Costs:  "about 1 µs and more a reading",
		Fix:    "KVM with an invariant TSC: migratable=no, invtsc (nearmetal's default with -cpu host)",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			v := f.line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
			switch v {
			case "":
				return found(Unknown, "cannot be read")
			case "tsc", "kvm-clock", "arch_sys_counter":
				return found(OK, "%s", v)
			}
			return found(Fail, "%s", v)
		},
	},
	{
		ID: "vm.region", Group: InVM, Title: "the region is mapped cached",
		Reads: "PCI devices 1af4:1110 and /dev/dax*; flag pat, type of the mapping in /sys/kernel/debug/x86/pat_memtype_list", Wants: "write-back, or persistent memory",
		Why:    "A region that the VM maps uncached is slower than a network; KVM on Intel overrides the guest's mapping, AMD does not.",
		Source: "docs/region.md",
		Costs:  "a hundred times the latency: each access goes to memory",
		Fix:    "region: {device: devdax} in the cluster file",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			var region *pciDevice
			for _, d := range f.devices() {
				if d.vendor == "0x1af4" && f.line(d.dir()+"device") == "0x1110" {
					region = d
				}
			}
			switch {
			case f.has("/dev/dax0.0"):
				return found(OK, "persistent memory (dax0.0): write-back")
			case region == nil:
				return found(NotApplicable, "no region")
			case strings.Contains(f.cpuField("model name"), "TCG"):
				return found(OK, "%s: emulated memory is always cached", region.address)
			case f.intel():
				return found(OK, "%s: KVM on Intel maps it write-back", region.address)
			case f.amd():
				return found(Fail, "%s: on AMD the guest's mapping holds, which is uncached", region.address)
			}
			return found(Unknown, "%s", region.address)
		},
	},
	{
		ID: "vm.steal", Own: true, Group: InVM, Title: "the vCPUs have their CPUs to themselves",
		Reads: "steal time in /proc/stat", Wants: "less than 1 % since boot",
		Why:    "Time that a vCPU was ready and did not run: something else uses its CPU.",
		Source: "proc(5), /proc/stat (steal)",
		Costs:  "the share that is shown, and every rank that waits for this one",
		Fix:    "nearmetal verify on the host; check noise and cmdline.isolation there",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			s, err := f.read("/proc/stat")
			steal, total, ok := parseSteal(s)
			switch {
			case err != nil || !ok:
				return found(Unknown, "/proc/stat is not understood")
			case total == 0:
				return found(OK, "0 %%")
			case steal*100 > total:
				return found(Warn, "%.1f %%", 100*float64(steal)/float64(total))
			}
			return found(OK, "%.1f %%", 100*float64(steal)/float64(total))
		},
	},
	{
		ID: "vm.idle", Group: InVM, Title: "an idle vCPU waits a little before it halts",
		Reads: "/sys/devices/system/cpu/cpuidle/current_driver", Wants: "haltpoll, where vCPUs have CPUs of their own",
		Why:    "A halt is an exit; polling in the VM first saves it for short waits.",
		Source: "kernel documentation: virt/guest-halt-polling",
		Costs:  "an exit and an entry, some µs, for each short wait of a rank that blocks",
		Fix:    "nearmetal sets for VMs whose vCPUs are pinned the hint that loads it (kvm-hint-dedicated); modprobe cpuidle_haltpoll force=Y",
		Needs:  Reload, Profiles: inGuests,
		look: func(f *facts) finding {
			v := f.line(cpuDir + "cpuidle/current_driver")
			switch {
			case strings.Contains(f.cpuField("model name"), "TCG"):
				return found(NotApplicable, "emulated")
			case v == "haltpoll":
				return found(OK, "%s", v)
			case v == "" || v == "none":
				return found(Warn, "none: the vCPU halts at once")
			}
			return found(OK, "%s", v)
		},
	},
	{
		ID: "vm.vf", Group: InVM, Title: "the VF has its driver and its link",
		Reads: "driver of each network and InfiniBand function that is not QEMU's own; operstate, port state", Wants: "a driver, a device, a link that is up",
		Why:    "MPI takes a VF only with all of them; without, it falls back to TCP and says nothing.",
		Source: "NASA AT5 report, section 4.1.1 steps 3 and 8; VMware ConnectX study, section 2.4",
		Costs:  "MPI over an emulated network",
		Fix:    "modprobe mlx5_ib (or the VF's driver) in the VM; on the host nearmetal device show VF",
		Needs:  Other, Profiles: inGuests,
		look: func(f *facts) finding {
			var items []Item
			for _, d := range f.devices() {
				if !d.network() || d.virtual() || d.vendor == "0x8086" && len(d.rdma) == 0 && f.emulated(d) {
					continue
				}
				item := Item{d.label(), OK, d.driver}
				up := false
				for _, r := range d.rdma {
					for _, n := range f.numbered(ibDir+r+"/ports", "") {
						up = up || strings.HasSuffix(f.line(ibDir+r+"/ports/"+n+"/state"), "ACTIVE")
					}
				}
				for _, n := range d.net {
					up = up || f.line("/sys/class/net/"+n+"/operstate") == "up"
				}
				switch {
				case d.driver == "":
					item.Status, item.Found = Fail, "no driver"
				case len(d.net)+len(d.rdma) == 0:
					item.Status, item.Found = Fail, d.driver+" made no device"
				case !up:
					item.Status, item.Found = Warn, d.driver+", the link is down"
				default:
					item.Found = fmt.Sprintf("%s, up", d.driver)
				}
				items = append(items, item)
			}
			return worst(items, found(NotApplicable, "no VF in this VM"))
		},
	},
}

// emulated reports whether a network card is one of QEMU's old models (e1000, e1000e), and therefore not a VF.
func (f *facts) emulated(d *pciDevice) bool {
	switch f.line(d.dir() + "device") {
	case "0x100e", "0x10d3":
		return true
	}
	return false
}

// parseMeminfo parses the numbers of /proc/meminfo, in KiB as in the file.
func parseMeminfo(s string) map[string]uint64 {
	m := map[string]uint64{}
	for _, line := range strings.Split(s, "\n") {
		key, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f) == 0 || len(m) > 1000 {
			continue
		}
		if n, err := strconv.ParseUint(f[0], 10, 50); err == nil {
			m[key] = n
		}
	}
	return m
}

// parseSteal reads the first line of /proc/stat: "cpu user nice system idle iowait irq
// softirq steal …" in ticks (proc(5)).
func parseSteal(s string) (steal, total uint64, ok bool) {
	line, _, _ := strings.Cut(s, "\n")
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0, false
	}
	for i, w := range f[1:9] {
		n, err := strconv.ParseUint(w, 10, 56)
		if err != nil {
			return 0, 0, false
		}
		total += n
		if i == 7 {
			steal = n
		}
	}
	return steal, total, true
}
