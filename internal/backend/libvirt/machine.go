package libvirt

import (
	"fmt"
	"os"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// identity identifies a domain.
type identity struct {
	name    string
	uuid    daemon.UUID
	cluster string
}

// nameless is a placeholder for an identity that has not been chosen yet.
var nameless = identity{name: "x", uuid: "00000000-0000-4000-8000-000000000000", cluster: "x"}

// places tells QEMU where to find this process's files. A file is a descriptor of this process, which QEMU opens by
// /proc because it runs as the same user. Therefore nothing of a VM has a name that could be left behind. The sockets
// have one, in a directory of the user's own, until QEMU has connected.
type places struct {
	owner   int               // PID of this process
	sockets map[string]string // path, by purpose
	files   backend.Files
}

// file returns the path of an open file.
func (p places) file(f *os.File) string {
	fd := 0
	if f != nil {
		fd = int(f.Fd())
	}
	return fmt.Sprintf("/proc/%d/fd/%d", p.owner, fd)
}

// The sockets' purposes; the name for a link is socketLink followed by its number.
const (
	socketAgent   = "agent"
	socketConsole = "console"
	socketLink    = "net"
)

// socketsFor returns the purposes of the sockets that a VM needs, in the order in which Request.Files.Links has the
// links' files.
func socketsFor(s backend.Settings) []string {
	list := []string{socketAgent, socketConsole}
	n := 0
	for _, l := range s.Links {
		for range l.Files() {
			list = append(list, fmt.Sprint(socketLink, n))
			n++
		}
	}
	return list
}

// Slots on the root bus of devices that libvirt does not know. libvirt assigns slots from 1 on.
const (
	regionSlot = 0x10
	linkSlot   = 0x12
	lastSlot   = 0x1e // 0x1f is the chipset's
)

// machine makes the domain of a VM.
func (d *driver) machine(vm plan.VM, s backend.Settings, id identity, p places) (*libvirtxml.Domain, error) {
	fail := func(err error) (*libvirtxml.Domain, error) { return nil, fmt.Errorf("VM %s: %w", vm.Name, err) }
	if s.Strict {
		return fail(fmt.Errorf("isolation=strict: a domain's process is libvirtd's"))
	}
	bare := s
	bare.Region = nil
	x, err := domain.Make(id.name, "", &vm, bare)
	if err != nil {
		return nil, err
	}
	x.UUID, x.Title = string(id.uuid), fmt.Sprintf("nearmetal: %s of cluster %s", vm.Name, id.cluster)
	x.IOThreads = 0 // there are no disks
	if x.CPUTune != nil {
		x.CPUTune.IOThreadPin = nil
	}
	// A VM is never restarted: a kernel panic ends it.
	x.OnPoweroff, x.OnReboot, x.OnCrash = "destroy", "destroy", "destroy"
	x.Devices.Emulator = d.found.emulator
	if s.Accel == host.TCG {
		x.Features.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Unit: "MiB", Size: lower.TCGCode}}
	}
	line := lower.KernelArgs{Accel: s.Accel, TSCKHz: s.TSCKHz, Passthrough: len(vm.Devices) > 0, Extra: s.KernelArgs}
	if err := line.Valid(); err != nil {
		return fail(err)
	}
	x.OS.Kernel, x.OS.Initrd, x.OS.Cmdline = p.file(p.files.Kernel), p.file(p.files.Initrd), line.String()
	if s.Accel == host.TCG && s.PVH && len(vm.Devices) == 0 && d.found.qboot != "" {
		x.OS.Loader = &libvirtxml.DomainLoader{Path: d.found.qboot, Type: "rom"}
	}
	// QEMU runs as the user, with access only to the user's files. Only the host's daemon can select a user.
	if !d.address.Session {
		x.SecLabel = append(x.SecLabel, libvirtxml.DomainSecLabel{Type: "static", Model: "dac", Relabel: "no",
			Label: labelOf()})
	}
	addPorts(x, p)
	if err := addExports(x, s.Exports, p); err != nil {
		return fail(err)
	}
	q := &commandline{}
	if s.Region != nil {
		if err := addRegion(x, q, s.Region, p); err != nil {
			return fail(err)
		}
	}
	if err := q.addLinks(s.Links, p); err != nil {
		return fail(err)
	}
	if len(q.Args) > 0 {
		x.QEMUCommandline = &q.DomainQEMUCommandline
	}
	return x, nil
}

// labelOf returns this user in the form of libvirt's DAC driver.
func labelOf() string { return fmt.Sprintf("+%d:+%d", os.Geteuid(), os.Getegid()) }

// addPorts adds the agent's port and the console, both connected to sockets on which this process listens.
func addPorts(x *libvirtxml.Domain, p places) {
	unix := func(what string) *libvirtxml.DomainChardevSource {
		return &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "connect", Path: p.sockets[what]}}
	}
	zero, one, ports := uint(0), uint(1), uint(2)
	x.Devices.Controllers = append(x.Devices.Controllers, libvirtxml.DomainController{
		Type: "virtio-serial", Index: &zero, VirtIOSerial: &libvirtxml.DomainControllerVirtIOSerial{Ports: &ports},
	})
	x.Devices.Channels = append(x.Devices.Channels, libvirtxml.DomainChannel{
		Source:  unix(socketAgent),
		Target:  &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: backend.AgentPort}},
		Address: &libvirtxml.DomainAddress{VirtioSerial: &libvirtxml.DomainAddressVirtioSerial{Controller: &zero, Bus: &zero, Port: &one}},
	})
	x.Devices.Serials = append(x.Devices.Serials, libvirtxml.DomainSerial{
		Source: unix(socketConsole),
		Target: &libvirtxml.DomainSerialTarget{Type: "isa-serial", Port: &zero},
	})
}

// addExports adds the VM's exported directories. A veiled one is a descriptor of this process, which QEMU opens once.
func addExports(x *libvirtxml.Domain, exports []backend.Export, p places) error {
	veiled := 0
	for _, e := range exports {
		if e.Kind == backend.ExportVirtiofs {
			return fmt.Errorf("export %s: by 9p only", e.Tag)
		}
		path := e.Path
		if e.Veiled {
			var f *os.File
			if veiled < len(p.files.Exports) {
				f = p.files.Exports[veiled]
			}
			path = p.file(f)
			veiled++
		}
		fs := libvirtxml.DomainFilesystem{
			// As passthrough, but a QEMU that is not root may fail to change the owner of a new file.
			AccessMode: "squash", MultiDevs: "remap",
			Source: &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Dir: path}},
			Target: &libvirtxml.DomainFilesystemTarget{Dir: e.Tag},
		}
		if e.ReadOnly {
			fs.AccessMode, fs.ReadOnly = "passthrough", &libvirtxml.DomainFilesystemReadOnly{}
		}
		x.Devices.Filesystems = append(x.Devices.Filesystems, fs)
	}
	return nil
}

// addRegion adds the region's device, a file without a name. libvirt's own shmem is always a named file in /dev/shm.
func addRegion(x *libvirtxml.Domain, q *commandline, r *plan.Region, p places) error {
	switch r.Device {
	case "devdax":
		domain.AddNVDIMM(x, p.file(p.files.Region), r.SizeBytes)
		return nil
	case "ivshmem":
	default:
		return fmt.Errorf("region: unknown device %.40q", r.Device)
	}
	mem := fmt.Sprintf("memory-backend-file,id=region,mem-path=%s,size=%dB,share=on", p.file(p.files.Region), r.SizeBytes)
	if r.HostNode >= 0 {
		mem += fmt.Sprintf(",host-nodes=%d,policy=bind", r.HostNode)
	}
	q.add("-object", mem, "-device", fmt.Sprintf("ivshmem-plain,memdev=region,bus=pcie.0,addr=%#x", regionSlot))
	return nil
}

// commandline collects QEMU arguments for which libvirt has no elements.
type commandline struct {
	libvirtxml.DomainQEMUCommandline
}

func (q *commandline) add(args ...string) {
	for _, a := range args {
		q.Args = append(q.Args, libvirtxml.DomainQEMUCommandlineArg{Value: a})
	}
}

// addLinks adds the VM's network cards. Frames pass through a socket to this process, which forwards them (see
// relay).
func (q *commandline) addLinks(links []backend.Link, p places) error {
	if len(links) > lastSlot-linkSlot+1 {
		return fmt.Errorf("%d network cards: at most %d", len(links), lastSlot-linkSlot+1)
	}
	file := 0
	for i, l := range links {
		id := fmt.Sprintf("net%d", i)
		stream := func(id string) {
			path := strings.ReplaceAll(p.sockets[fmt.Sprint(socketLink, file)], ",", ",,")
			q.add("-netdev", "stream,id="+id+",server=off,addr.type=unix,addr.path="+path)
			file++
		}
		switch {
		case l.Kind == backend.LinkStream || l.Kind == backend.LinkTap:
			stream(id)
		case l.Kind == backend.LinkUser && l.Filtered:
			stream(id)
			stream("way" + id)
		case l.Kind == backend.LinkUser:
			q.add("-netdev", fmt.Sprintf("user,id=%s,net=%s,host=%s,ipv6=off", id, backend.UserGuest.Masked(), backend.UserHost))
		default:
			return fmt.Errorf("network card %d: unknown kind %.40q", i, l.Kind)
		}
		// romfile=: no VM boots from the network, and the ROM may not be installed.
		nic := fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=,bus=pcie.0,addr=%#x", id, l.MAC, linkSlot+i)
		if l.MTU != 0 {
			nic += fmt.Sprintf(",host_mtu=%d", l.MTU)
		}
		q.add("-device", nic)
	}
	return nil
}

// userNetworks returns the arguments of netdev_add that join a filtered user network to its card's filter, by a hub.
// They are added when the machine exists (see link in package qemu).
func userNetworks(links []backend.Link) []map[string]any {
	var list []map[string]any
	for i, l := range links {
		if l.Kind != backend.LinkUser || !l.Filtered {
			continue
		}
		id := fmt.Sprintf("net%d", i)
		list = append(list, map[string]any{"type": "user", "id": "user" + id, "net": backend.UserGuest.Masked().String(), "host": backend.UserHost.String(), "ipv6": false})
		for _, of := range []string{"user" + id, "way" + id} {
			list = append(list, map[string]any{"type": "hubport", "id": "hub" + of, "hubid": i, "netdev": of})
		}
	}
	return list
}

// taps reports for each of Request.Files.Links whether it is a tap.
func taps(links []backend.Link) []bool {
	var list []bool
	for _, l := range links {
		for range l.Files() {
			list = append(list, l.Kind == backend.LinkTap)
		}
	}
	return list
}
