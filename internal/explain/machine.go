package explain

import (
	"reflect"
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
			v := found(check.OK, "type kvm")
			if l.d.Type != "kvm" {
				v = found(check.Fail, "type %s: QEMU emulates the guest's CPU", l.d.Type)
			}
			switch {
			case l.foreign():
				v = found(check.Fail, "type %s, a guest of %s on a host of %s: KVM runs only guests of the host's own kind", l.d.Type, l.arch, printable(l.host.Arch))
				v.fix = "a host of " + l.arch
			case l.noKVM != "":
				if l.d.Type == "kvm" {
					v = found(check.Fail, "type kvm, and the host has no KVM that works")
					v.cost = "libvirtd does not start the domain"
				}
				v.fix = "KVM cannot be had here (" + l.noKVM + "); nearmetal check shows what the host lacks"
			}
			return v
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool { d.Type = "kvm"; return true },
	},
	{
		x86: true,
		id:  "machine.type", title: "a machine with PCI Express", wanted: "q35",
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
				if slices.ContainsFunc(l.d.Devices.Controllers, func(c libvirtxml.DomainController) bool {
					return c.PCI != nil && c.PCI.Target != nil && c.PCI.Target.NUMANode != nil
				}) {
					v.fix = "machine='q35', and a pcie-expander-bus for each of its expanders, by hand"
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
			// libvirt renumbers the devices on a PCI bus.
			d.Devices.Controllers = slices.DeleteFunc(d.Devices.Controllers, func(c libvirtxml.DomainController) bool {
				return c.Type == "pci" || c.Type == "ide"
			})
			for i := range d.Devices.Controllers {
				if c := &d.Devices.Controllers[i]; c.Type == "usb" && strings.HasPrefix(c.Model, "piix") { // a part of i440fx
					c.Model = ""
				}
			}
			dropAddresses(d.Devices)
			for i := range d.Devices.Disks {
				if k := &d.Devices.Disks[i]; busOf(k) == "ide" { // a CD-ROM, see look
					k.Target.Bus, k.Target.Dev, k.Address = "sata", freeName(d.Devices.Disks), nil
				}
			}
			return true
		},
	},
	{
		x86: true,
		id:  "machine.usb", title: "no USB", wanted: "<controller type='usb' model='none'/>",
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
			if none {
				return found(check.OK, "none")
			}
			for _, i := range l.d.Devices.Inputs {
				if onUSB(i) {
					has = append(has, i.Type)
				}
			}
			if len(has) == 0 {
				has = []string{"nothing is said, so libvirt adds a controller"}
			}
			v := found(check.Warn, "%s", strings.Join(has[:min(len(has), 8)], ", "))
			if needs := needUSB(l.d.Devices); len(needs) > 0 {
				v.fix = "none while these are on USB: " + some(needs)
			}
			return v
		},
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			v := d.Devices
			v.Controllers = slices.DeleteFunc(v.Controllers, func(c libvirtxml.DomainController) bool { return c.Type == "usb" })
			v.Controllers = append(v.Controllers, domain.NoUSB())
			v.Inputs = slices.DeleteFunc(v.Inputs, onUSB)
			v.RedirDevs, v.RedirFilters = nil, nil
			v.Hubs = slices.DeleteFunc(v.Hubs, func(h libvirtxml.DomainHub) bool { return h.Type == "usb" })
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
		x86: true,
		id:  "machine.clock", title: "the guest reads the TSC itself", wanted: "no timer tsc with mode='emulate' or 'paravirt'",
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
		kvm: true, x86: true,
		id: "machine.hint", title: "the guest knows that its CPUs are its own", wanted: "<kvm><hint-dedicated state='on'/></kvm>, with a host CPU for each vCPU",
		cost: "the guest's kernel halts a CPU that waits for a lock, and is woken by a call to the host, where it could spin", source: "Linux: Documentation/virt/kvm/x86/cpuid, KVM_HINTS_REALTIME",
		look: func(l *laid) verdict {
			if f := l.d.Features; f != nil && f.KVM != nil && f.KVM.HintDedicated != nil && f.KVM.HintDedicated.State == "on" {
				if !lower.Dedicated(l.pins) {
					v := found(check.Warn, "on, but vCPUs share host CPUs or float: a vCPU spins while the one it waits for does not run")
					v.fix = "that of cpu.pinned"
					return v
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

// onUSB reports whether a keyboard, a mouse or a tablet is on USB. By default libvirt puts only keyboards and mice
// elsewhere.
func onUSB(i libvirtxml.DomainInput) bool {
	return i.Bus == "usb" || i.Bus == "" && i.Type == "tablet"
}

// needUSB returns the devices that need USB, and without which a guest is hardly usable.
func needUSB(v *libvirtxml.DomainDeviceList) []string {
	var list []string
	for i := range v.Disks {
		if k := &v.Disks[i]; busOf(k) == "usb" {
			list = append(list, "disk "+k.Target.Dev)
		}
	}
	for _, h := range v.Hostdevs {
		if h.SubsysUSB != nil {
			list = append(list, "a USB device of the host")
		}
	}
	for _, n := range v.Interfaces {
		if n.Model != nil && n.Model.Type == "usb-net" || n.Source != nil && n.Source.Hostdev != nil && n.Source.Hostdev.USB != nil {
			list = append(list, "a network card")
		}
	}
	for _, s := range v.Serials {
		if s.Target != nil && (s.Target.Type == "usb-serial" || s.Target.Model != nil && s.Target.Model.Name == "usb-serial") || s.Address != nil && s.Address.USB != nil {
			list = append(list, "a serial port")
		}
	}
	for _, s := range v.Sounds {
		if s.Model == "usb" {
			list = append(list, "a sound card")
		}
	}
	for range v.Smartcards {
		list = append(list, "a smart card")
	}
	for _, c := range v.Controllers {
		if c.Type == "ccid" {
			list = append(list, "a reader of smart cards")
		}
	}
	return list
}

// busOf returns the bus of a disk. By default libvirt derives it from the disk's name.
func busOf(k *libvirtxml.DomainDisk) string {
	if k.Target == nil {
		return ""
	}
	if k.Target.Bus != "" {
		return k.Target.Bus
	}
	for prefix, bus := range map[string]string{"fd": "fdc", "hd": "ide", "sd": "scsi", "vd": "virtio", "xvd": "xen"} {
		if strings.HasPrefix(k.Target.Dev, prefix) {
			return bus
		}
	}
	return ""
}

// freeName returns a name of a disk on SATA that no other disk has.
func freeName(disks []libvirtxml.DomainDisk) string {
	for a := 'a'; a <= 'z'; a++ {
		name := "sd" + string(a)
		if !slices.ContainsFunc(disks, func(k libvirtxml.DomainDisk) bool { return k.Target != nil && k.Target.Dev == name }) {
			return name
		}
	}
	return "sdaa"
}

// hasIDE reports whether a hard disk is on IDE.
func hasIDE(d *libvirtxml.Domain) bool {
	return slices.ContainsFunc(d.Devices.Disks, func(k libvirtxml.DomainDisk) bool {
		return busOf(&k) == "ide" && k.Device != "cdrom"
	})
}

// dropAddresses removes the PCI addresses of all devices.
func dropAddresses(v *libvirtxml.DomainDeviceList) {
	drop := func(device reflect.Value) {
		if device.Kind() == reflect.Pointer {
			device = device.Elem()
		}
		if device.Kind() != reflect.Struct {
			return
		}
		f := device.FieldByName("Address")
		if !f.IsValid() {
			return
		}
		if a, ok := f.Interface().(*libvirtxml.DomainAddress); ok && a != nil && a.PCI != nil {
			f.Set(reflect.Zero(f.Type()))
		}
	}
	list := reflect.ValueOf(v).Elem()
	for i := range list.NumField() {
		f := list.Field(i)
		if f.Kind() != reflect.Slice {
			drop(f)
			continue
		}
		for k := range f.Len() {
			drop(f.Index(k))
		}
	}
}
