package explain

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/host/check"
)

var deviceRules = []rule{
	{
		id: "device.node", title: "the guest sees each device of the host on its node", wanted: "hostdev in a root port behind a pcie-expander-bus with the node's number, where the guest sees several nodes; else vCPUs on the device's node",
		cost: "MPI libraries choose the core and the memory for a card by its node: a guest that does not know it may take the other socket's", source: libvirt + ", controllers (pcie-expander-bus); " + qemu + ": docs/pci_expander_bridge.txt",
		look: lookDevices,
		fix: func(l *laid, d *libvirtxml.Domain) bool {
			if l.want == nil || len(l.want.Devices) == 0 || l.machine != "q35" || len(l.want.Nodes) != len(l.cells) {
				return false
			}
			return domain.AddDevices(d, l.want, l.low()) == nil
		},
	},
	{
		id: "net.model", title: "network cards are virtio's", wanted: "<model type='virtio'/>",
		cost: "each access to a register of an emulated card leaves the guest", source: qemu + ": network devices; " + nasa + ", section 3.1.1 (emulated networks cost latency by a factor of 10 or more)",
		look: func(l *laid) verdict {
			var wrong []string
			for i, n := range l.d.Devices.Interfaces {
				if n.Source != nil && n.Source.Hostdev != nil {
					continue
				}
				model := "libvirt's default, rtl8139 or e1000"
				if n.Model != nil {
					model = n.Model.Type
				}
				if !strings.HasPrefix(model, "virtio") {
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
		fix: func(_ *laid, d *libvirtxml.Domain) bool {
			for i := range d.Devices.Interfaces {
				n := &d.Devices.Interfaces[i]
				if n.Source != nil && n.Source.Hostdev != nil || n.Model != nil && strings.HasPrefix(n.Model.Type, "virtio") {
					continue
				}
				n.Model = &libvirtxml.DomainInterfaceModel{Type: "virtio"}
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
				if disks++; k.Target != nil && !slices.Contains([]string{"virtio", "scsi"}, k.Target.Bus) {
					wrong = append(wrong, fmt.Sprintf("%s: %s", k.Target.Dev, k.Target.Bus))
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

func lookDevices(l *laid) verdict {
	if len(l.devices) == 0 {
		return found(check.NotApplicable, "it has none")
	}
	var wrong, unknown []string
	farthest := 0
	for _, d := range l.devices {
		switch {
		case d.on == nil:
			unknown = append(unknown, fmt.Sprintf("%s: %s has no such device", d.address, l.host.Name))
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
		if farthest > 0 {
			v.cost = fmt.Sprintf("messages to and from the card cross the link between sockets: distance %d, where the own node is at 10 (the firmware's table)", farthest)
			v.fix = "the rows above: pins and memory on the device's node"
		} else if l.machine != "q35" {
			v.fix = "machine='q35' first (machine.type)"
		}
		return v
	case len(unknown) > 0:
		return found(check.Unknown, "%s", some(unknown))
	}
	return found(check.OK, "all are")
}
