package check

import (
	"errors"
	"fmt"
	"strings"

	"nearmetal/internal/topology"
)

// noiseRows are about interruptions of a computing CPU.
var noiseRows = []Row{
	{
		ID: "noise.nmi-watchdog", Group: Power, Title: "NMI watchdog",
		Reads: "/proc/sys/kernel/nmi_watchdog", Wants: "0",
		Why:    "It takes a performance counter and an interrupt on every CPU; in VMs the interrupt is an exit.",
		Source: "tuned: cpu-partitioning, realtime; kernel documentation: admin-guide/lockup-watchdogs",
		Costs:  "an interrupt for each CPU every few seconds, and one performance counter",
		Fix:    "sysctl -w kernel.nmi_watchdog=0",
		Needs:  Nothing, Profiles: anywhere,
		look:     wants("/proc/sys/kernel/nmi_watchdog", Warn, "0"),
		writes:   writes("/proc/sys/kernel/nmi_watchdog", "0"),
		Conflict: "it reports a CPU that hangs with interrupts off: keep it where hangs are hunted",
	},
	{
		ID: "noise.timer-migration", Group: Power, Title: "timers stay on their CPU",
		Reads: "/proc/sys/kernel/timer_migration", Wants: "0 on hosts with isolated CPUs",
		Why:    "Migration moves timers of idle CPUs to busy ones, where vCPUs run.",
		Source: "tuned: cpu-partitioning",
		Costs:  "timer interrupts of others on a vCPU's CPU",
		Fix:    "sysctl -w kernel.timer_migration=0",
		Needs:  Nothing, Profiles: onVMHosts,
		look: func(f *facts) finding {
			v := f.line("/proc/sys/kernel/timer_migration")
			switch {
			case v == "":
				return f.absent()
			case v == "0":
				return found(OK, "0")
			case f.line(cpuDir+"isolated") == "" && (f.line(cpuDir+"nohz_full") == "" || f.line(cpuDir+"nohz_full") == "(null)"):
				return found(OK, "%s, and no CPU is isolated", v)
			}
			return found(Warn, "%s", v)
		},
		writes: writes("/proc/sys/kernel/timer_migration", "0"),
	},
	{
		ID: "noise.stat-interval", Group: Power, Title: "interval of memory statistics",
		Reads: "/proc/sys/vm/stat_interval", Wants: "10 s or more",
		Why:    "A kernel thread runs on every CPU at this interval to fold counters.",
		Source: "tuned: network-latency, cpu-partitioning (vm.stat_interval=10)",
		Costs:  "one interruption of some µs for each CPU and interval",
		Fix:    "sysctl -w vm.stat_interval=10",
		Needs:  Nothing, Profiles: anywhere,
		look: func(f *facts) finding {
			n, ok := f.number("/proc/sys/vm/stat_interval")
			switch {
			case !ok:
				return f.absent()
			case n < 10:
				return found(Warn, "%d s", n)
			}
			return found(OK, "%d s", n)
		},
		writes: writes("/proc/sys/vm/stat_interval", "10"),
	},
	{
		ID: "noise.workqueue", Group: Power, Title: "kernel work stays off isolated CPUs",
		Reads: "/sys/devices/virtual/workqueue/cpumask", Wants: "no isolated CPU in it",
		Why:    "Unbound kernel work (writeback, RDMA completion, module work) may run on any CPU of the mask.",
		Source: "kernel documentation: core-api/workqueue; tuned: cpu-partitioning",
		Costs:  "interruptions of some ten µs to ms on vCPUs' CPUs",
		Fix:    "tuna or: write the mask of the host's own CPUs to /sys/devices/virtual/workqueue/cpumask",
		Needs:  Nothing, Profiles: onVMHosts,
		look: func(f *facts) finding {
			mask := f.line("/sys/devices/virtual/workqueue/cpumask")
			isolated, err := topology.ParseList(f.line(cpuDir+"isolated"), topology.MaxCPUs)
			if mask == "" || err != nil || len(isolated) == 0 {
				return found(NotApplicable, "no CPU is isolated")
			}
			set, err := parseMask(mask)
			if err != nil {
				return found(Unknown, "%v", err)
			}
			var both []int
			for _, id := range isolated {
				if set[id] {
					both = append(both, id)
				}
			}
			if len(both) > 0 {
				return found(Warn, "isolated CPUs %s are in it", topology.FormatList(both))
			}
			return found(OK, "%s", mask)
		},
		writes: func(f *facts) []Write {
			const file = "/sys/devices/virtual/workqueue/cpumask"
			isolated, err := topology.ParseList(f.line(cpuDir+"isolated"), topology.MaxCPUs)
			set, bad := parseMask(f.line(file))
			if err != nil || bad != nil || len(isolated) == 0 {
				return nil
			}
			for _, id := range isolated {
				delete(set, id)
			}
			if len(set) == 0 {
				return nil // all CPUs are isolated: the work has to run somewhere
			}
			return []Write{{File: file, Value: formatMask(set)}}
		},
	},
	{
		ID: "noise.irqbalance", Own: true, Group: Power, Title: "interrupts do not wander",
		Reads: "the processes' names (irqbalance)", Wants: "irqbalance is not running, or leaves isolated CPUs alone",
		Why:    "irqbalance moves interrupts of devices to CPUs that look idle to it, those of vCPUs among them.",
		Source: "tuned: cpu-partitioning (IRQBALANCE_BANNED_CPUS); vendors' RDMA tuning guides",
		Costs:  "interrupts of other devices on a vCPU's CPU",
		Fix:    "systemctl disable --now irqbalance, or IRQBALANCE_BANNED_CPULIST=LIST in /etc/sysconfig/irqbalance (it leaves isolated CPUs alone by itself since 1.9)",
		Needs:  Restart, Profiles: onVMHosts,
		look: func(f *facts) finding {
			switch {
			case len(f.numbered("/proc", "")) == 0:
				return found(Unknown, "no processes in the tree")
			case len(f.processes("irqbalance")) == 0:
				return found(OK, "not running")
			case f.line(cpuDir+"isolated") != "":
				return found(OK, "running; CPUs %s are isolated", f.line(cpuDir+"isolated"))
			}
			return found(Warn, "running, and no CPU is isolated")
		},
	},
	{
		ID: "noise.clock", Group: Power, Title: "clock source",
		Reads: "/sys/devices/system/clocksource/clocksource0/current_clocksource", Wants: "tsc (in a VM: tsc or kvm-clock)",
		Why:    "Any other source is read through a system call and a slow device; MPI_Wtime and time-outs read it often.",
		Source: "kernel documentation: virt/kvm/x86/timekeeping",
		Costs:  "about 1 µs a reading with hpet or acpi_pm, against some 20 ns",
		Fix:    "look for why the kernel abandoned the TSC (dmesg | grep -i tsc); tsc=reliable on the command line if the firmware is known to be right",
		Needs:  Reboot, Profiles: anywhere,
		look: func(f *facts) finding {
			const dir = "/sys/devices/system/clocksource/clocksource0/"
			v := f.line(dir + "current_clocksource")
			switch {
			case v == "":
				return found(Unknown, "%scurrent_clocksource cannot be read", dir)
			case v == "tsc", v == "kvm-clock" && f.inVM(), v == "arch_sys_counter":
				return found(OK, "%s", v)
			case hasWord(f.line(dir+"available_clocksource"), "tsc"):
				return found(Warn, "%s, though tsc is there", v).fixedBy("echo tsc >%scurrent_clocksource", dir)
			}
			return found(Fail, "%s", v)
		},
		writes: func(f *facts) []Write {
			const dir = "/sys/devices/system/clocksource/clocksource0/"
			if hasWord(f.line(dir+"available_clocksource"), "tsc") {
				return []Write{{File: dir + "current_clocksource", Value: "tsc"}}
			}
			return nil
		},
	},
	{
		ID: "noise.mitigations", Group: Power, Title: "mitigations that slow VM entry",
		Reads: "/sys/devices/system/cpu/vulnerabilities/*", Wants: "no flush of caches at every VM entry",
		Why:    "Against L1TF and MDS older CPUs empty the L1 cache or buffers each time a VM is entered.",
		Source: "kernel documentation: admin-guide/hw-vuln/l1tf",
		Costs:  "the L1 cache at every VM entry; much for programs with many exits, little for ones that poll",
		Fix:    "newer CPUs are not affected; kvm-intel.vmentry_l1d_flush=cond is the default, =never only where all users are trusted",
		Needs:  Other, Profiles: onVMHosts,
		look: func(f *facts) finding {
			const dir = "/sys/devices/system/cpu/vulnerabilities/"
			l1tf := f.line(dir + "l1tf")
			switch {
			case l1tf == "":
				return found(Unknown, "the kernel does not say")
			case strings.Contains(l1tf, "cache flushes") && !strings.Contains(l1tf, "conditional"):
				return found(Warn, "l1tf: %s", l1tf)
			case strings.Contains(l1tf, "conditional cache flushes"):
				return found(OK, "l1tf: conditional cache flushes")
			}
			return found(OK, "l1tf: %s", strings.ToLower(l1tf))
		},
	},
}

// parseMask reads a mask of CPUs: hexadecimal words of 32 bits, highest first, with commas
// (Documentation/core-api/printk-formats.rst, %*pb).
func parseMask(s string) (map[int]bool, error) {
	set := map[int]bool{}
	words := strings.Split(s, ",")
	if len(words) > topology.MaxCPUs/32 {
		return nil, errMask
	}
	for i, w := range words {
		n, err := hex(w)
		if err != nil || n>>32 != 0 {
			return nil, errMask
		}
		for b := 0; b < 32; b++ {
			if n>>b&1 != 0 {
				set[(len(words)-1-i)*32+b] = true
			}
		}
	}
	return set, nil
}

var errMask = errors.New("not a mask of CPUs")

// formatMask is parseMask's inverse.
func formatMask(set map[int]bool) string {
	most := 0
	for id := range set {
		most = max(most, id)
	}
	words := make([]string, most/32+1)
	for i := range words {
		var n uint32
		for b := 0; b < 32; b++ {
			if set[i*32+b] {
				n |= 1 << b
			}
		}
		words[len(words)-1-i] = fmt.Sprintf("%08x", n)
	}
	return strings.Join(words, ",")
}
