package backend

import (
	"net/netip"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// AgentPort is the name of the virtio-serial port connected to the guest's agent, if that is its carrier
// (/dev/virtio-ports/AgentPort).
const AgentPort = "org.nearmetal.agent"

// Settings are the properties of a VM that a plan does not state.
type Settings struct {
	Accel      host.Accel
	TSCKHz     int      // the host's TSC rate, for the guest's kernel under TCG; 0: not known
	PVH        bool     // Files.Kernel is an ELF image with a PVH entry
	KernelArgs []string // added at the end of the kernel's command line
	// SlowStrings hides from the guest that it has fast string instructions (Probed.SlowStrings).
	SlowStrings bool
	Exports     []Export
	Links       []Link
	Region      *plan.Region // nil: none
	// Strict: the VM's process runs in a jail of its own (Caps.Jail), with only the files that it needs and Files; it
	// is an error if part of that is not available.
	Strict bool
}

// ExportKind is the way in which a VM accesses a directory of the host, in the words of the cluster file (files:).
type ExportKind string

const (
	Export9p       ExportKind = "9p"       // the VM's process serves it
	ExportVirtiofs ExportKind = "virtiofs" // a separate process serves it
)

// Cap returns the capability to export directories by this kind.
func (k ExportKind) Cap() Cap {
	if k == ExportVirtiofs {
		return CapVirtiofs
	}
	return Cap9p
}

// Export is a directory of the host that is visible in a VM.
type Export struct {
	Tag      string // mount tag, at most 31 bytes: letters, digits, - . _, a letter first
	Path     string // absolute and clean
	ReadOnly bool
	Kind     ExportKind
	// Veiled: the VM sees the directory through one of Files.Exports, in which files of the host or of other users
	// are covered.
	Veiled bool
}

// LinkKind is the way in which a network card of a VM is connected.
type LinkKind string

const (
	LinkStream LinkKind = "stream" // frames over a connected stream socket (4 bytes of length, big-endian, then the frame); needs a file
	LinkTap    LinkKind = "tap"    // an open tap device; needs a file
	LinkOwn    LinkKind = "own"    // a network of the driver (Networker)
	LinkUser   LinkKind = "user"   // the host's own network, by a NAT of the driver: guest UserGuest, host UserHost
)

// Link is one network card of a VM (virtio-net). Cards appear to the guest in the order of Settings.Links: eth0, eth1, …
type Link struct {
	Kind LinkKind
	MAC  string // 52:54:00:…, unicast
	MTU  int    // bytes offered to the guest, 1280 to 65521; 0: the default, 1500
	// Filtered, for LinkUser: the card and the user network are connected by two of Files.Links, the card's first,
	// with a filter of the owner between them.
	Filtered bool
}

// Card is a VM's card on a network of the driver.
type Card struct {
	MAC     string       // unicast
	Address netip.Prefix // IPv4, with the length of its subnet; not valid: see Late
	Gateway netip.Addr   // the zero Addr: none
	MTU     int          // bytes; 0: 1500
}

// Files returns how many of Files.Links the link needs.
func (l Link) Files() int {
	switch {
	case l.Kind == LinkStream || l.Kind == LinkTap:
		return 1
	case l.Kind == LinkUser && l.Filtered:
		return 2
	}
	return 0
}

// The addresses on a link of LinkUser, the same in every VM (those of QEMU's slirp and compatible programs): VMs do
// not see one another there; each sees the host.
var (
	UserGuest = netip.MustParsePrefix("10.0.2.15/24")
	UserHost  = netip.MustParseAddr("10.0.2.2")
)
