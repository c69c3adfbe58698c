package fleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/local"
	"nearmetal/internal/cluster/provider"
	"nearmetal/internal/cluster/start"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/guest"
	"nearmetal/internal/guest/channel"
	"nearmetal/internal/host"
	"nearmetal/internal/linejson"
	"nearmetal/internal/network"
	"nearmetal/internal/plan"
	"nearmetal/internal/remote"
	"nearmetal/internal/spec"
	"nearmetal/internal/text"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// MaxHosts is the maximum number of hosts of a cluster without a batch system.
const MaxHosts = 64

// DefaultPorts is the range of ports on which hosts listen for each other: above the range from which Linux assigns
// ports (net.ipv4.ip_local_port_range).
var DefaultPorts = [2]int{61000, 65535}

// StageHosts is the first stage of a start over several hosts.
const StageHosts = "reaching hosts"

// Fleet are the hosts that run the VMs of a cluster, as seen by its front.
type Fleet struct {
	own     *state.Owned
	board   *channel.Switchboard
	hosts   []*farHost
	user    state.Caller
	machine string // ID of this host; see hostFacts
	calls   *calls
	lost    chan error    // receives an error for each VM and each host that ends unexpectedly
	died    chan struct{} // closed when no VM runs any more
	none    sync.Once     // closes died
	holding sync.Mutex    // serializes Hold and Rename
	mu      sync.Mutex    // protects asked and end of the hosts
}

// New returns the hosts that s names, not connected yet, for the cluster own. Programs reach the VMs through board.
func New(own *state.Owned, board *channel.Switchboard, s *spec.Cluster) *Fleet {
	f := newFleet(s.Placement.Hosts)
	f.own, f.board, f.died = own, board, make(chan struct{})
	return f
}

// farHost is one host of a fleet.
type farHost struct {
	name    string
	session *remote.Session
	facts   hostFacts
	addr    string
	vms     []string
	client  *guest.Client
	lead    *channel.Stream
	gone    chan struct{} // closed when the connection to the part has ended
	end     error         // the part's error, valid once gone is closed
	asked   bool          // the front has asked for the part's end
}

// IsDescription reports whether an entry of placement.hosts is the description of a machine instead of a host's name:
// a path, an archive, a file of hwloc, or a directory here that is a captured tree.
func IsDescription(name string) bool {
	_, err := os.Stat(filepath.Join(name, "sys"))
	return err == nil || strings.ContainsRune(name, '/') || slices.Contains([]string{".xml", ".machine", ".tar", ".gz", ".tgz", ".bz2", ".tbz2"}, filepath.Ext(name))
}

// PlanHosts queries the hosts of s and their load, and returns the plan that Up would make, with the topologies and
// the ledger that it is based on. It changes s.Accel to the accelerator of the hosts.
func PlanHosts(ctx context.Context, s *spec.Cluster) (*plan.Plan, []topology.Host, plan.Ledger, error) {
	var ledger plan.Ledger
	if err := CheckHosts(s); err != nil {
		return nil, nil, ledger, err
	}
	f := newFleet(s.Placement.Hosts)
	defer func() {
		for _, h := range f.hosts {
			if h.session != nil {
				h.session.Close()
			}
		}
	}()
	if err := f.reach(ctx, s); err != nil {
		return nil, nil, ledger, err
	}
	s.Accel = f.hosts[0].facts.Accel
	hosts, ledger, err := f.topologies()
	if err != nil {
		return nil, nil, ledger, err
	}
	p, err := plan.Make(s, hosts, ledger)
	return p, hosts, ledger, f.explain(err, hosts)
}

func newFleet(names []string) *Fleet {
	f := &Fleet{calls: newCalls()}
	f.machine, _ = machineID() // if unknown, this machine is not one of the hosts
	for _, n := range names {
		f.hosts = append(f.hosts, &farHost{name: n, gone: make(chan struct{})})
	}
	return f
}

// reach queries all hosts, and checks that they can run one cluster together.
func (f *Fleet) reach(ctx context.Context, s *spec.Cluster) error {
	files, err := ownFiles(s)
	if err != nil {
		return err
	}
	asked := *s
	asked.Placement.Hosts = nil
	if err := f.all(func(h *farHost) error { return h.ask(ctx, files, &asked) }); err != nil {
		return err
	}
	return f.check()
}

// CheckHosts validates a list of hosts before any is connected. It rejects descriptions of machines, which are only
// for plans.
func CheckHosts(s *spec.Cluster) error {
	names := s.Placement.Hosts
	if len(names) > MaxHosts {
		return fmt.Errorf("placement.hosts: %d hosts are more than ssh is used for (%d): use a batch system", len(names), MaxHosts)
	}
	seen := map[string]bool{}
	for _, n := range names {
		switch {
		case IsDescription(n):
			return fmt.Errorf("placement.hosts: %.80q describes a machine, and is not a host on which VMs can run: nearmetal plan takes it", n)
		case remote.CheckHost(n) != nil:
			return fmt.Errorf("placement.hosts: %w", remote.CheckHost(n))
		case seen[n]:
			return fmt.Errorf("placement.hosts: %s is there twice", n)
		}
		seen[n] = true
	}
	if on := backend.Scheme(s.Backend); on != "" && on != backend.Default {
		return fmt.Errorf("placement.hosts: backend %s has machines of its own: leave one of the two out", on)
	}
	if s.Network.Type == "none" || s.Network.Type == "bridge" {
		return fmt.Errorf("network: %s does not join the VMs of several hosts: leave it out", s.Network.Type)
	}
	return nil
}

// Up starts the cluster's VMs on its hosts, and joins them to this cluster. If it fails, or ctx ends first, the
// caller stops the fleet.
func (f *Fleet) Up(ctx context.Context, o start.Request, ev start.Events) error {
	if err := CheckHosts(o.Spec); err != nil {
		return err
	}
	// This process will know the secret of the hosts: see HostPart.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	var mu sync.Mutex
	notice := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		ev.Note(line)
	}
	ev.At(StageHosts, 0, len(f.hosts))
	if err := f.reach(ctx, o.Spec); err != nil {
		return err
	}
	asked := *o.Spec
	asked.Placement.Hosts = nil
	for _, h := range f.hosts {
		for _, line := range h.facts.Swept {
			notice("host " + h.name + ": " + text.CleanLines(line))
		}
	}
	if !o.Quiet {
		notice(f.hosts[0].facts.Notice)
	}
	asked.Accel = f.hosts[0].facts.Accel
	hosts, ledger, err := f.topologies()
	if err != nil {
		return err
	}
	p, err := plan.Make(&asked, hosts, ledger)
	if err != nil {
		return f.explain(err, hosts)
	}
	for _, w := range p.Warnings {
		notice(w)
	}
	asked.Name = partName(f.own.Name())
	if err := f.divide(p); err != nil {
		return err
	}
	if err := f.own.Write(func(r *state.Record) {
		r.Accel, r.Plan, r.Caller = asked.Accel, p, &f.user
		for _, h := range f.hosts {
			r.Remote = append(r.Remote, state.RemoteHost{Name: h.name, Addr: h.addr, VMs: h.vms})
		}
	}); err != nil {
		return err
	}
	o.Spec = &asked
	return f.boot(ctx, o, p, start.Events{Notice: notice, Stage: ev.Stage})
}

// partName returns the name of a cluster's part on a host. It differs from the cluster's name, because the host may
// be the front's own.
func partName(name string) string {
	const suffix = "-part"
	return strings.TrimRight(name[:min(len(name), state.MaxName-len(suffix))], "-") + suffix
}

// ownFiles returns the files that a part needs: this program, and the libfabric provider and the UCX transport if
// they are installed.
func ownFiles(s *spec.Cluster) (*remote.Files, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []remote.File{{Local: exe, Remote: "bin/nearmetal"}}
	// Each host checks a root other than its own.
	any := *s
	any.Root = spec.RootBackend
	if path, _ := provider.Find(&any, exe); path != "" {
		list = append(list, remote.File{Local: path, Remote: "lib/nearmetal/libfabric/" + state.FabricFile})
		if ucx, why := provider.FindUCX(&any, path); why == "" {
			list = append(list, remote.File{Local: ucx, Remote: "lib/nearmetal/ucx/" + state.UCXFile})
		}
	}
	return remote.NewFiles(list...)
}

// all runs a function for all hosts concurrently, and returns the first error.
func (f *Fleet) all(do func(h *farHost) error) error {
	var g errgroup.Group
	for _, h := range f.hosts {
		g.Go(func() error { return do(h) })
	}
	return g.Wait()
}

// fault adds the host's name to an error, unless the error has it already.
func (h *farHost) fault(err error) error {
	var un *remote.Unreached
	if err == nil || errors.As(err, &un) {
		return err
	}
	return fmt.Errorf("host %s: %w", h.name, err)
}

// ask starts the part on a host and reads the host's facts.
func (h *farHost) ask(ctx context.Context, files *remote.Files, s *spec.Cluster) error {
	var err error
	if h.session, err = remote.Start(ctx, h.name, files, "host-part"); err != nil {
		return h.fault(err)
	}
	stop := context.AfterFunc(ctx, h.session.Kill)
	defer stop()
	err = linejson.Write(h.session, hostAsk{hostProtocol, s})
	if err == nil {
		err = h.line(&h.facts)
	}
	switch {
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err != nil:
		return h.fault(err)
	case h.facts.Error != "":
		return h.fault(errors.New(text.CleanLines(h.facts.Error)))
	case h.facts.Protocol != hostProtocol:
		return h.fault(errors.New("another version of nearmetal answers there"))
	}
	for a, why := range h.facts.Taken {
		h.facts.Taken[a] = text.CleanLines(why)
	}
	return nil
}

// line reads a line from the part.
func (h *farHost) line(v any) error {
	text, err := h.session.Line(linejson.MaxBytes)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("invalid message from nearmetal there: %w", err)
	}
	return nil
}

// check returns an error if the hosts cannot run one cluster together.
func (f *Fleet) check() error {
	first := f.hosts[0]
	for i, h := range f.hosts {
		for _, o := range f.hosts[:i] {
			if o.facts.Machine == h.facts.Machine {
				return fmt.Errorf("placement.hosts: %s and %s are one host: leave one out", o.name, h.name)
			}
		}
		if h.facts.Accel != string(host.KVM) && h.facts.Accel != string(host.TCG) {
			return h.fault(errors.New("reported neither kvm nor tcg: version mismatch?"))
		}
		if h.facts.Accel != first.facts.Accel {
			return fmt.Errorf("host %s runs VMs by %s and %s by %s: leave one out, or write --accel tcg", first.name, first.facts.Accel, h.name, h.facts.Accel)
		}
		if h.facts.User.UID != first.facts.User.UID || h.facts.User.GID != first.facts.User.GID {
			return fmt.Errorf("you are user %d (group %d) on host %s and %d (%d) on %s: the numbers must be the same, since the VMs share files",
				first.facts.User.UID, first.facts.User.GID, first.name, h.facts.User.UID, h.facts.User.GID, h.name)
		}
		if len(h.facts.User.Groups) > 65536 || len(h.facts.User.Home) > unix.PathMax {
			return h.fault(errors.New("reported an invalid user (too many groups, or home path too long)"))
		}
		h.addr = h.name[strings.LastIndexByte(h.name, '@')+1:]
		if a, err := addressOf(h.facts.Addr); err == nil {
			h.addr = a.String()
		}
	}
	f.user = first.facts.User
	f.user.Name, f.user.Home = text.CleanLines(f.user.Name), text.CleanLines(f.user.Home)
	return nil
}

// topologies returns the hosts' topologies for the plan, and the resources that are in use on them.
func (f *Fleet) topologies() (list []topology.Host, ledger plan.Ledger, err error) {
	for _, h := range f.hosts {
		t, err := topology.ReadTar(bytes.NewReader(h.facts.Topology), h.name)
		if err != nil {
			return nil, ledger, h.fault(err)
		}
		t.Name = h.name
		list = append(list, *t)
		for _, held := range h.facts.Ledger.Held {
			held.Host = h.name
			ledger.Held = append(ledger.Held, held)
		}
		h.facts.Taken.Hold(&ledger, t)
	}
	return list, ledger, nil
}

// explain adds the reasons why VFs and devices of the hosts are unavailable to the error of a failed plan.
func (f *Fleet) explain(err error, hosts []topology.Host) error {
	for i, h := range f.hosts {
		if err != nil && len(h.facts.Taken) > 0 {
			err = h.facts.Taken.Explain(err, &hosts[i])
		}
	}
	return err
}

// divide assigns each host its VMs, and drops hosts without any.
func (f *Fleet) divide(p *plan.Plan) error {
	var kept []*farHost
	for _, h := range f.hosts {
		for _, v := range p.VMs {
			if v.Host == h.name {
				h.vms = append(h.vms, v.Name)
			}
		}
		if len(h.vms) > 0 {
			kept = append(kept, h)
			continue
		}
		p.Warnings = append(p.Warnings, fmt.Sprintf("host %s gets no VM", h.name))
		h.session.Close()
	}
	f.hosts = kept
	return nil
}

// boot makes every host boot its VMs of the plan p, and joins them to this cluster.
func (f *Fleet) boot(ctx context.Context, o start.Request, p *plan.Plan, ev start.Events) error {
	overlay, err := f.overlay(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.lost = make(chan error, len(p.VMs)+len(f.hosts))
	readies := make([]*hostReady, len(f.hosts))
	var mu sync.Mutex
	done := make([]int, len(f.hosts))
	boot := func(i int, h *farHost) error {
		q := o
		q.Kept, q.Until, q.Devices = false, 0, nil // these options are for this host
		q.Part, q.Planned, q.Plan = f.own.Name(), h.facts.Ledger, p.On(h.name)
		if overlay != nil {
			own := *overlay
			own.Self = i
			q.Overlay = &own
		}
		stop := context.AfterFunc(ctx, func() { h.session.Close() })
		defer stop()
		if err := linejson.Write(h.session, q); err != nil {
			return err
		}
		for {
			var m message
			if err := h.line(&m); err != nil {
				return err
			}
			switch {
			case m.Error != "":
				for k := range m.Console {
					m.Console[k] = text.CleanLines(m.Console[k])
				}
				return &state.VMError{Err: fmt.Errorf("host %s: %s", h.name, text.CleanLines(m.Error)), Console: m.Console}
			case m.Host != nil:
				readies[i] = m.Host
				return nil
			case m.Notice != "":
				ev.Note("host " + h.name + ": " + text.CleanLines(m.Notice))
			case m.Stage == start.StageBoot:
				mu.Lock()
				done[i] = min(max(m.Done, 0), len(h.vms))
				sum := 0
				for _, n := range done {
					sum += n
				}
				ev.At(start.StageBoot, sum, len(p.VMs))
				mu.Unlock()
			}
		}
	}
	ev.At(start.StageBoot, 0, len(p.VMs))
	var g errgroup.Group
	for i, h := range f.hosts {
		g.Go(func() error {
			err := boot(i, h)
			if err == nil {
				return nil
			}
			var vm *state.VMError
			if !errors.As(err, &vm) {
				err = h.fault(err)
			}
			cancel(err) // a cluster needs all its hosts
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return context.Cause(ctx)
	}
	if line := f.unreached(readies); line != "" {
		ev.Note(line)
	}
	vms, have, err := f.records(p, readies)
	if err != nil {
		return err
	}
	if err := f.own.Write(func(r *state.Record) {
		r.VMs, r.Fabric, r.UCX, r.DeviceFaults = vms, have.fabric, have.ucx, faultsOf(readies)
	}); err != nil {
		return err
	}
	if err := errors.Join(local.LinkLauncher(f.own), local.WriteHostFiles(f.own)); err != nil {
		return err
	}
	for _, h := range f.hosts {
		if err := f.joinPart(ctx, h); err != nil {
			return h.fault(err)
		}
	}
	return nil
}

// overlay returns the overlay that joins the VMs of the hosts; nil: there is only one host.
func (f *Fleet) overlay(p *plan.Plan) (*wiring.Overlay, error) {
	if len(f.hosts) < 2 {
		return nil, nil
	}
	t := &wiring.Overlay{Secret: make([]byte, 32), Ports: DefaultPorts}
	if _, err := rand.Read(t.Secret); err != nil {
		return nil, err
	}
	for _, h := range f.hosts {
		oh := wiring.OverlayHost{Name: h.name[strings.LastIndexByte(h.name, '@')+1:], Addr: h.addr, VMs: h.vms}
		for _, v := range p.VMs {
			if v.Host == h.name {
				oh.Sizes = append(oh.Sizes, wiring.VMSize{VCPUs: v.VCPUs, MemoryBytes: v.MemoryBytes, Devices: len(v.Devices)})
			}
		}
		t.Hosts = append(t.Hosts, oh)
	}
	if len(t.Hosts) > network.MaxOverlayHosts {
		return nil, fmt.Errorf("the VMs of %d hosts cannot be joined", len(t.Hosts))
	}
	return t, nil
}

// given are the libraries for MPI that all hosts have copied to their VMs: Fabric and UCX of the Record.
type given struct{ fabric, ucx string }

var errStrangeVMs = errors.New("started different VMs than requested: please report")

// records returns the VMs as reported by the hosts, after checking them against the plan.
func (f *Fleet) records(p *plan.Plan, readies []*hostReady) ([]state.VMRecord, given, error) {
	var list []state.VMRecord
	var have given
	for i, h := range f.hosts {
		if len(readies[i].VMs) != len(h.vms) {
			return nil, given{}, h.fault(errStrangeVMs)
		}
		for _, v := range readies[i].VMs {
			k := slices.IndexFunc(p.VMs, func(x plan.VM) bool { return x.Name == v.Name && x.Host == h.name })
			ip, err := netip.ParseAddr(v.IP)
			subnet, serr := netip.ParsePrefix(v.Subnet)
			if k < 0 || err != nil || serr != nil || !subnet.Contains(ip) || slices.ContainsFunc(list, func(o state.VMRecord) bool { return o.Name == v.Name }) {
				return nil, given{}, h.fault(errStrangeVMs)
			}
			list = append(list, state.VMRecord{Name: v.Name, Host: h.name, VCPUs: p.VMs[k].VCPUs, MemoryBytes: p.VMs[k].MemoryBytes, IP: ip.String(),
				Subnet: subnet.Masked().String(), Uplink: v.Uplink, State: state.Ready, ReadyNs: max(v.ReadyNs, 0), Devices: v.Devices})
		}
		switch has := readies[i].Fabric != ""; {
		case i == 0 && has:
			have.fabric, have.ucx = text.CleanLines(readies[i].Fabric), text.CleanLines(readies[i].UCX)
		case has != (have.fabric != ""):
			return nil, given{}, fmt.Errorf("only one of the hosts %s and %s has the libfabric provider for its VMs: write --fabric none, or the same MPI root everywhere", f.hosts[0].name, h.name)
		}
		// A preloaded library must be in every VM.
		if readies[i].UCX == "" {
			have.ucx = ""
		}
	}
	order := func(name string) int { return slices.IndexFunc(p.VMs, func(x plan.VM) bool { return x.Name == name }) }
	slices.SortFunc(list, func(a, b state.VMRecord) int { return order(a.Name) - order(b.Name) })
	return list, have, nil
}

// unreached returns one line about the VMs of different hosts that do not reach each other by their devices. It
// summarizes the reports, because both hosts of such a pair report it, and all other hosts report a host with a wrong
// VLAN.
func (f *Fleet) unreached(readies []*hostReady) string {
	line, more := "", 0
	for i, r := range readies {
		switch {
		case r.Unreached == "":
		case line == "":
			line = fmt.Sprintf("host %s: %s", f.hosts[i].name, text.CleanLines(r.Unreached))
		default:
			more++
		}
	}
	if more > 0 {
		line += fmt.Sprintf(" (%s such VMs)", words.Count(more, "other host reports", "other hosts report"))
	}
	return line
}

// faultsOf returns the faults of all hosts' devices.
func faultsOf(readies []*hostReady) []string {
	var list []string
	for _, r := range readies {
		for _, f := range r.DeviceFaults {
			if len(list) < 64 {
				list = append(list, text.CleanLines(f))
			}
		}
	}
	return list
}

// joinPart makes a host's VMs reachable from here, and starts to follow its part.
func (f *Fleet) joinPart(ctx context.Context, h *farHost) error {
	var err error
	if h.client, err = guest.DialAccept(ctx, h.session, "host "+h.name, f.calls.accept); err != nil {
		return err
	}
	if h.lead, err = h.client.Mux().Open("lead", nil); err != nil {
		return err
	}
	for _, vm := range h.vms {
		f.board.AddRemote(vm, h.client.Mux())
	}
	go h.beat()
	go f.followPart(h)
	return nil
}

// beat sends the front's heartbeats.
func (h *farHost) beat() {
	t := time.NewTicker(leadEvery)
	defer t.Stop()
	for {
		if _, err := h.lead.Write([]byte{'.'}); err != nil {
			return
		}
		select {
		case <-t.C:
		case <-h.gone:
			return
		}
	}
}
