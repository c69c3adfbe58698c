// Package fake is a backend without VMs, for tests of the life of a cluster: each of its "VMs" is the guest's agent
// as a process of this host, with a /run of its own. It starts in milliseconds, and fails in the ways that its
// Options select.
//
// It keeps a file for each VM in a directory, as a hypervisor keeps objects: files left there after a cluster's end
// reveal a leak.
package fake

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/process"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Options of a driver. All are part of its name, so that another process can open the same driver.
type Options struct {
	Dir      string        // has a file for each VM that was made and not removed
	Survives bool          // VMs outlive their owner
	Lacks    []backend.Cap // capabilities removed from its usual ones
	Refuse   string        // VM whose Start fails after its process was started
	Mute     string        // VM whose agent does not answer
	OwnDisk  bool          // the VMs can boot from a disk of the driver
	Network  bool          // the VMs have a network of the driver: 192.0.2.0/24, from 192.0.2.10 on
	Hosts    string        // captured host for the VMs (topology.Open); "": this host
}

// Name is the name by which backend.Open makes the driver.
func (o Options) Name() string {
	v := url.Values{"dir": {o.Dir}, "refuse": {o.Refuse}, "mute": {o.Mute}, "hosts": {o.Hosts}}
	if o.Network {
		v.Set("network", "1")
	}
	if o.OwnDisk {
		v.Set("owndisk", "1")
	}
	if o.Survives {
		v.Set("survives", "1")
	}
	for _, c := range o.Lacks {
		v.Add("lacks", string(c))
	}
	return "fake:" + v.Encode()
}

func init() {
	backend.Register("fake", func(name string) (backend.Driver, error) {
		v, err := url.ParseQuery(name[len("fake:"):])
		if err != nil || !filepath.IsAbs(v.Get("dir")) {
			return nil, fmt.Errorf("backend %.60q: %w", name, errors.Join(err, errors.New("no directory")))
		}
		d := &driver{name: name, o: Options{Dir: v.Get("dir"), Survives: v.Get("survives") != "",
			Network: v.Get("network") != "", OwnDisk: v.Get("owndisk") != "", Refuse: v.Get("refuse"), Mute: v.Get("mute"), Hosts: v.Get("hosts")}}
		for _, c := range v["lacks"] {
			d.o.Lacks = append(d.o.Lacks, backend.Cap(c))
		}
		return d, nil
	})
}

type driver struct {
	name string
	o    Options
}

// Probe returns all capabilities but a kernel and a region, less those that the Options remove.
func (d *driver) Probe(context.Context, *spec.Cluster) (*backend.Probed, error) {
	has := func(c backend.Cap) bool { return !slices.Contains(d.o.Lacks, c) }
	c := backend.Caps{
		VFIO: has(backend.CapVFIO), Pins: has(backend.CapPins),
		OwnDisk: d.o.OwnDisk, DiesWithOwner: !d.o.Survives, Remote: d.o.Hosts != "",
		Why: map[backend.Cap]string{backend.CapRegion: "it has no VMs"},
	}
	if has(backend.CapHostFiles) {
		c.Exports = []backend.ExportKind{backend.Export9p}
	}
	if d.o.Network {
		c.Links = append(c.Links, backend.LinkOwn)
	} else if has(backend.CapStream) {
		c.Links = append(c.Links, backend.LinkStream)
	}
	if has(backend.CapUserNetwork) {
		c.Links = append(c.Links, backend.LinkUser)
	}
	return &backend.Probed{Caps: c, Accel: host.TCG}, nil
}

// netID is the ID of the network's file.
const netID = "00000000000000ff"

// Network makes the driver's network, as a file, recorded before it is made.
func (d *driver) Network(_ context.Context, vms []string, _ spec.Network, record func(backend.Ref) error) ([]backend.Card, error) {
	if err := record(backend.Ref{Driver: d.name, What: "fake network", ID: map[string]string{"id": netID}}); err != nil {
		return nil, err
	}
	var cards []backend.Card
	for i := range vms {
		addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})
		cards = append(cards, backend.Card{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i), Address: netip.PrefixFrom(addr, 24)})
	}
	return cards, os.WriteFile(filepath.Join(d.o.Dir, netID), []byte("{}"), 0o600)
}

// Hosts returns the captured host.
func (d *driver) Hosts(context.Context) ([]topology.Host, error) {
	h, err := topology.Open(d.o.Hosts)
	if err != nil {
		return nil, err
	}
	return []topology.Host{*h}, nil
}

// Check accepts every VM.
func (d *driver) Check(plan.VM, backend.Settings) error { return nil }

func (d *driver) Close() error { return nil }

// object is the content of a VM's file: its process, once it is started.
type object struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

// path returns the path of a VM's file; it fails for an ID that the driver did not make.
func (d *driver) path(id string) (string, error) {
	if !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(id) {
		return "", fmt.Errorf("%.40q is not a VM", id)
	}
	return filepath.Join(d.o.Dir, id), nil
}

// Start chooses the VM's identity, records it, makes its file, and then its process, which waits until its PID is in
// the file. At every moment the record refers to everything that exists.
func (d *driver) Start(ctx context.Context, r backend.Request) (backend.Instance, error) {
	fail := func(err error) (backend.Instance, error) { return nil, fmt.Errorf("VM %s: %w", r.VM.Name, err) }
	var b [8]byte
	rand.Read(b[:])
	ref := backend.Ref{Driver: d.name, What: "fake VM " + r.VM.Name, ID: map[string]string{"id": hex.EncodeToString(b[:])}}
	if err := r.Record(ref); err != nil {
		return fail(err)
	}
	path, err := d.path(ref.ID["id"])
	if err != nil {
		return fail(err)
	}
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		return fail(err)
	}
	i := &instance{d: d, ref: ref, path: path, log: r.ConsoleLog, done: make(chan struct{})}
	if err := i.start(r.VM.Name); err != nil {
		os.Remove(path)
		return fail(err)
	}
	if d.o.Refuse == r.VM.Name {
		i.Kill(ctx)
		return fail(errors.New("it is to be refused"))
	}
	return i, nil
}

// Attach finds a VM by its file.
func (d *driver) Attach(_ context.Context, r backend.Ref) (backend.Instance, error) {
	path, err := d.path(r.ID["id"])
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, backend.ErrGone
	}
	if err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	a := &attached{instance: instance{d: d, ref: r, path: path, done: make(chan struct{})}, pid: o.PID}
	if o.PID != 0 {
		if a.p, err = process.Find(o.PID, o.Start); errors.Is(err, process.ErrGone) {
			a.p, err = nil, nil
		}
	}
	return a, err
}

// Deny is the file in Options.Dir that makes every Kill fail while it exists: a hypervisor that does not answer.
const Deny = "deny"

var errDenied = errors.New("the hypervisor does not answer")

// denied reports whether Deny exists.
func (d *driver) denied() error {
	if _, err := os.Stat(filepath.Join(d.o.Dir, Deny)); err == nil {
		return errDenied
	}
	return nil
}

// attached is a VM of a dead owner.
type attached struct {
	instance
	pid int
	p   *process.Process // nil: it has ended
}

// Kill ends the VM's process group and removes its file.
func (a *attached) Kill(ctx context.Context) error {
	if err := a.d.denied(); err != nil {
		return err
	}
	if a.p != nil {
		unix.Kill(-a.pid, unix.SIGKILL)
		if _, err := a.p.Kill(backend.AttachTimeout); err != nil {
			return err
		}
		a.p.Close()
		a.p = nil
	}
	return os.Remove(a.path)
}

// program is the agent's program, in a file without a name.
var program struct {
	once sync.Once
	file *os.File
	err  error
}

// agentFile returns the agent's program; it fails if nearmetal was not built.
func agentFile() (*os.File, error) {
	program.once.Do(func() {
		b, err := image.Agent()
		if err != nil {
			program.err = err
			return
		}
		fd, err := unix.MemfdCreate("nearmetal-agent", unix.MFD_CLOEXEC)
		if err != nil {
			program.err = err
			return
		}
		program.file = os.NewFile(uintptr(fd), "nearmetal-agent")
		_, program.err = program.file.Write(b)
	})
	return program.file, program.err
}

// ErrUser reports that an ordinary user cannot have fake VMs: in a VM the agent is root, and files are pushed to it
// as root.
var ErrUser = errors.New("fake VMs need root")

// Works returns the reason why the driver cannot start VMs on this machine (ErrUser, or nearmetal was not built), or
// nil.
func Works() error {
	if os.Getuid() != 0 {
		return ErrUser
	}
	_, err := agentFile()
	return err
}
