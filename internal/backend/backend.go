// Package backend is the interface between the life of a cluster and the systems that run its VMs.
//
// A Driver starts the VMs of a plan in one place: QEMU processes of this host, domains of a libvirtd, virtual machines
// of a vCenter, servers of a cloud. Package cluster uses only this package; no package except the commands names a
// driver (see Register and Open).
//
// # The order of calls
//
// Open makes a driver without accessing anything. Then package cluster calls:
//
//	Probe        once: detects the driver's capabilities here. It may log in and send queries.
//	Hosts        once, if the driver has it (Locator): the machines that a plan may use.
//	Fit          once, in this package: compares the cluster file with Probe's Caps. Only here
//	             a missing capability becomes an error.
//	Prepare      once, if the driver has it (Preparer): the common needs of all VMs, after the plan.
//	Network      once, if the driver has a network of its own (Networker).
//	Check        for each VM, before any is started. Pure.
//	Start        for each VM, concurrently.
//	Instance     …: the life of each VM.
//	Close        once, at the end.
//
// A process that finds the journal of a dead owner calls only Open, Attach and Kill.
//
// # Owner, journal and recovery
//
// Nothing may be left behind if kill -9 ends the owner at any moment. There are two ways, and Caps.DiesWithOwner
// states which one a driver uses:
//
//   - The kernel ends the VMs with their owner (QEMU: PDEATHSIG of a thread that lives as long as the owner). The
//     journal is then the second line of defence.
//   - The VMs survive their owner (libvirt after a restart of its daemon, vSphere, OpenStack). The journal is then the
//     only line. If the driver can choose the identity of an object (a domain's UUID, a VM's name and tag, a server's
//     metadata), it calls Request.Record with a Ref before the object exists. Otherwise it does so as soon as it
//     learns the identity, and leaves no window that a search by tag in Attach could not close. One start may record
//     several Refs: a port, a disk, a VM. They are undone last first.
//
// The next command that sweeps opens the driver by the Ref's name, calls Attach, and Kill on Attach's result. Attach
// returns ErrGone for an object that does not exist, or is another than the one that the Ref meant (a process ID or a name
// that has been reused): objects of others are never changed. A Ref contains no secret, because it is written to a
// file. Attach gets the credentials from the same sources as Open's caller: the environment or the user's own
// configuration.
//
// While the journal of a dead owner is not undone, its VMs count as running: their CPUs, memory and devices are not
// planned again.
//
// # The agent's carrier
//
// All operations inside a VM use the guest's agent and one stream of bytes, which Instance.Agent returns: a
// virtio-serial port (QEMU: a socket pair; libvirt: a socket in a directory that only the owner can enter), or a TCP,
// TLS or ssh connection if the VM is on another machine (vSphere, OpenStack). The stream must be private to the owner
// and authenticated by the driver; package cluster trusts its bytes no more than any guest's. Its keys are passed by
// the driver's own means (a config drive), never on a command line or in a console. When the owner's end closes, the
// agent powers its VM off.
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

// Driver carries out plans in one place. Its methods may be called from several goroutines. A context bounds the call
// only; VMs that Start has started keep running.
type Driver interface {
	// Probe detects the capabilities for a cluster file: programs, rights, versions. It changes nothing. An
	// *AccelError reports that the file's accel is not available.
	Probe(ctx context.Context, s *spec.Cluster) (*Probed, error)
	// Check returns an error for a VM that cannot be carried out as planned, and names the part of the plan or
	// settings at fault. It is pure: it uses what Probe returned, and reads and changes nothing.
	Check(vm plan.VM, s Settings) error
	// Start starts a VM. If it fails, nothing of the VM is left. See Request.
	Start(ctx context.Context, r Request) (Instance, error)
	// Attach finds what a Ref of Start refers to, in any process, without Probe. The instance serves to end it: Kill,
	// Done and Err work, the other methods need not. It returns ErrGone if the VM does not exist.
	Attach(ctx context.Context, r Ref) (Instance, error)
	// Close ends the driver's sessions, but no VM.
	Close() error
}

// Instance is a VM that has been started. Its methods may be called from several goroutines.
type Instance interface {
	// Ref refers to the VM from another process. It is the last Ref that Start recorded.
	Ref() Ref
	// PID is the process ID of the VM on this host; 0: no process on this host.
	PID() int
	// Agent returns the owner's end of the agent's carrier, connected. It waits for a VM that must boot before it can
	// be reached. It is called once, and the caller closes the result.
	Agent(ctx context.Context) (io.ReadWriteCloser, error)
	// Pause suspends the VM and its clock; Resume continues it. A second call has no effect.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Kill ends the VM at once, without its cooperation, removes everything that Start made for it, and returns when
	// it is gone and Done is closed; nil also for a VM that has ended. If it fails the VM may still run: the caller
	// retries, or leaves it to the journal.
	Kill(ctx context.Context) error
	// Done is closed when the VM has ended, for any reason.
	Done() <-chan struct{}
	// Err is valid when Done is closed. It is nil for a VM that powered off or was ended by Kill, else one line with
	// the cause.
	Err() error
	// Console returns the last n lines of the VM's console, control characters made harmless; none if the driver has
	// no console.
	Console(n int) []string
}

// Preparer is a Driver that prepares something once for all VMs, after the plan and before the first VM is started:
// it checks limits and quotas, and makes networks and groups. Like Start, it records what it makes. If it fails, only
// what it has recorded remains.
type Preparer interface {
	Prepare(ctx context.Context, p *plan.Plan, record func(Ref) error) error
}

// Networker is a Driver whose VMs are joined by a network of its own (LinkOwn): a port group, a tenant's network.
// Network makes or finds it, and returns each VM's future card before any VM is started, because guests get each
// other's addresses at their start. Network records what it makes.
type Networker interface {
	Network(ctx context.Context, vms []string, n spec.Network, record func(Ref) error) ([]Card, error)
}

// Late is an Instance of a Networker whose cards have no Address, because it is known only when the VM runs (DHCP).
// Address waits for it. Configure replaces Request.Config, which is then empty, before Agent is called. Either all
// VMs of a cluster are Late, or none.
type Late interface {
	Address(ctx context.Context) (netip.Prefix, error)
	Configure(config []byte)
}

// Locator is a Driver whose VMs do not run on this host (Caps.Remote). Hosts returns the machines for which plans are
// made.
type Locator interface {
	Hosts(ctx context.Context) ([]topology.Host, error)
}

// Sweeper is a Driver that can end many Refs concurrently. Sweep is called before the Refs are undone one by one, and
// the driver stays open until then; Refs that Sweep cannot end are undone there.
type Sweeper interface {
	Sweep(ctx context.Context, refs []Ref)
}

// SweepTimeout bounds a Sweep.
const SweepTimeout = 10 * time.Minute

// Inspector is an Instance whose settings `nearmetal verify` can read back. Inspect changes nothing; parts that
// cannot be read are in Facts.Unread. region is the plan's, nil for none.
type Inspector interface {
	Inspect(ctx context.Context, vm *plan.VM, region *plan.Region) *Facts
}

// Promiser is an Instance whose region is promised by its backend and is not in the plan: only its guest can detect
// it. Promised returns its size in bytes, 0 for none, and where to look if it is missing.
type Promiser interface {
	Promised() (region uint64, look string)
}

// Adviser is a Driver that cannot carry out every plan as well as its own hosts could. Advise returns what a plan
// loses or where it is slow, one line each. It is pure, and uses only the cluster file and the plan.
type Adviser interface {
	Advise(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) []string
}

// Planner is a Driver with the same capabilities everywhere. Plans are matched with them (Fit) without Probe, for
// described hosts, by users who cannot log in there.
type Planner interface {
	Plans() *Probed
}

// Translator is a Driver that carries out a plan in terms other than the plan's. Translate returns these terms, and
// fails for a plan that the driver would reject. It is pure.
type Translator interface {
	Translate(s *spec.Cluster, p *plan.Plan, hosts []topology.Host) (Translation, error)
}

// Translation is a plan in a backend's own terms, for people and for programs.
type Translation interface {
	Text() string
	JSON(w io.Writer) error
}

// Renderer is a Driver that can print its requests without a cluster: command lines, XML, API requests. Parts that
// only a running cluster has (exports, links) are omitted.
type Renderer interface {
	Render(w io.Writer, vms []plan.VM, s Settings) error
}

// Versioner is a Driver that can name the hypervisor it finds in a word or two, for `nearmetal version`.
type Versioner interface {
	Version(ctx context.Context) (string, error)
}

// Probed is the result of Probe.
type Probed struct {
	Caps Caps
	// Accel states how instructions run; it is never "auto".
	Accel host.Accel
	// TSCKHz is the host's TSC rate in kHz if guests get it; 0: they do not.
	TSCKHz int
	// SlowStrings: copies by string instructions are slow here (host.SlowStrings), and guests should not use them.
	SlowStrings bool
	// RegionDevice is the best device for a region here, used if the cluster file has auto.
	RegionDevice string
	// MaxInodes is how many files of a virtiofs export a VM may know at a time, each with an open descriptor of the
	// process that serves it; 0: any number.
	MaxInodes uint64
	// Notice is a line to print for the user; "": none.
	Notice string
}

// Request is the argument of Start.
type Request struct {
	Cluster  string // its name; "": none
	VM       plan.VM
	Settings Settings
	Files    Files
	// Config is the text that the guest's agent reads at its start. For a driver with Caps.DirectKernel it is already
	// in Files.Initrd; others pass it in their own way (a config drive).
	Config []byte
	// ConsoleLog is the file to which the driver writes the console's output as it arrives, made with mode 0600 and
	// bounded in size; "": none.
	ConsoleLog string
	// Record writes a Ref into the cluster's journal and syncs it. If it fails, Start undoes its work and returns the
	// error. Never nil.
	Record func(Ref) error
}

// Ref refers to something that Start or Prepare made, from any process of this user. It is kept in a journal: strings
// only, no secrets.
type Ref struct {
	Driver string            // name for Open
	What   string            // description for people: "QEMU of vm0 (process 4711)"
	ID     map[string]string // the driver's own: a process and its start time, a UUID, a managed object id
}

// ErrGone is Attach's error for a VM that no longer exists.
var ErrGone = errors.New("the VM no longer exists")

// ErrReset is Instance.Err of a VM that reset itself. A kernel panic ends that way, because a VM is never restarted.
var ErrReset = errors.New("the VM reset itself: its kernel panicked, or something in it called for a reboot")

// AccelError reports that the accel of a cluster file is not available.
type AccelError struct{ Err error }

func (e *AccelError) Error() string { return e.Err.Error() }

func (e *AccelError) Unwrap() error { return e.Err }

// ErrKilled reports that a signal ended the program that Probe runs: it proves nothing about the capabilities.
var ErrKilled = errors.New("was killed while its capabilities were read")

// AttachTimeout bounds the end of one VM in a sweep: its Attach and Kill.
const AttachTimeout = time.Minute

// Files are the open files that Start passes to a VM. Start leaves them open: after it the caller closes its copies
// of socket ends, because otherwise its own ends would never see an end of file.
type Files struct {
	Kernel *os.File   // image.Image.KernelFile; nil without Caps.DirectKernel
	Initrd *os.File   // image.Image.WithConfig; nil without Caps.DirectKernel
	Region *os.File   // the region's memory; nil without one
	Links  []*os.File // for each of Settings.Links in order, as many files as it needs (Link.Files)
	// Exports are directories (O_PATH), one for each veiled one of Settings.Exports, in their order. Veil keeps their
	// covers in place: the VM's process holds it while it runs. Exports by virtiofs are unmounted trees
	// (isolate.Veil.Tree), made for this start.
	Exports []*os.File
	Veil    *os.File // nil if nothing is veiled
	// Cgroup is the directory of the cgroup (v2) in which the VM's processes are created; nil: the caller's.
	Cgroup *os.File
}
