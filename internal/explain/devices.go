package explain

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host/check"
	"nearmetal/internal/plan"
)

var deviceRules = []rule{
	{
		x86: true,
		id:  "device.node", title: "the guest sees each device of the host on its node", wanted: "hostdev in a root port behind a pcie-expander-bus with the node's number, where the guest sees several nodes; else vCPUs on the device's node",
		cost: "MPI libraries choose the core and the memory for a card by its node: a guest that does not know it may take the other socket's", source: libvirt + ", controllers (pcie-expander-bus); " + qemu + ": docs/pci_expander_bridge.txt",
		look: lookDevices,
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if !l.keeps || l.machine != "q35" || len(l.cells) < 2 {
				return false
			}
			// Devices that are presented on their node stay there.
			vm := *l.want
			vm.Devices = slices.DeleteFunc(slices.Clone(vm.Devices), func(p plan.Device) bool {
				return p.Node < 0 || slices.ContainsFunc(l.devices, func(d device) bool { return d.address == p.Address && d.shown == p.Node })
			})
			low := lower.Of(&vm)
			low.MMIO = l.low().MMIO // the window is shared by all devices
			return len(vm.Devices) > 0 && domain.AddDevices(d, &vm, low) == nil
		},
	},
	{
		id: "net.model", title: "network cards are virtio's", wanted: "<model type='virtio'/>",
		cost: "each access to a register of an emulated card leaves the guest", source: qemu + ": network devices; " + nasa + ", section 3.1.1 (emulated networks cost latency by a factor of 10 or more)",
		look: func(l *laid) verdict {
			var wrong []string
			for i, n := range l.d.Devices.Interfaces {
				if model := l.model(&n); !strings.HasPrefix(model, "virtio") {
					wrong = append(wrong, fmt.Sprintf("card %d: %s", i, model))
				}
			}
			switch {
			case len(l.d.Devices.Interfaces) == 0:
				return found(check.NotApplicable, "there are none")
			case len(wrong) > 0:
				return found(check.Warn, "%s", some(wrong))
			}
			return found(check.OK, "all are")
		},
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			for i := range d.Devices.Interfaces {
				if n := &d.Devices.Interfaces[i]; !strings.HasPrefix(l.model(n), "virtio") {
					n.Model = &libvirtxml.DomainInterfaceModel{Type: "virtio"}
				}
			}
			return true
		},
	},
	{
		id: "disk.bus", title: "disks are virtio's", wanted: "bus='virtio', or 'scsi' with a virtio controller",
		cost: "each access to a register of an emulated IDE or SATA controller leaves the guest", source: qemu + ": invocation, -drive and -device; " + libvirt + ", disk target",
		look: func(l *laid) verdict {
			var wrong []string
			disks := 0
			for _, k := range l.d.Devices.Disks {
				if k.Device == "cdrom" || k.Device == "floppy" {
					continue
				}
				if disks++; k.Target != nil && !slices.Contains([]string{"virtio", "scsi"}, busOf(&k)) {
					wrong = append(wrong, fmt.Sprintf("%s: %s", k.Target.Dev, busOf(&k)))
				}
			}
			switch {
			case disks == 0:
				return found(check.NotApplicable, "there are none")
			case len(wrong) > 0:
				v := found(check.Warn, "%s", some(wrong))
				v.fix = "bus='virtio' and dev='vda', when the guest's initramfs has virtio_blk and its fstab names file systems by UUID"
				return v
			}
			return found(check.OK, "all are")
		},
	},
}

// model returns the model of a network card; a function of the host counts as virtio, because it is not emulated
// either.
func (l *laid) model(n *libvirtxml.DomainInterface) string {
	switch s := n.Source; {
	case s != nil && (s.Hostdev != nil || s.Network != nil && l.pooled(s.Network.Network)):
		return "virtio"
	case n.Model != nil && n.Model.Type != "":
		return n.Model.Type
	case l.x86():
		return "libvirt's default, rtl8139 or e1000"
	case strings.HasPrefix(l.arch, "ppc64"):
		return "libvirt's default, spapr-vlan"
	}
	return "virtio" // libvirt's default
}

// pooled reports whether a network is a pool of VFs.
func (l *laid) pooled(name string) bool {
	return slices.ContainsFunc(l.devices, func(d device) bool { return d.pool == name })
}

func lookDevices(l *laid) verdict {
	if len(l.devices)+len(l.unread) == 0 {
		return found(check.NotApplicable, "it has none")
	}
	var wrong, unknown []string
	for _, u := range l.unread {
		unknown = append(unknown, u+": its node is not known")
	}
	farthest, floats := 0, false
	for _, d := range l.devices {
		switch {
		case d.on == nil:
			unknown = append(unknown, fmt.Sprintf("%s: %s has no such device", printable(d.address), l.host.Name))
		case d.on.Node < 0:
			unknown = append(unknown, fmt.Sprintf("%s: the firmware says no node", d.address))
		case len(l.cells) > 1 && d.shown < 0:
			wrong = append(wrong, fmt.Sprintf("%s is on node %d, the guest does not see it", d.address, d.on.Node))
		case len(l.cells) > 1:
			if d.shown >= len(l.cells) {
				wrong = append(wrong, fmt.Sprintf("%s is shown on cell %d, which there is not", d.address, d.shown))
				continue
			}
			c := l.cells[d.shown]
			nodes := c.nodes
			if len(nodes) == 0 {
				nodes = l.spread(c.vcpus)
			}
			if len(nodes) > 0 && !slices.Contains(nodes, d.on.Node) {
				wrong = append(wrong, fmt.Sprintf("%s is on node %d, and shown on cell %d, which is on node %d", d.address, d.on.Node, d.shown, nodes[0]))
			}
		case !l.pinned() && len(l.host.Nodes) > 1:
			wrong = append(wrong, fmt.Sprintf("%s is on node %d, and the vCPUs float over all nodes", d.address, d.on.Node))
			floats = true
		default:
			for _, n := range l.spread(l.cells[0].vcpus) {
				if n != d.on.Node {
					wrong = append(wrong, fmt.Sprintf("%s is on node %d, vCPUs are on node %d", d.address, d.on.Node, n))
					farthest = max(farthest, l.host.Distance(n, d.on.Node))
				}
			}
		}
	}
	switch {
	case len(wrong) > 0:
		v := found(check.Warn, "%s", some(wrong))
		if floats {
			v.fix = "that of cpu.pinned"
		} else if farthest > 0 {
			v.cost = fmt.Sprintf("messages to and from the card cross the link between sockets: distance %d, where the own node is at 10 (the firmware's table)", farthest)
			v.fix = "the rows above: pins and memory on the device's node"
		} else if l.machine != "q35" {
			v.fix = "machine='q35' first (machine.type)"
		} else if slices.ContainsFunc(l.devices, func(d device) bool { return d.pool != "" && d.shown < 0 }) {
			v.fix = "an address for the interface, behind a pcie-expander-bus with the node's number"
		}
		return v
	case len(unknown) > 0:
		return found(check.Unknown, "%s", some(unknown))
	}
	return found(check.OK, "all are")
}
