package domains

import (
	"fmt"
	"strings"
)

// devices writes devices of all kinds.
func (w *writer) devices(dimms int) {
	w.maybe(4, "    <emulator>/usr/bin/qemu-system-%s</emulator>", w.arch)
	w.usb = w.arch != "s390x" && w.one(2) // what is on USB may be here
	w.disks()
	w.controllers()
	w.cards()
	w.passed()
	if w.usb {
		w.maybe(3, "    <input type='tablet' bus='usb'/>")
		w.maybe(4, "    <input type='tablet'/>")
		w.maybe(6, "    <redirdev bus='usb' type='spicevmc'/>")
		w.maybe(8, "    <hub type='usb'/>")
		w.maybe(8, "    <sound model='usb'/>")
		w.maybe(10, "    <smartcard mode='host'/>")
		w.maybe(8, "    <serial type='pty'><target type='usb-serial' port='0'/></serial>")
	}
	w.maybe(3, "    <console type='pty'/>")
	w.maybe(3, "    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>")
	w.maybe(4, "    <graphics type='vnc' port='-1' autoport='yes'><listen type='address'/></graphics>")
	switch w.Intn(6) {
	case 0:
		w.say("    <video/>")
	case 1:
		w.say("    <video><model type='virtio' heads='1'/></video>")
	}
	if w.x86() {
		w.maybe(5, "    <sound model='ich6'/>")
		w.maybe(6, "    <watchdog model='i6300esb' action='reset'/>")
		w.maybe(8, "    <panic model='isa'/>")
		w.maybe(8, "    <tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>")
	}
	w.maybe(5, "    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>")
	w.maybe(8, "    <vsock model='virtio'><cid auto='yes'/></vsock>")
	w.maybe(8, "    <filesystem type='mount' accessmode='passthrough'><source dir='/srv'/><target dir='srv'/></filesystem>")
	w.maybe(8, "    <shmem name='region'><model type='ivshmem-plain'/><size unit='M'>4</size></shmem>")
	switch w.Intn(4) {
	case 0:
		w.say("    <memballoon model='virtio'><stats period='10'/></memballoon>")
	case 1:
		w.say("    <memballoon model='none'/>")
	}
	w.maybe(12, "    <iommu model='intel'/>")
	for range dimms {
		n, unit := w.size(512)
		if w.one(4) {
			w.say("    <memory model='virtio-mem'><target><size unit='%s'>%d</size><node>%d</node><block unit='MiB'>2</block><requested unit='MiB'>256</requested></target></memory>", unit, n, w.Intn(w.cells))
			continue
		}
		w.say("    <memory model='dimm'><target><size unit='%s'>%d</size><node>%d</node></target></memory>", unit, n, w.Intn(w.cells))
	}
}

func (w *writer) disks() {
	buses := []string{"virtio", "scsi"}
	names := map[string]string{"virtio": "vd", "scsi": "sd", "sata": "sd", "usb": "sd", "ide": "hd", "fdc": "fd"}
	if w.x86() {
		buses = append(buses, "sata", "ide")
	}
	if w.usb {
		buses = append(buses, "usb")
	}
	for k := range w.Intn(4) {
		bus := w.any(buses...)
		kind := w.any("disk", "disk", "cdrom")
		if kind == "cdrom" && bus == "virtio" {
			kind = "disk"
		}
		said := ""
		if !w.one(4) || bus == "sata" || bus == "usb" {
			said = fmt.Sprintf(" bus='%s'", bus)
		}
		w.say("    <disk type='file' device='%s'><driver name='qemu' type='raw'/><source file='/d%d.img'/><target dev='%s%c'%s/></disk>", kind, k, names[bus], 'a'+k, said)
	}
}

func (w *writer) controllers() {
	if w.usb {
		w.maybe(3, "    <controller type='usb' index='0' model='%s'/>", w.any("qemu-xhci", "ich9-ehci1", "piix3-uhci"))
	} else {
		w.maybe(3, "    <controller type='usb' model='none'/>")
	}
	w.maybe(4, "    <controller type='scsi' index='0' model='virtio-scsi'/>")
	w.maybe(5, "    <controller type='virtio-serial' index='0'/>")
}

// cards writes network cards.
func (w *writer) cards() {
	for k := range w.Intn(4) {
		mac := fmt.Sprintf("<mac address='52:54:00:00:00:%02x'/>", k)
		if w.x86() && w.one(3) {
			mac += fmt.Sprintf("<address type='pci' domain='0x0000' bus='0x00' slot='0x%02x' function='0x0'/>", 16+k)
		}
		model := ""
		if !w.one(3) {
			model = fmt.Sprintf("<model type='%s'/>", w.any("virtio", "e1000", "rtl8139", "virtio-non-transitional"))
		}
		switch w.Intn(6) {
		case 0:
			w.say("    <interface type='bridge'>%s<source bridge='br0'/>%s</interface>", mac, model)
		case 1:
			w.say("    <interface type='network'>%s<source network='default'/>%s</interface>", mac, model)
		case 2:
			w.say("    <interface type='user'>%s%s</interface>", mac, model)
		case 3:
			w.say("    <interface type='vhostuser'>%s<source type='unix' path='/tmp/v.sock' mode='server'/><model type='virtio'/></interface>", mac)
		case 4:
			w.say("    <interface type='direct'>%s<source dev='eth0' mode='bridge'/>%s<!-- kept: card %d --></interface>", mac, model, k)
		default:
			if address := w.function(k); address != "" {
				w.say("    <interface type='hostdev' managed='yes'>%s<source>%s</source></interface>", mac, address)
			}
		}
	}
}

// function is the address of a VF of the host, or of another of its devices; "": it has none.
func (w *writer) function(k int) string {
	if len(w.h.Devices) == 0 {
		return ""
	}
	var a, b, c, d int
	if _, err := fmt.Sscanf(w.h.Devices[(k*7+3)%len(w.h.Devices)].Address, "%x:%x:%x.%x", &a, &b, &c, &d); err != nil {
		return ""
	}
	return fmt.Sprintf("<address type='pci' domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/>", a, b, c, d)
}

// passed writes devices of the host.
func (w *writer) passed() {
	if !w.one(3) {
		return
	}
	if w.usb {
		w.maybe(4, "    <hostdev mode='subsystem' type='usb'><source><vendor id='0x1234'/><product id='0xbeef'/></source></hostdev>")
	}
	w.maybe(6, "    <hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>")
	address := w.function(9)
	if address == "" {
		return
	}
	guest := ""
	if w.x86() && w.one(3) && w.cells > 0 {
		w.say("    <controller type='pci' index='0' model='pcie-root'/>")
		w.say("    <controller type='pci' index='1' model='pcie-expander-bus'><model name='pxb-pcie'/><target busNr='64'><node>%d</node></target></controller>", w.Intn(w.cells))
		w.say("    <controller type='pci' index='2' model='pcie-root-port'><target chassis='1'/><address type='pci' bus='0x01' slot='0x00' function='0x0'/></controller>")
		guest = "<address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>"
	}
	w.say("    <hostdev mode='subsystem' type='pci' managed='no'><source>%s</source>%s</hostdev>", strings.Replace(address, " type='pci'", "", 1), guest)
}
