package backend

import (
	"fmt"
	"slices"
	"strings"

	"nearmetal/internal/spec"
)

// Caps lists a driver's capabilities for a cluster, as found by Probe.
type Caps struct {
	// Links are the kinds of network cards that it can connect: LinkStream and LinkTap between the VMs, or LinkOwn if
	// the driver connects them itself (it is then a Networker); LinkUser for the user network, by which a VM reaches
	// this host.
	Links []LinkKind
	// Exports are the kinds by which directories of this host can be made visible to VMs (Settings.Exports), the best
	// first. root: host and shares need one. Empty: not supported.
	Exports []ExportKind
	// OwnDisk: VMs can boot from a disk of the backend's own (root: backend), with the disk's kernel and agent. Such
	// a VM gets no Files.Kernel and no Files.Initrd.
	OwnDisk bool
	// Regions are the devices that can present a region: "ivshmem", "devdax"; empty: no region.
	Regions []string
	// VFIO: functions of the host passed through.
	VFIO bool
	// Dynamic: functions by their vendor and device IDs, which the backend chooses when a VM starts.
	Dynamic bool
	// Pins: vCPUs on chosen CPUs of the host.
	Pins bool
	// Cores: vCPUs on cores of their own, which the backend chooses. Plans then have pins, as with Pins; pin: always
	// requires the chosen CPUs and is rejected.
	Cores bool
	// DirectKernel: a VM boots from a kernel and an initramfs of the owner (Files).
	DirectKernel bool
	// Veil: exports by an open directory (Export.Veiled). Filter: a user network behind a filter of the owner
	// (Link.Filtered). Sandbox: the system calls of VMs' processes are filtered.
	Veil, Filter, Sandbox bool
	// Jail: VMs' processes in namespaces of their own (Settings.Strict).
	Jail bool
	// DiesWithOwner: the VMs end with the process that called Start, however it ends. If not set, only the journal
	// ends them.
	DiesWithOwner bool
	// Remote: the VMs do not run on this host. Its memory, limits and devices do not count, and the driver is a
	// Locator.
	Remote bool
	// Why explains, for missing capabilities, the cause and the remedy, as a sentence without a full stop;
	// optional.
	Why map[Cap]string
}

// Cap names a capability, in the words of an error: "backend X cannot …".
type Cap string

// The capabilities that a cluster file can need.
const (
	CapUserNetwork  Cap = "join VMs to this host's network"
	CapStream       Cap = "join VMs by links between them"
	CapTap          Cap = "join VMs to a bridge"
	CapHostFiles    Cap = "show files of this host to VMs"
	Cap9p           Cap = "show files of this host by 9p"
	CapVirtiofs     Cap = "show files of this host by virtiofs"
	CapOwnDisk      Cap = "start VMs from a disk of its own"
	CapRegion       Cap = "share memory between VMs"
	CapIvshmem      Cap = "show the region as an ivshmem device"
	CapDevdax       Cap = "show the region as a devdax device"
	CapVFIO         Cap = "pass devices of the host through"
	CapDynamic      Cap = "choose a function of the host when a VM starts"
	CapPins         Cap = "put vCPUs on chosen CPUs"
	CapDirectKernel Cap = "start a kernel of this host's"
	CapVeil         Cap = "cover the host's own files in what VMs see"
	CapFilter       Cap = "keep VMs from the host's loopback"
	CapSandbox      Cap = "filter the system calls of VMs' processes"
	CapJail         Cap = "put VMs' processes into namespaces of their own"
)

// has reports whether the driver has a capability.
func (c Caps) has(want Cap) bool {
	switch want {
	case CapUserNetwork:
		return slices.Contains(c.Links, LinkUser)
	case CapStream:
		return slices.Contains(c.Links, LinkStream)
	case CapTap:
		return slices.Contains(c.Links, LinkTap)
	case CapHostFiles:
		return len(c.Exports) > 0
	case Cap9p:
		return slices.Contains(c.Exports, Export9p)
	case CapVirtiofs:
		return slices.Contains(c.Exports, ExportVirtiofs)
	case CapOwnDisk:
		return c.OwnDisk
	case CapRegion:
		return len(c.Regions) > 0
	case CapIvshmem:
		return slices.Contains(c.Regions, "ivshmem")
	case CapDevdax:
		return slices.Contains(c.Regions, "devdax")
	case CapVFIO:
		return c.VFIO
	case CapDynamic:
		return c.Dynamic
	case CapPins:
		return c.Pins
	case CapDirectKernel:
		return c.DirectKernel
	case CapVeil:
		return c.Veil
	case CapFilter:
		return c.Filter
	case CapSandbox:
		return c.Sandbox
	case CapJail:
		return c.Jail
	}
	return false
}

// why returns the driver's explanation for a capability that it lacks. If VMs cannot have files of this host but can
// boot from a disk, the explanation suggests that.
func (c Caps) why(what Cap) string {
	if text := c.Why[what]; text != "" || what != CapHostFiles || !c.OwnDisk {
		return text
	}
	return "write root: backend, and no shares"
}

// LackError reports a capability that a cluster file requires and a backend lacks.
type LackError struct {
	Driver string
	Cap    Cap
	For    string // setting of the file that requires it: "root: host"
	Why    string // the driver's explanation; "": none
}

func (e *LackError) Error() string {
	s := fmt.Sprintf("backend %s cannot %s, which %s needs", e.Driver, e.Cap, e.For)
	if e.Why != "" {
		s += ": " + e.Why
	}
	return s
}

// Lacks are the LackErrors of one cluster file, as one line.
type Lacks []*LackError

func (l Lacks) Error() string {
	var words []string
	for _, e := range l {
		words = append(words, e.Error())
	}
	return strings.Join(words, "; ")
}

// Fit matches a cluster file with the driver's capabilities. No other code does so. Missing capabilities that the
// file requires are an error of type Lacks. Fit settles in s the values that the file leaves open (auto): the accel,
// the region and its device, pins, the uplink. s has its defaults filled in.
func Fit(s *spec.Cluster, p *Probed) error {
	driver := Scheme(s.Backend)
	var lacks Lacks
	need := func(what Cap, why string) {
		if !p.Caps.has(what) {
			lacks = append(lacks, &LackError{driver, what, why, p.Caps.why(what)})
		}
	}
	fitFiles(s, p.Caps, need)
	fitNetwork(s, p.Caps, need)
	fitRegion(s, p, need)
	fitPlacement(s, p.Caps, need)
	fitIsolation(s, need)
	// The plan's use of CPUs depends on it: pinning is meaningful under KVM only.
	s.Accel = string(p.Accel)
	if len(lacks) > 0 {
		return lacks
	}
	return nil
}

// fitFiles matches the VMs' boot source and their view of this host's files.
func fitFiles(s *spec.Cluster, c Caps, need func(Cap, string)) {
	if s.Root == spec.RootBackend {
		need(CapOwnDisk, "root: backend")
	} else {
		need(CapHostFiles, "root: "+s.Root)
	}
	if len(s.Shares) > 0 {
		need(CapHostFiles, "shares")
	}
	if (s.Root != spec.RootBackend || len(s.Shares) > 0) && c.has(CapHostFiles) {
		fitExports(s, c, need)
	}
	switch {
	case s.Kernel != "":
		need(CapDirectKernel, "kernel: "+s.Kernel)
	case len(s.KernelArgs) > 0:
		need(CapDirectKernel, "kernelArgs")
	}
}

// fitExports chooses the kind by which the VMs access files of this host, if they do.
func fitExports(s *spec.Cluster, c Caps, need func(Cap, string)) {
	switch s.Files {
	case string(Export9p):
		need(Cap9p, "files: 9p")
	case string(ExportVirtiofs):
		need(CapVirtiofs, "files: virtiofs")
	default:
		for _, kind := range c.Exports {
			s.Files = string(kind)
			break
		}
	}
}

// fitNetwork matches the VMs' cards.
func fitNetwork(s *spec.Cluster, c Caps, need func(Cap, string)) {
	several := count(s) > 1
	switch s.Network.Type {
	case "none":
	case "bridge":
		need(CapTap, "network: bridge")
	default:
		if several && !slices.Contains(c.Links, LinkOwn) {
			need(CapStream, "network: "+s.Network.Type)
		}
	}
	switch {
	case s.Network.Uplink == "user":
		need(CapUserNetwork, "network: {uplink: user}")
	case s.Network.Uplink == "auto" && c.has(CapUserNetwork):
		s.Network.Uplink = "user"
	case s.Network.Uplink == "auto":
		s.Network.Uplink = "none"
	}
}

// fitRegion matches the region. If regions are not available, one that the file does not require is dropped.
func fitRegion(s *spec.Cluster, p *Probed, need func(Cap, string)) {
	r := &s.Region
	wanted := r.Size != nil && *r.Size > 0
	if r.Size != nil && *r.Size == 0 {
		return
	}
	if !p.Caps.has(CapRegion) {
		if wanted {
			need(CapRegion, "region: "+r.Size.String())
		} else {
			r.Size = new(spec.Size)
		}
		return
	}
	switch r.Device {
	case "ivshmem":
		need(CapIvshmem, "region: {device: ivshmem}")
	case "devdax":
		need(CapDevdax, "region: {device: devdax}")
	default:
		r.Device = p.RegionDevice
	}
}

// fitPlacement matches the host resources that VMs use.
func fitPlacement(s *spec.Cluster, c Caps, need func(Cap, string)) {
	for i := range s.VMs {
		if len(s.VMs[i].Devices) > 0 {
			need(CapVFIO, "devices of "+s.VMs[i].Name)
			break
		}
	}
	for i := range s.VMs {
		if slices.ContainsFunc(s.VMs[i].Devices, func(d spec.Device) bool { return d.Dynamic }) {
			need(CapDynamic, "dynamic: true of "+s.VMs[i].Name)
			break
		}
	}
	if s.Placement.Pin == "always" {
		need(CapPins, "placement: {pin: always}")
	} else if !c.has(CapPins) && !c.Cores {
		s.Placement.Pin = "never"
	}
}

// fitIsolation matches the isolation of the VMs.
func fitIsolation(s *spec.Cluster, need func(Cap, string)) {
	if s.Isolation == "" || s.Isolation == "auto" {
		return
	}
	why := "isolation: " + s.Isolation
	if s.Root != spec.RootBackend || len(s.Shares) > 0 {
		need(CapVeil, why)
	}
	need(CapSandbox, why)
	if s.Network.Uplink == "user" {
		need(CapFilter, why)
	}
	if s.Isolation == "strict" {
		need(CapJail, why)
	}
}

// count returns the number of VMs of a cluster file.
func count(s *spec.Cluster) int {
	n := 0
	for i := range s.VMs {
		n += max(s.VMs[i].Count, 1)
	}
	return n
}
