// Package backend is the seam between the life of a cluster and what runs its VMs.
//
// A Driver starts the VMs of a plan in one place: QEMU processes of this host, domains of a
// libvirtd, virtual machines of a vCenter, servers of a cloud. Package cluster knows this
// package only; no package but the commands names a driver (see Register and Open).
//
// # The calls, in their order
//
// Open makes a driver without touching anything. Then package cluster calls:
//
//	Probe        once: what can this driver do here? It may log in and ask.
//	Hosts        once, if the driver has it (Locator): the machines that a plan may use.
//	Fit          once, in this package: the cluster file against Probe's Caps. The one place where
//	             a missing capability becomes an error.
//	Prepare      once, if the driver has it (Preparer): what all VMs need together, after the plan.
//	Network      once, if it has a network of its own (Networker).
//	Check        for each VM, before any is started. Pure.
//	Start        for each VM, side by side.
//	Instance     …: each VM's life.
//	Close        once, in the end.
//
// A process that finds the journal of a dead owner calls Open, Attach and Kill only.
//
// # Owner, journal and recovery
//
// Nothing may be left behind, by kill -9 of the owner at any moment. There are two ways, and
// Caps.DiesWithOwner says which one a driver takes:
//
//   - The kernel ends the VMs with their owner (QEMU: PDEATHSIG of a thread that lives as long as
//     the owner). The journal is then the second line.
//   - The VMs survive their owner (libvirt after a restart of its daemon, vSphere, OpenStack). The
//     journal is the only line: a driver calls Request.Record with a Ref before the thing exists
//     that the Ref leads to, where it can choose the identity (a domain's UUID, a VM's name and
//     tag, a server's metadata); else at once when it learns it, and it leaves no window that a
//     search by tag in Attach could not close. One start may record several Refs: a port, a disk, a
//     VM. They are undone last first.
//
// The next command that sweeps opens the driver by the Ref's name, calls Attach, and Kill on what
// Attach returns. Attach returns ErrGone for what is not there, or is no longer what the Ref meant
// (a process id or a name that others use by now): nothing of others is ever touched. A Ref holds
// no secret: it is written to a file. What Attach needs to log in comes from where Open's caller has
// it: the environment or the user's own configuration.
//
// While the journal of a dead owner is not undone, its VMs count as running: their CPUs, memory and
// devices are not planned again.
//
// # The agent's carrier
//
// Everything that happens inside a VM goes through the guest's agent and one stream of bytes.
// Instance.Agent returns it: a virtio-serial port (QEMU: a socket pair; libvirt: a socket in a
// directory that only the owner can enter), or a TCP, TLS or ssh connection where the VM is elsewhere
// (vSphere, OpenStack). The stream must be private to the owner and authenticated by the driver;
// package cluster trusts its bytes no further than any guest's. Keys for it travel by the driver's
// own means (a config drive), never on a command line or in a console. When the owner's end closes,
// the agent powers its VM off.
package backend

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"time"

	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Driver carries plans out in one place. Its methods may be called from several goroutines.
// Contexts bound the call only: what Start has started lives on.
type Driver interface {
	// Probe finds out what can be done here for a cluster file: programs, rights, versions. It
	// changes nothing. An *AccelError says that the file's accel cannot be had.
	Probe(ctx context.Context, s *spec.Cluster) (*Probed, error)
	// Check fails for a VM that cannot be carried out as planned, with the part of plan or settings
	// that is at fault. It is pure: it knows what Probe returned, and reads and changes nothing.
	Check(vm plan.VM, s Settings) error
	// Start starts a VM. When it returns an error, nothing of the VM is left. See Request.
	Start(ctx context.Context, r Request) (Instance, error)
	// Attach finds again what a Ref of Start leads to, in any process, without Probe. The instance
	// serves to end it: Kill, Done and Err work, the rest need not. ErrGone: there is none.
	Attach(ctx context.Context, r Ref) (Instance, error)
	// Close ends the driver's sessions, and no VM.
	Close() error
}

// Instance is a VM that has been started. Its methods may be called from several goroutines.
type Instance interface {
	// Ref leads to the VM from another process. It is the one that Start recorded last.
	Ref() Ref
	// PID is the process on this host that is the VM; 0: there is none.
	PID() int
	// Agent returns the owner's end of the agent's carrier, connected; it waits for a VM that must
	// come up before it can be reached. It is called once, and the caller closes what it returns.
	Agent(ctx context.Context) (io.ReadWriteCloser, error)
	// Pause makes the VM's time stand still; Resume lets it go on. A second call does nothing.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Kill ends the VM at once, without its help, removes what Start made for it, and returns when
	// it is gone, so that Done is closed; nil too for a VM that has ended. An error says that the VM
	// may still run: the caller tries again, or leaves it to the journal.
	Kill(ctx context.Context) error
	// Done is closed when the VM has ended, however that came.
	Done() <-chan struct{}
	// Err is valid when Done is closed. It is nil for a VM that powered off or was ended by Kill;
	// else one line that says what ended it.
	Err() error
	// Console returns the last n lines of the VM's console, control characters made harmless; none
	// where the driver has no console.
	Console(n int) []string
}

// Preparer is a Driver that has to do something once for all VMs, when the plan is made and before
// the first VM is started: check limits and quotas, make networks and groups. What it makes it
// records, as Start does. When it fails nothing is left of it but what is recorded.
type Preparer interface {
	Prepare(ctx context.Context, p *plan.Plan, record func(Ref) error) error
}

// Networker is a Driver whose VMs are joined by a network of its own (LinkOwn): a port group, a tenant's
// network. Network makes or finds it, and returns for each VM the card that it will have, before any
// VM is started: guests get each other's addresses at their start. What it makes it records.
type Networker interface {
	Network(ctx context.Context, vms []string, n spec.Network, record func(Ref) error) ([]Card, error)
}

// Late is an Instance of a Networker whose cards have no Address: it is known only when the VM runs (DHCP). Address waits for it.
// Configure replaces Request.Config, which is empty then, before Agent is called. Either all of a cluster's VMs are so, or none.
type Late interface {
	Address(ctx context.Context) (netip.Prefix, error)
	Configure(config []byte)
}

// Locator is a Driver whose VMs do not run on this host (Caps.Remote): the machines that plans are
// made for.
type Locator interface {
	Hosts(ctx context.Context) ([]topology.Host, error)
}

// Sweeper is a Driver that can end what many Refs lead to side by side. Sweep is called before the Refs are undone one by one, with
// the driver open until that is done; what it cannot end it leaves to that.
type Sweeper interface {
	Sweep(ctx context.Context, refs []Ref)
}

// SweepTimeout bounds a Sweep.
const SweepTimeout = 10 * time.Minute

// Inspector is an Instance that can be read back for `nearmetal verify`. Inspect changes nothing;
// what cannot be read is in Facts.Unread. region is the plan's, nil for none.
type Inspector interface {
	Inspect(ctx context.Context, vm *plan.VM, region *plan.Region) *Facts
}

// Promiser is an Instance whose region is promised by its backend and is not in the plan: only its guest can say whether
// it is there. Promised returns its size in bytes, 0 for none, and where to look if it is missing.
type Promiser interface {
	Promised() (region uint64, look string)
}

// Adviser is a Driver that cannot carry every plan out as well as its own hosts could: Advise says
// what of a plan is lost or slow, a line each. It is pure: it knows what the cluster file and the plan say only.
type Adviser interface {
	Advise(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) []string
}

// Planner is a Driver whose capabilities are the same wherever it is. Plans are matched with them (Fit) without Probe:
// for hosts that are described, by somebody who cannot log in there.
type Planner interface {
	Plans() *Probed
}

// Translator is a Driver that carries a plan out in other terms than the plan's. Translate says in which, and fails for a
// plan that it would have to refuse. It is pure.
type Translator interface {
	Translate(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) (Translation, error)
}

// Translation is a plan in a backend's own terms, for people and for programs.
type Translation interface {
	Text() string
	JSON(w io.Writer) error
}

// Renderer is a Driver that can show what it would ask for, without a cluster: command lines, XML,
// API requests. What only a running cluster has (exports, links) is left out.
type Renderer interface {
	Render(w io.Writer, vms []plan.VM, s Settings) error
}

// Versioner is a Driver that can say in a word or two which hypervisor it finds, for `nearmetal
// version`.
type Versioner interface {
	Version(ctx context.Context) (string, error)
}

// Probed is what Probe finds out.
type Probed struct {
	Caps Caps
	// Accel is how instructions run: never "auto".
	Accel host.Accel
	// TSCKHz is the host's TSC rate, in kHz, where guests get it; 0: they do not.
	TSCKHz int
	// SlowStrings: copies by string instructions are slow here (host.SlowStrings), and guests are not to make any.
	SlowStrings bool
	// RegionDevice is what shows a region best here, where the cluster file says auto.
	RegionDevice string
	// MaxInodes is how many files of an export by virtiofs a VM may know at a time, each with an open descriptor
	// of the process that serves it; 0: any number.
	MaxInodes uint64
	// Notice is a line that the user should read; "": none.
	Notice string
}

// Request is what Start gets.
type Request struct {
	Cluster  string // its name; "": none
	VM       plan.VM
	Settings Settings
	Files    Files
	// Config is the text that the guest's agent reads at its start. A driver with Caps.DirectKernel
	// finds it in Files.Initrd already; others hand it over in their own way (a config drive).
	Config []byte
	// ConsoleLog is the file that gets the console's output as it comes, made with mode 0600 and
	// bounded in size by the driver; "": none.
	ConsoleLog string
	// Record writes a Ref into the cluster's journal and syncs it. When it fails, Start undoes what
	// it did and returns the error. Never nil.
	Record func(Ref) error
}

// Ref leads to something that Start or Prepare made, from any process of this user. It is kept in a
// journal: strings only, no secrets.
type Ref struct {
	Driver string            // as Open takes it
	What   string            // in words, for people: "QEMU of vm0 (process 4711)"
	ID     map[string]string // the driver's own: a process and its start time, a UUID, a managed object id
}

// ErrGone is Attach's error for what is not there any more.
var ErrGone = errors.New("the VM no longer exists")

// ErrReset is Instance.Err of a VM that reset itself: that is how a kernel's panic ends, for a VM is never started again.
var ErrReset = errors.New("the VM reset itself: its kernel panicked, or something in it called for a reboot")

// AccelError says that the accel that a cluster file asks for cannot be had.
type AccelError struct{ Err error }

func (e *AccelError) Error() string { return e.Err.Error() }

func (e *AccelError) Unwrap() error { return e.Err }

// ErrKilled is of a Probe whose program a signal ended: it proves nothing about what can be done here.
var ErrKilled = errors.New("was killed while its capabilities were read")

// AttachTimeout bounds the end of one VM in a sweep: its Attach and Kill.
const AttachTimeout = time.Minute

// Files are the open files that Start hands to a VM. Start leaves them open: after it the
// caller closes its copies of socket ends, or it will never see an end of file on its own ends.
type Files struct {
	Kernel *os.File   // image.Image.KernelFile; nil without Caps.DirectKernel
	Initrd *os.File   // image.Image.WithConfig; nil without Caps.DirectKernel
	Region *os.File   // the region's memory; nil without one
	Links  []*os.File // as many for each of Settings.Links as it needs (Link.Files), in their order
	// Exports are directories (O_PATH), one for each of Settings.Exports that is veiled, in their order.
	// Veil keeps their covers in place: the VM's process holds it for as long as it runs. Those by virtiofs are
	// trees that are mounted nowhere (isolate.Veil.Tree), made for this start.
	Exports []*os.File
	Veil    *os.File // nil where nothing is veiled
	// Cgroup is the directory of the cgroup (v2) that the VM's processes are born in; nil: the caller's.
	Cgroup *os.File
}
