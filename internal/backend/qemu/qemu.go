// Package qemu carries a plan out with QEMU processes: it probes what the
// installed QEMU can do, renders a VM of a plan as a command line made of typed
// devices, starts it as a child that dies with its parent, and talks QMP to it.
package qemu

import (
	"context"
	"os"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// AgentPort is the name of the virtio-serial port that leads to the guest agent (/dev/virtio-ports/AgentPort).
const AgentPort = "org.nearmetal.agent"

// Find gives the path of the QEMU program: want (a path or a name), or where it is empty the
// first of qemu-system-x86_64 in PATH and /usr/libexec/qemu-kvm. Its error names the package to install.
func Find(want string) (string, error) { return "", nil }

// Caps is what an installed QEMU can do.
type Caps struct {
	Path string `json:"path"`
}

// Probe asks the QEMU program at path what it can do. The answer is cached by the file's path, size and time of change.
// It fails for a QEMU older than 7.2, which is the oldest that nearmetal uses.
func Probe(ctx context.Context, path string) (Caps, error) { return Caps{}, nil }

// Export is a directory of the host shown to a VM by 9p.
type Export struct {
	Tag      string // mount tag, at most 31 bytes of letters, digits, - and _
	Path     string // absolute
	ReadOnly bool
}

// LinkKind is how a network card of a VM is joined to the outside.
type LinkKind string

const (
	LinkStream LinkKind = "stream" // frames over a connected stream socket (QEMU's 4-byte length, then the frame); needs a file
	LinkTap    LinkKind = "tap"    // an open tap device; needs a file
	LinkUser   LinkKind = "user"   // QEMU's user network (slirp): guest 10.0.2.15/24, host 10.0.2.2
)

// Link is one network card of a VM (virtio-net). Cards appear to the guest in the order of Settings.Links: eth0, eth1, …
type Link struct {
	Kind LinkKind
	MAC  string // 52:54:00:…, unicast
	MTU  int    // bytes offered to the guest; 0: the default, 1500
}

// Settings is what a plan does not say of a VM.
type Settings struct {
	Accel      host.Accel
	TSCKHz     int      // the host's TSC rate, given to the guest kernel under TCG; 0: not known
	PVH        bool     // Files.Kernel is an ELF image with a PVH entry
	KernelArgs []string // added at the end of the kernel command line
	Exports    []Export
	Links      []Link
	Region     *plan.Region // nil: none
	Workdir    string
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

// Machine is a VM's QEMU command line.
type Machine struct {
	Name string
}

// Build renders a VM of a plan. It reads nothing of the host.
// Errors say which part of the plan or the settings cannot be rendered, or what this QEMU lacks.
func Build(vm plan.VM, s Settings, caps Caps) (*Machine, error) { return nil, nil }

// Args is the command line, the program first.
func (m *Machine) Args() []string { return nil }

// Options of Start.
type Options struct {
	ConsoleLog string // file that gets the console's output, at most ConsoleLogMax bytes of it; empty: none
}

// VM is a running QEMU process.
type VM struct{}

// Start runs m as a child that is killed when this process dies, and waits until QEMU answers on QMP
// (the VM runs by then). When QEMU refuses, the error is its own complaint in one line.
func Start(ctx context.Context, m *Machine, f Files, o Options) (*VM, error) { return nil, nil }

// PID of the QEMU process.
func (v *VM) PID() int { return 0 }

// Done is closed when the process has ended and is reaped.
func (v *VM) Done() <-chan struct{} { return nil }

// Err is nil while the VM runs and when it powered off or was ended by Kill or Quit; else it says what ended it.
func (v *VM) Err() error { return nil }

// Kill ends the process at once and waits until it is reaped.
func (v *VM) Kill() {}

// Quit asks QEMU to end, and kills it when ctx is done first. It waits until the process is reaped.
func (v *VM) Quit(ctx context.Context) error { return nil }

// QMP is the VM's monitor.
func (v *VM) QMP() *QMP { return nil }

// Pin puts the threads of the vCPUs and the emulator where the plan says.
func (v *VM) Pin(ctx context.Context, vm plan.VM) error { return nil }

// LastLines are the last n lines of the console, control characters made harmless.
func (v *VM) LastLines(n int) []string { return nil }

// QMP is a connection to a QEMU monitor.
type QMP struct{}

// Memory is what a QEMU process holds of the host's memory, in bytes.
type Memory struct {
	GuestBytes uint64 // of the guest's RAM, touched
	RestBytes  uint64 // QEMU's own: code, heap, translated code
}

// MemoryUse reads it from /proc/PID/smaps. ramBytes are the sizes of the guest's memory backends (one: all its memory).
func MemoryUse(pid int, ramBytes []uint64) (Memory, error) { return Memory{}, nil }

// BareArgs is the shortest fast QEMU line under TCG (no channel, no exports, no network): what `make bench-boot` compares with.
func BareArgs(qemu, vmlinux, initrd, serialFile string, memoryMiB, tscKHz int) []string { return nil }
