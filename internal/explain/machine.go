package explain

import (
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host/check"
)

var machineRules = []rule{
	{
		id: "machine.accel", title: "KVM runs the guest", wanted: "<domain type='kvm'>",
		cost: "each instruction of the guest is translated: nothing that is measured in it means anything", source: qemu + ": TCG",
		look: func(l *laid) verdict {
			if l.d.Type != "kvm" {
				v := found(check.Fail, "type %s: QEMU emulates the guest's CPU", l.d.Type)
				if l.noKVM != "" {
					v.fix = "libvirtd makes no domain of type kvm here (" + l.noKVM + "); nearmetal check shows what the host lacks"
				}
				return v
			}
			return found(check.OK, "type kvm")
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool { d.Type = "kvm"; return true },
	},
	{
		id: "machine.type", title: "a machine with PCI Express", wanted: "q35",
		cost: "no PCI Express: no expander that shows a device on its node, no virtual IOMMU for more than 255 vCPUs", source: qemu + ": i440fx, q35, docs/pcie.txt",
		look: func(l *laid) verdict {
			switch l.machine {
			case "q35":
				return found(check.OK, "q35")
			case "pc":
				v := found(check.Warn, "i440fx, libvirt's default")
				if len(l.devices) > 0 {
					v = found(check.Fail, "i440fx, with devices of the host in it: %d", len(l.devices))
				}
				if hasIDE(l.d) {
					v.fix = "machine='q35', and SATA or virtio for the disks on IDE, which q35 has not; the guest has to find its root again, so test it"
				}
				return v
			}
			v := found(check.Warn, "%s", l.machine)
			v.fix = "machine='q35'"
			return v
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			if d.OS == nil || d.OS.Type == nil {
				return false
			}
			d.OS.Type.Machine = "q35"
			// libvirt numbers what is on a PCI bus anew.
			d.Devices.Controllers = slices.DeleteFunc(d.Devices.Controllers, func(c libvirtxml.DomainController) bool {
				return c.Type == "pci" || c.Type == "ide" || c.Type == "usb" && c.Model != "none"
			})
			dropAddresses(d.Devices)
			for i := range d.Devices.Disks {
				if k := &d.Devices.Disks[i]; k.Target != nil && k.Target.Bus == "ide" { // a CD-ROM, see look
					k.Target.Bus, k.Target.Dev, k.Address = "sata", "sd"+string(rune('a'+i%26)), nil
				}
			}
			return true
		},
	},
	{
		id: "machine.usb", title: "no USB", wanted: "<controller type='usb' model='none'/>",
		cost: "an emulated UHCI or EHCI controller is polled: QEMU's main thread wakes for it as long as a device is on it", source: qemu + ": USB emulation",
		look: func(l *laid) verdict {
			var has []string
			none := false
			for _, c := range l.d.Devices.Controllers {
				if c.Type == "usb" {
					if none = none || c.Model == "none"; c.Model != "none" {
						has = append(has, strings.TrimSpace("controller "+c.Model))
					}
				}
			}
			for _, i := range l.d.Devices.Inputs {
				if i.Bus == "usb" {
					has = append(has, i.Type)
				}
			}
			if none {
				return found(check.OK, "none")
			}
			if len(has) == 0 {
				has = []string{"nothing is said, so libvirt adds a controller"}
			}
			v := found(check.Warn, "%s", strings.Join(has[:min(len(has), 8)], ", "))
			for _, h := range l.d.Devices.Hostdevs {
				if h.SubsysUSB != nil {
					v.fix = "none while a USB device of the host is in it"
				}
			}
			return v
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			v := d.Devices
			v.Controllers = slices.DeleteFunc(v.Controllers, func(c libvirtxml.DomainController) bool { return c.Type == "usb" })
			v.Controllers = append(v.Controllers, domain.NoUSB())
			v.Inputs = slices.DeleteFunc(v.Inputs, func(i libvirtxml.DomainInput) bool { return i.Bus == "usb" })
			v.RedirDevs, v.RedirFilters = nil, nil
			v.Hubs = slices.DeleteFunc(v.Hubs, func(h libvirtxml.DomainHub) bool { return h.Type == "usb" })
			v.Smartcards = nil
			return true
		},
	},
	{
		id: "machine.balloon", title: "no balloon", wanted: "<memballoon model='none'/>",
		cost: "a balloon takes pages from the guest in the middle of a job; with a device of the host in the VM it frees nothing", source: libvirt + ", memballoon (a virtio one is added by itself); " + qemu + ": VFIO inhibits ballooning",
		look: func(l *laid) verdict {
			switch b := l.d.Devices.MemBalloon; {
			case b == nil:
				return found(check.Warn, "nothing is said, so libvirt adds one")
			case b.Model != "none":
				return found(check.Warn, "%s", b.Model)
			}
			return found(check.OK, "none")
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			d.Devices.MemBalloon = &libvirtxml.DomainMemBalloon{Model: "none"}
			return true
		},
	},
	{
		id: "machine.clock", title: "the guest reads the TSC itself", wanted: "no timer tsc with mode='emulate' or 'paravirt'",
		cost: "each rdtsc leaves the guest: MPI_Wtime and every MPI library's progress loop call it", source: libvirt + ", clock",
		look: func(l *laid) verdict {
			if l.d.Clock != nil {
				for _, t := range l.d.Clock.Timer {
					if t.Name == "tsc" && (t.Mode == "emulate" || t.Mode == "paravirt") {
						return found(check.Fail, "timer tsc, mode %s", t.Mode)
					}
				}
			}
			return found(check.OK, "nothing keeps it from that")
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			d.Clock.Timer = slices.DeleteFunc(d.Clock.Timer, func(t libvirtxml.DomainTimer) bool {
				return t.Name == "tsc" && (t.Mode == "emulate" || t.Mode == "paravirt")
			})
			return true
		},
	},
	{
		kvm: true,
		id:  "machine.hint", title: "the guest knows that its CPUs are its own", wanted: "<kvm><hint-dedicated state='on'/></kvm>, with a host CPU for each vCPU",
		cost: "the guest's kernel halts a CPU that waits for a lock, and is woken by a call to the host, where it could spin", source: "Linux: Documentation/virt/kvm/x86/cpuid, KVM_HINTS_REALTIME",
		look: func(l *laid) verdict {
			if f := l.d.Features; f != nil && f.KVM != nil && f.KVM.HintDedicated != nil && f.KVM.HintDedicated.State == "on" {
				if !lower.Dedicated(l.pins) {
					return found(check.Warn, "on, but vCPUs share host CPUs or float: a vCPU spins while the one it waits for does not run")
				}
				return found(check.OK, "on")
			}
			return found(check.Warn, "nothing says so")
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if l.want == nil || !lower.Dedicated(l.want.Pins) {
				return false
			}
			if d.Features == nil {
				d.Features = &libvirtxml.DomainFeatureList{}
			}
			if d.Features.KVM == nil {
				d.Features.KVM = &libvirtxml.DomainFeatureKVM{}
			}
			d.Features.KVM.HintDedicated = &libvirtxml.DomainFeatureState{State: "on"}
			return true
		},
	},
}

// hasIDE says whether a hard disk is on IDE.
func hasIDE(d *libvirtxml.Domain) bool {
	return slices.ContainsFunc(d.Devices.Disks, func(k libvirtxml.DomainDisk) bool {
		return k.Target != nil && k.Target.Bus == "ide" && k.Device != "cdrom"
	})
}

// dropAddresses removes the PCI addresses of all devices.
func dropAddresses(v *libvirtxml.DomainDeviceList) {
	drop := func(a **libvirtxml.DomainAddress) {
		if *a != nil && (*a).PCI != nil {
			*a = nil
		}
	}
	for i := range v.Disks {
		drop(&v.Disks[i].Address)
	}
	for i := range v.Controllers {
		drop(&v.Controllers[i].Address)
	}
	for i := range v.Filesystems {
		drop(&v.Filesystems[i].Address)
	}
	for i := range v.Interfaces {
		drop(&v.Interfaces[i].Address)
	}
	for i := range v.Sounds {
		drop(&v.Sounds[i].Address)
	}
	for i := range v.Videos {
		drop(&v.Videos[i].Address)
	}
	for i := range v.Hostdevs {
		drop(&v.Hostdevs[i].Address)
	}
	for i := range v.Inputs {
		drop(&v.Inputs[i].Address)
	}
	for i := range v.RNGs {
		drop(&v.RNGs[i].Address)
	}
	for i := range v.Shmems {
		drop(&v.Shmems[i].Address)
	}
	for i := range v.Watchdogs {
		drop(&v.Watchdogs[i].Address)
	}
	for i := range v.Serials {
		drop(&v.Serials[i].Address)
	}
	for i := range v.Panics {
		drop(&v.Panics[i].Address)
	}
	if v.MemBalloon != nil {
		drop(&v.MemBalloon.Address)
	}
	if v.VSock != nil {
		drop(&v.VSock.Address)
	}
}
