package explain

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
)

var cpuRules = []rule{
	{
		kvm: true, x86: true,
		id: "cpu.model", title: "the guest sees the host's CPU", wanted: "<cpu mode='host-passthrough' migratable='off'>",
		cost: "instructions that the model lacks are hidden, and libraries take slower code", source: qemu + ": CPU models; " + libvirt + ", cpu",
		look: func(l *laid) verdict {
			c := l.d.CPU
			switch {
			case c == nil || c.Mode == "" && c.Model == nil:
				return found(check.Fail, "QEMU's default model, qemu64: no AVX")
			case c.Mode == "host-passthrough" && c.Migratable != "off":
				v := found(check.Warn, "host-passthrough, migratable")
				v.cost = "the invariant TSC is hidden, so the guest's kernel may take a clock that is slower to read"
				return v
			case c.Mode == "host-passthrough":
				return found(check.OK, "host-passthrough")
			case c.Mode == "maximum":
				return found(check.Warn, "maximum: the host's CPU, and what QEMU emulates beyond it")
			case c.Mode == "host-model":
				return found(check.Warn, "host-model: what libvirt knows of the host's CPU by name")
			}
			name := "of its own"
			if c.Model != nil {
				name = c.Model.Value
			}
			return found(check.Fail, "model %s", name)
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			if d.CPU == nil {
				d.CPU = &libvirtxml.DomainCPU{}
			}
			c := d.CPU
			c.Mode, c.Check, c.Migratable, c.Match, c.Model, c.Vendor = "host-passthrough", "none", "off", "", nil, ""
			// Required features are the model's. Forced or disabled ones are intended for this guest.
			c.Features = slices.DeleteFunc(c.Features, func(f libvirtxml.DomainCPUFeature) bool { return f.Policy != "disable" && f.Policy != "force" })
			return true
		},
	},
	{
		place: true,
		id:    "cpu.pinned", title: "each vCPU has a host CPU of its own", wanted: "a vcpupin for each vCPU with one CPU that no other has",
		cost: "vCPUs move between cores and away from their memory, and two may wait for one core: MPI's ranks wait for the slowest", source: nasa + ", section 3.2.1; " + libvirt + ", vcpupin",
		look: lookPinned,
		fix:  place,
	},
	{
		place: true,
		id:    "cpu.node", title: "the vCPUs of a guest's node are on one node of the host", wanted: "pins by the host's numbering, which lstopo and nearmetal topology show",
		cost: "the guest puts a rank beside memory that is far from it", source: libvirt + ", vcpupin; VMware's vNUMA paper (a virtual node is on one of the host)",
		look: func(l *laid) verdict {
			if len(l.cells) < 2 || !l.pinned() {
				return found(check.NotApplicable, "the guest sees one node, or its vCPUs are not pinned")
			}
			var wrong []string
			farthest := 0
			for i, c := range l.cells {
				if nodes := l.spread(c.vcpus); len(nodes) > 1 {
					wrong = append(wrong, fmt.Sprintf("cell %d (vCPUs %s) is on nodes %s", i, topology.FormatList(c.vcpus), topology.FormatList(nodes)))
					farthest = max(farthest, l.host.Distance(nodes[0], nodes[len(nodes)-1]))
				}
			}
			if len(wrong) == 0 {
				return found(check.OK, "each is")
			}
			v := found(check.Fail, "%s: the pins assume another numbering of the CPUs than this host's", some(wrong))
			v.cost = fmt.Sprintf("a part of each cell's accesses goes at distance %d, where its own node is at 10 (the firmware's table)", farthest)
			return v
		},
		fix: place,
	},
	{
		x86: true, place: true,
		id: "cpu.topology", title: "sockets, dies, cores and threads as they lie on the host", wanted: "a topology that shows which vCPUs share a core and a last-level cache",
		cost: "the guest's scheduler and MPI's binding take cores for sockets, or two threads of a core for two cores", source: libvirt + ", topology (the default is a socket for each vCPU); VMware's vNUMA paper",
		look: lookTopology,
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps {
				return place(l, d)
			}
			showCPUs(l, d)
			return true
		},
	},
	{
		place: true,
		id:    "cpu.emulator", title: "QEMU's other threads are not on the vCPUs' cores", wanted: "an emulatorpin to cores that no vCPU has",
		cost: "QEMU's main thread takes the core of a vCPU whenever a device, a monitor or a timer wants something: noise that all ranks wait for", source: libvirt + ", emulatorpin (default: all CPUs)",
		look: func(l *laid) verdict {
			v := found(check.OK, "on CPUs %s", topology.FormatList(l.emulator))
			switch both := l.onCores(l.emulator); {
			case l.emulator == nil && !l.pinned():
				return found(check.Warn, "they float, as the vCPUs do")
			case len(l.absent(l.emulator)) > 0:
				v = found(check.Fail, "on CPUs %s, of which %s has no %s", topology.FormatList(l.emulator), l.host.Name, topology.FormatList(l.absent(l.emulator)))
			case l.emulator == nil:
				v = found(check.Warn, "no emulatorpin: they run on the vCPUs' CPUs too")
			case !l.pinned():
				v = found(check.Warn, "on CPUs %s, and vCPUs that are not pinned run there too", topology.FormatList(l.emulator))
			case len(both) > 0:
				v = found(check.Warn, "on CPUs %s, of which %s are on cores of vCPUs", topology.FormatList(l.emulator), topology.FormatList(both))
			default:
				return v
			}
			if l.keeps && len(l.want.EmulatorCPUs) == 0 {
				v.fix = fmt.Sprintf("fewer vCPUs: with %d the host has no core left for them", l.vcpus)
			}
			return v
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps {
				return place(l, d)
			}
			tune(d).EmulatorPin = domain.Pins(l.want).EmulatorPin
			return true
		},
	},
	{
		place: true,
		id:    "cpu.iothreads", title: "disks' threads are not on the vCPUs' cores", wanted: "an iothreadpin for each to cores that no vCPU has",
		cost: "a disk's thread takes the core of a vCPU while it works", source: libvirt + ", iothreadpin",
		look: func(l *laid) verdict {
			n := 0
			for _, t := range l.threads {
				if !l.shares(t) {
					n++
				}
			}
			switch {
			case len(l.threads) == 0:
				return found(check.NotApplicable, "there are none")
			case n < len(l.threads):
				v := found(check.Warn, "%d of %d have CPUs of their own", n, len(l.threads))
				if l.keeps && len(l.want.EmulatorCPUs) == 0 {
					v.fix = fmt.Sprintf("fewer vCPUs: with %d the host has no core left for them", l.vcpus)
				}
				return v
			}
			return found(check.OK, "all %d", n)
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps {
				return place(l, d)
			}
			pinThreads(l, tune(d), l.shares)
			return true
		},
	},
	{
		id: "cpu.quota", title: "no limit on CPU time", wanted: "no quota in cputune",
		cost: "a vCPU stands still for the rest of each period: ranks on it make all others wait", source: libvirt + ", CPU tuning",
		look: func(l *laid) verdict {
			if t := l.d.CPUTune; t != nil {
				for _, q := range []*libvirtxml.DomainCPUTuneQuota{t.Quota, t.GlobalQuota, t.EmulatorQuota, t.IOThreadQuota} {
					if q != nil && q.Value > 0 {
						return found(check.Fail, "%d µs in each period", q.Value)
					}
				}
			}
			return found(check.OK, "none")
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			t := d.CPUTune
			t.Quota, t.GlobalQuota, t.EmulatorQuota, t.IOThreadQuota = nil, nil, nil, nil
			t.Period, t.GlobalPeriod, t.EmulatorPeriod, t.IOThreadPeriod = nil, nil, nil, nil
			return true
		},
	},
}

// shares reports whether a disk's thread may run on a vCPU's core, or cannot run at all.
func (l *laid) shares(t iothread) bool {
	return len(t.cpus) == 0 || len(l.onCores(t.cpus))+len(l.absent(t.cpus)) > 0
}

// some lists the first few of many items.
func some(list []string) string {
	const most = 3
	s := ""
	for i, x := range list[:min(len(list), most)] {
		if i > 0 {
			s += "; "
		}
		s += x
	}
	if len(list) > most {
		s += fmt.Sprintf("; and %d more", len(list)-most)
	}
	return s
}

func lookPinned(l *laid) verdict {
	float, wide := 0, 0
	var gone, shared []string
	owner := map[int]int{}
	for v, p := range l.pins {
		switch {
		case p == nil:
			float++
			continue
		case len(p) > 1:
			wide++
		}
		for _, id := range p {
			if c := l.host.CPU(id); c == nil || !c.Online {
				gone = append(gone, fmt.Sprintf("vCPU %d has CPU %d, which %s has not", v, id, l.host.Name))
			}
			if first, ok := owner[id]; ok && len(p) == 1 {
				shared = append(shared, fmt.Sprintf("vCPUs %d and %d have CPU %d", first, v, id))
			}
			if _, ok := owner[id]; !ok {
				owner[id] = v
			}
		}
	}
	switch {
	case len(gone) > 0:
		return found(check.Fail, "%s", some(gone))
	case float == l.vcpus:
		return found(check.Fail, "no vCPU is pinned")
	case float > 0:
		return found(check.Fail, "%d of %d vCPUs are not pinned", float, l.vcpus)
	case len(shared) > 0:
		return found(check.Fail, "%s", some(shared))
	case wide > 0:
		return found(check.Warn, "%d of %d vCPUs may run on several CPUs", wide, l.vcpus)
	}
	return found(check.OK, "all %d", l.vcpus)
}

func lookTopology(l *laid) verdict {
	var t libvirtxml.DomainCPUTopology
	if l.d.CPU == nil || l.d.CPU.Topology == nil {
		t = libvirtxml.DomainCPUTopology{Sockets: l.vcpus, Cores: 1, Threads: 1}
	} else {
		t = *l.d.CPU.Topology
	}
	t.Dies = max(t.Dies, 1)
	said := fmt.Sprintf("sockets=%d dies=%d cores=%d threads=%d", t.Sockets, t.Dies, t.Cores, t.Threads)
	if l.d.CPU == nil || l.d.CPU.Topology == nil {
		said = fmt.Sprintf("none is said, so the guest sees %d sockets of one core", l.vcpus)
	}
	if l.want == nil {
		if t.Sockets == l.vcpus && l.vcpus > 1 && t.Sockets > len(l.cells) {
			return found(check.Warn, "%s", said)
		}
		return found(check.Unknown, "%s", said)
	}
	w := l.wantedCPU().Topology
	same := t.Sockets == w.Sockets && t.Dies == w.Dies && t.Cores == w.Cores && t.Threads == w.Threads
	if same && (l.keeps || !l.pinned() || slices.EqualFunc(l.pins, l.want.Pins, slices.Equal[[]int])) {
		return found(check.OK, "%s", said)
	}
	// A good topology may differ from the planner's, which chooses other cores.
	if l.matches(t, true) {
		return found(check.OK, "%s", said)
	}
	return found(check.Warn, "%s; this host's for it: sockets=%d dies=%d cores=%d threads=%d", said, w.Sockets, w.Dies, w.Cores, w.Threads)
}
