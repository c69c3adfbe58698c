package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/qemufacts"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/process"
	"nearmetal/internal/sockpair"
	"nearmetal/internal/spec"
)

func init() {
	backend.Register("qemu", func(name string) (backend.Driver, error) {
		if name != "qemu" {
			return nil, fmt.Errorf("backend %.60q: qemu has no address", name)
		}
		return &driver{}, nil
	})
}

// driver starts VMs as children of this process. Its caps are found by Probe.
type driver struct{ caps Caps }

// Probe finds the QEMU that the file names, or this host's, and detects whether KVM works.
func (d *driver) Probe(ctx context.Context, s *spec.Cluster) (*backend.Probed, error) {
	p := &backend.Probed{}
	var g errgroup.Group
	g.Go(func() error { // some 0.1 s each if not cached
		path, err := Find(s.QEMU)
		if err == nil {
			d.caps, err = Probe(ctx, path)
		}
		return err
	})
	var fs virtiofsd
	var fsErr error
	g.Go(func() error {
		fs, fsErr = findVirtiofsd(ctx)
		return nil // a start needs no virtiofsd
	})
	accel, notice, err := host.DetectAccel(s.Accel)
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, &backend.AccelError{Err: err}
	}
	p.Accel, p.Notice = accel, notice
	if khz, ok := host.TSCKHz(); ok && accel == host.TCG {
		p.TSCKHz = khz
	}
	p.SlowStrings = accel == host.KVM && host.SlowStrings()
	if fsErr != nil {
		fs, d.caps.VirtiofsdWhy = virtiofsd{}, fsErr.Error()
	}
	d.caps.Virtiofsd, p.MaxInodes = fs, fs.MaxInodes
	d.caps.Passt = findPasst()
	p.Caps = d.caps.seam()
	p.RegionDevice = regionDevice(accel, p.Caps.Regions)
	return p, nil
}

// seam translates the installed QEMU's capabilities to those that all backends share.
func (c Caps) seam() backend.Caps {
	has := func(device string) bool { return slices.Contains(c.Devices, device) }
	s := backend.Caps{
		VFIO: has("vfio-pci") && has("pcie-root-port"),
		Pins: true, DirectKernel: true, DiesWithOwner: true, Why: map[backend.Cap]string{},
	}
	for _, k := range []backend.LinkKind{backend.LinkStream, backend.LinkTap, backend.LinkUser} {
		if slices.Contains(c.Netdevs, string(k)) {
			s.Links = append(s.Links, k)
		}
	}
	// 9p is first: it leaves the VM's memory private, which may then use huge pages without being requested.
	if has("virtio-9p-pci") {
		s.Exports = append(s.Exports, backend.Export9p)
	}
	if has("vhost-user-fs-pci") && c.Virtiofsd.Path != "" {
		s.Exports = append(s.Exports, backend.ExportVirtiofs)
	}
	s.Veil, s.Sandbox, s.Jail = len(s.Exports) > 0, c.Sandbox, true
	stream := slices.Contains(c.Netdevs, string(backend.LinkStream))
	s.Filter = stream && slices.Contains(c.Netdevs, "hubport")
	if stream && c.passt() != "" {
		s.Links, s.Filter = append(s.Links, backend.LinkUser), true
	}
	if c.Ivshmem() {
		s.Regions = append(s.Regions, "ivshmem")
	}
	if has("nvdimm") {
		s.Regions = append(s.Regions, "devdax")
	}
	lack := func(what backend.Cap, device, cure string) {
		s.Why[what] = fmt.Sprintf("%s (%s) has no %s: %s", c.Path, c.Version, device, cure)
	}
	lack(backend.Cap9p, "virtio-9p-pci", cureExports)
	if lack(backend.CapVirtiofs, "vhost-user-fs-pci", whatToInstall); has("vhost-user-fs-pci") {
		s.Why[backend.CapVirtiofs] = c.noVirtiofsd()
	}
	s.Why[backend.CapHostFiles] = fmt.Sprintf("%s (%s) has no virtio-9p-pci, and for virtiofs: %s", c.Path, c.Version, s.Why[backend.CapVirtiofs])
	lack(backend.CapIvshmem, "ivshmem-plain", cureIvshmem)
	lack(backend.CapDevdax, "nvdimm", cureDevdax)
	lack(backend.CapVFIO, "vfio-pci", whatToInstall)
	s.Why[backend.CapOwnDisk] = "its VMs start from this host's files: write root: host, or a directory"
	s.Why[backend.CapSandbox] = fmt.Sprintf("%s (%s) is built without seccomp: take another with --qemu", c.Path, c.Version)
	lack(backend.CapFilter, "hubport", "take another with --qemu, or say network: {uplink: none}")
	lack(backend.CapUserNetwork, "user network", "install passt, or say network: {uplink: none}, or take another QEMU with --qemu")
	return s
}

// regionDevice chooses the device of a region if the user leaves it open. On AMD, KVM honours the guest's uncached
// mapping of a PCI BAR, and the region would be some hundred times slower; a devdax device is mapped write-back
// everywhere. Elsewhere ivshmem is in effect write-back and does not slow down the boot.
func regionDevice(accel host.Accel, there []string) string {
	if accel == host.KVM && cpuVendor() == "AuthenticAMD" || !slices.Contains(there, "ivshmem") && slices.Contains(there, "devdax") {
		return "devdax"
	}
	return "ivshmem"
}

func cpuVendor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for _, line := range strings.SplitN(string(b), "\n", 20) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "vendor_id" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Prepare raises the limit on locked memory for VMs with devices, or fails if it is too low.
func (d *driver) Prepare(_ context.Context, p *plan.Plan, _ func(backend.Ref) error) error {
	return checkLocked(p)
}

// Check renders the VM.
func (d *driver) Check(vm plan.VM, s backend.Settings) error {
	_, err := Build(vm, s, d.caps)
	return err
}

// Start starts a QEMU, pins its threads and returns it as a backend.Instance.
func (d *driver) Start(ctx context.Context, r backend.Request) (backend.Instance, error) {
	m, err := Build(r.VM, r.Settings, d.caps)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := sockpair.Conn("channel of QEMU")
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	var ref backend.Ref
	v, err := Start(ctx, m, Files{Files: r.Files, Channel: theirs}, Options{
		ConsoleLog: r.ConsoleLog,
		Record: func(pid int, part string) error {
			it, err := refOf(part+r.VM.Name, pid)
			if err != nil {
				return nil // it has ended; the error follows below
			}
			if part == "" {
				ref = it
			}
			return r.Record(it)
		},
	})
	if err != nil {
		ours.Close()
		return nil, err
	}
	if err := v.Pin(ctx, r.VM); err != nil {
		v.Kill()
		ours.Close()
		return nil, err
	}
	return &instance{VM: v, ref: ref, channel: ours}, nil
}

// instance is a QEMU that this process has started.
type instance struct {
	*VM
	ref     backend.Ref
	channel net.Conn
	handed  atomic.Bool // the caller owns the channel
}

// refOf identifies a QEMU process for the journal. PDEATHSIG ends QEMU with this process; the journal covers the case
// that it does not.
func refOf(vm string, pid int) (backend.Ref, error) {
	start, err := process.Start(pid)
	if err != nil {
		return backend.Ref{}, err
	}
	return backend.Ref{Driver: "qemu", What: fmt.Sprintf("QEMU of %s (process %d)", vm, pid),
		ID: map[string]string{"pid": strconv.Itoa(pid), "start": start}}, nil
}

func (i *instance) Ref() backend.Ref { return i.ref }

func (i *instance) Agent(context.Context) (io.ReadWriteCloser, error) {
	i.handed.Store(true)
	return i.channel, nil
}

func (i *instance) Pause(ctx context.Context) error { return i.qmp.Stop(ctx) }

func (i *instance) Resume(ctx context.Context) error { return i.qmp.Cont(ctx) }

// Kill ends the process; it does not fail.
func (i *instance) Kill(context.Context) error {
	i.VM.Kill()
	if !i.handed.Load() {
		i.channel.Close()
	}
	return nil
}

func (i *instance) Console(n int) []string { return i.LastLines(n) }

// Inspect reads the VM back from QEMU's monitor and /proc.
func (i *instance) Inspect(ctx context.Context, vm *plan.VM, region *plan.Region) *backend.Facts {
	return qemufacts.Gather(ctx, qemufacts.QEMU{Plan: vm, PID: i.PID(), QMP: i.qmp}, region)
}

// Attach finds a QEMU of another process by its PID and start time.
func (d *driver) Attach(_ context.Context, r backend.Ref) (backend.Instance, error) {
	pid, err := strconv.Atoi(r.ID["pid"])
	if err != nil || pid < 2 || r.ID["start"] == "" {
		return nil, fmt.Errorf("%.80q is not a process", r.ID["pid"])
	}
	p, err := process.Find(pid, r.ID["start"])
	if errors.Is(err, process.ErrGone) {
		return nil, backend.ErrGone
	}
	if err != nil {
		return nil, err
	}
	return &attached{ref: r, p: p, done: make(chan struct{})}, nil
}

// Close does nothing: QEMU has no session.
func (d *driver) Close() error { return nil }

// attached is a QEMU whose owner is gone: it can be ended.
type attached struct {
	ref  backend.Ref
	mu   sync.Mutex
	p    *process.Process // nil: it has ended
	done chan struct{}
}

var errAttached = errors.New("its owner is gone: it can only be ended")

func (a *attached) Ref() backend.Ref { return a.ref }

func (a *attached) PID() int { n, _ := strconv.Atoi(a.ref.ID["pid"]); return n }

func (a *attached) Agent(context.Context) (io.ReadWriteCloser, error) { return nil, errAttached }

func (a *attached) Pause(context.Context) error { return errAttached }

func (a *attached) Resume(context.Context) error { return errAttached }

// killWait is the time that a process may need to end after SIGKILL if ctx sets no bound.
const killWait = 10 * time.Second

func (a *attached) Kill(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.p == nil {
		return nil
	}
	wait := killWait
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end))
	}
	if _, err := a.p.Kill(wait); err != nil {
		return err
	}
	a.p.Close()
	a.p = nil
	close(a.done)
	return nil
}

// Done is closed by Kill.
func (a *attached) Done() <-chan struct{} { return a.done }

func (a *attached) Err() error { return nil }

func (a *attached) Console(int) []string { return nil }
