package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/words"
)

// slowState is the exit latency in µs from which an idle state counts as deep: C1 and C1E need up to 10 µs on server
// CPUs, C6 and deeper 50 µs and more (drivers/idle/intel_idle.c).
const slowState = 10

var powerRows = []Row{
	tunedRow,
	{
		ID: "power.governor", Group: Power, Title: "frequency governor",
		Reads: "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor", Wants: "performance on every CPU",
		Why:    "Other governors lower the frequency while ranks wait and raise it late.",
		Source: "VMware ConnectX study, section 2.3 (power policy High Performance); VMware FDR paper (Static High Performance); tuned: throughput-performance",
		Costs:  "frequency: up to the ratio of a CPU's lowest to its highest, at the start of each burst",
		Fix:    "cpupower frequency-set -g performance",
		Needs:  Nothing, Profiles: onHosts,
		look: func(f *facts) finding {
			values := f.cpuValues("cpu%d/cpufreq/scaling_governor")
			if len(values) == 0 {
				return noCpufreq(f)
			}
			return worst(byValue("CPUs", values, is("performance", Warn)), finding{})
		},
		writes: func(f *facts) []Write {
			var list []Write
			for _, id := range f.cpus() {
				dir := fmt.Sprintf("%scpu%d/cpufreq/", cpuDir, id)
				if g := f.line(dir + "scaling_governor"); g != "" && g != "performance" && hasWord(f.line(dir+"scaling_available_governors"), "performance") {
					list = append(list, Write{File: dir + "scaling_governor", Value: "performance"})
				}
			}
			return list
		},
	},
	{
		ID: "power.energy-preference", Group: Power, Title: "energy preference of the CPU",
		Reads: "/sys/devices/system/cpu/cpu*/cpufreq/energy_performance_preference, power/energy_perf_bias", Wants: "performance (0)",
		Why:    "CPUs that choose frequencies themselves (HWP, CPPC) follow this hint and not the governor alone.",
		Source: "kernel documentation: admin-guide/pm/intel_pstate; VMware ConnectX study, section 2.1",
		Costs:  "frequency under load that changes fast",
		Fix:    "cpupower set -b 0; echo performance into each energy_performance_preference",
		Needs:  Nothing, Profiles: onHosts,
		look: func(f *facts) finding {
			items := byValue("CPUs", f.cpuValues("cpu%d/cpufreq/energy_performance_preference"), is("performance", Warn))
			items = append(items, byValue("bias of CPUs", f.cpuValues("cpu%d/power/energy_perf_bias"), is("0", Warn))...)
			return worst(items, found(NotApplicable, "this CPU takes no hint"))
		},
		writes: func(f *facts) []Write {
			var list []Write
			for _, id := range f.cpus() {
				dir := fmt.Sprintf("%scpu%d/", cpuDir, id)
				if v := f.line(dir + "cpufreq/energy_performance_preference"); v != "" && v != "performance" {
					list = append(list, Write{File: dir + "cpufreq/energy_performance_preference", Value: "performance"})
				}
				if v := f.line(dir + "power/energy_perf_bias"); v != "" && v != "0" {
					list = append(list, Write{File: dir + "power/energy_perf_bias", Value: "0"})
				}
			}
			return list
		},
	},
	{
		ID: "power.turbo", Group: Power, Title: "turbo",
		Reads: "/sys/devices/system/cpu/intel_pstate/no_turbo, cpufreq/boost", Wants: "on",
		Why:    "Cores run above their base frequency when power allows.",
		Source: "kernel documentation: admin-guide/pm/intel_pstate (no_turbo), cpufreq (boost)",
		Costs:  "the difference between base and turbo frequency, often a third",
		Fix:    "echo 0 >/sys/devices/system/cpu/intel_pstate/no_turbo, or echo 1 >/sys/devices/system/cpu/cpufreq/boost",
		Needs:  Nothing, Profiles: onHosts,
		Conflict: "sites that want equal times on equal nodes switch turbo off on purpose: then pass this row by",
		look: func(f *facts) finding {
			switch {
			case f.line(cpuDir+"intel_pstate/no_turbo") == "1", f.line(cpuDir+"cpufreq/boost") == "0":
				return found(Warn, "off")
			case f.line(cpuDir+"intel_pstate/no_turbo") == "0", f.line(cpuDir+"cpufreq/boost") == "1":
				return found(OK, "on")
			}
			return noCpufreq(f)
		},
		writes: func(f *facts) []Write {
			if f.line(cpuDir+"intel_pstate/no_turbo") == "1" {
				return []Write{{File: cpuDir + "intel_pstate/no_turbo", Value: "0"}}
			}
			if f.line(cpuDir+"cpufreq/boost") == "0" {
				return []Write{{File: cpuDir + "cpufreq/boost", Value: "1"}}
			}
			return nil
		},
	},
	{
		ID: "power.c-states", Group: Power, Title: "no deep idle states",
		Reads: "/sys/devices/system/cpu/cpu*/cpuidle/state*/{latency,disable}", Wants: fmt.Sprintf("states that take %d µs or more to leave are disabled", slowState),
		Why:    "A rank that blocks, or a vCPU that halts, wakes after the state's exit latency.",
		Source: "VMware FDR paper, BIOS Settings (No C-states, No Package State); tuned: latency-performance (force_latency)",
		Costs:  "the state's exit latency (50 to 900 µs for C6) at each wake-up, where a message takes 1 µs",
		Fix:    "cpupower idle-set -D 10, or intel_idle.max_cstate=1 on the kernel's command line",
		Needs:  Nothing, Profiles: onHosts,
		Conflict: "idle cores in deep states leave power to the others' turbo: for programs that use few cores this row can cost",
		look: func(f *facts) finding {
			values := map[int]string{}
			any := false
			for _, id := range f.cpus() {
				dir := fmt.Sprintf("%scpu%d/cpuidle/", cpuDir, id)
				var deep []string
				for _, s := range f.idleStates(dir) {
					any = true
					if !s.disabled && s.latency >= slowState {
						deep = append(deep, fmt.Sprintf("%s (%d µs)", s.name, s.latency))
					}
				}
				values[id] = strings.Join(deep, ", ")
			}
			if !any {
				return found(NotApplicable, "no idle states: a VM, or the command line keeps them off")
			}
			items := byValue("CPUs", values, is("", Warn))
			for i := range items {
				if items[i].Found == "" {
					items[i].Found = "none deep"
				}
			}
			return worst(items, finding{})
		},
		writes: func(f *facts) []Write {
			var list []Write
			for _, id := range f.cpus() {
				for _, s := range f.idleStates(fmt.Sprintf("%scpu%d/cpuidle/", cpuDir, id)) {
					if !s.disabled && s.latency >= slowState {
						list = append(list, Write{File: s.dir + "disable", Value: "1"})
					}
				}
			}
			return list
		},
	},
	{
		ID: "power.smt", Group: Power, Title: "hardware threads",
		Reads: "/sys/devices/system/cpu/smt/active", Wants: "off, or one vCPU a core (nearmetal's default)",
		Why:    "Two ranks on one core share its units; the papers' machines had Hyper-Threading off.",
		Source: "VMware FDR paper, BIOS Settings (Processor Hyper-Threading: Disabled); VMware vNUMA paper, preferHT",
		Costs:  "nothing while threads of a core are not used twice; else up to half a core a rank",
		Fix:    "echo off >/sys/devices/system/cpu/smt/control, nosmt on the command line, or leave it on and place one vCPU a core (placement in the cluster file)",
		Needs:  Nothing, Profiles: onHosts,
		look: func(f *facts) finding {
			switch f.line(cpuDir + "smt/active") {
			case "0":
				return found(OK, "off")
			case "1":
				return found(OK, "on; nearmetal places one vCPU a core")
			}
			return found(NotApplicable, "the kernel does not say")
		},
	},
	{
		ID: "power.offline", Group: Power, Title: "all CPUs are online",
		Reads: "/sys/devices/system/cpu/offline", Wants: "none offline",
		Why:    "A CPU that was taken offline and forgotten is missing in every job.",
		Source: "kernel documentation: core-api/cpu_hotplug",
		Costs:  "the CPU",
		Fix:    "echo 1 >/sys/devices/system/cpu/cpuN/online",
		Needs:  Nothing, Profiles: anywhere,
		look: func(f *facts) finding {
			off := f.line(cpuDir + "offline")
			if off == "" || off == "(null)" {
				return found(OK, "%s online", words.Count(len(f.cpus()), "CPU", "CPUs"))
			}
			if f.line(cpuDir+"smt/control") == "off" {
				return found(OK, "%s offline: second threads (SMT is off)", off)
			}
			// Possible CPUs that are not present are slots for hot-plug.
			if f.line(cpuDir+"present") == f.line(cpuDir+"online") {
				return found(OK, "%s offline: not there", off)
			}
			return found(Warn, "%s offline", off)
		},
	},
	{
		ID: "power.throttle", Group: Power, Title: "no CPU was throttled",
		Reads: "/sys/devices/system/cpu/cpu*/thermal_throttle/*_throttle_count", Wants: "0 since boot",
		Why:    "A core that gets too hot, or a package over its power, slows down; every rank waits for it.",
		Source: "kernel: arch/x86/kernel/cpu/mce/therm_throt.c",
		Costs:  "frequency of the CPUs named, while it lasts",
		Fix:    "look at fans, air flow and power limits (ipmitool sdr)",
		Needs:  Other, Profiles: onHosts,
		look: func(f *facts) finding {
			values := map[int]string{}
			for _, id := range f.cpus() {
				for _, kind := range []string{"core", "package"} {
					v := f.line(fmt.Sprintf("%scpu%d/thermal_throttle/%s_throttle_count", cpuDir, id, kind))
					if v != "" && (values[id] == "" || values[id] == "0") {
						values[id] = v
					}
				}
			}
			for id, v := range values {
				if v != "0" {
					values[id] = "throttled"
				}
			}
			return worst(byValue("CPUs", values, is("0", Warn)), found(NotApplicable, "no counters"))
		},
	},
}

// is returns a judge of values: ok for want, else bad.
func is(want string, bad Status) func(string) Status {
	return func(v string) Status {
		if v == want {
			return OK
		}
		return bad
	}
}

func noCpufreq(f *facts) finding {
	if f.inVM() {
		return found(NotApplicable, "this host is a VM: the machine below governs frequencies")
	}
	return found(Unknown, "no cpufreq: the firmware governs, and cannot be asked")
}

func hasWord(list, word string) bool {
	return slices.Contains(strings.Fields(list), word)
}

// idleState is one idle state of a CPU.
type idleState struct {
	dir      string
	name     string
	latency  int // exit latency in µs
	disabled bool
}

func (f *facts) idleStates(dir string) []idleState {
	var list []idleState
	for _, name := range f.numbered(dir, "state") {
		d := dir + name + "/"
		latency, err := strconv.Atoi(f.line(d + "latency"))
		if err != nil {
			continue
		}
		list = append(list, idleState{d, f.line(d + "name"), latency, f.line(d+"disable") == "1"})
	}
	return list
}
