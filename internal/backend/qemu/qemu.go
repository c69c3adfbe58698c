// Package qemu carries a plan out with QEMU processes: it probes what the
// installed QEMU can do, renders a VM of a plan as a command line made of typed
// devices, starts it as a child that dies with its parent, and talks QMP to it.
package qemu

import (
	"os"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// AgentPort is the name of the virtio-serial port that leads to the guest agent (/dev/virtio-ports/AgentPort).
const AgentPort = "org.nearmetal.agent"

// Export is a directory of the host shown to a VM by 9p.
type Export struct {
	Tag      string // mount tag, at most 31 bytes: letters, digits, - . _, a letter first
	Path     string // absolute and clean
	ReadOnly bool
}

// LinkKind is how a network card of a VM is joined to the outside.
type LinkKind string

const (
	LinkStream LinkKind = "stream" // frames over a connected stream socket (4 bytes of length, big-endian, then the frame); needs a file
	LinkTap    LinkKind = "tap"    // an open tap device; needs a file
	LinkUser   LinkKind = "user"   // QEMU's user network (slirp): guest 10.0.2.15/24, host 10.0.2.2
)

// Link is one network card of a VM (virtio-net). Cards appear to the guest in the order of Settings.Links: eth0, eth1, …
type Link struct {
	Kind LinkKind
	MAC  string // 52:54:00:…, unicast
	MTU  int    // bytes offered to the guest, 1280 to 65521; 0: the default, 1500
}

// Settings is what a plan does not say of a VM.
type Settings struct {
	Accel      host.Accel
	TSCKHz     int      // the host's TSC rate, told to the guest's kernel under TCG; 0: not known
	PVH        bool     // Files.Kernel is an ELF image with a PVH entry
	KernelArgs []string // added at the end of the kernel's command line
	Exports    []Export
	Links      []Link
	Region     *plan.Region // nil: none
}

// Files are the open files that QEMU inherits. Start leaves them open: after it the
// caller closes its copies of socket ends, or it will never see an end of file on its own ends.
type Files struct {
	Kernel  *os.File   // image.Image.KernelFile
	Initrd  *os.File   // image.Image.WithConfig
	Channel *os.File   // QEMU's end of a stream socket pair: the agent's virtio-serial port
	Region  *os.File   // the region's memory; nil without one
	Links   []*os.File // one for each of Settings.Links that needs a file, in their order
}
