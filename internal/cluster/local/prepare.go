package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/cluster/claim"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/host/device"
	"nearmetal/internal/plan"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// prepared is the state that is collected and created before the first VM starts.
type prepared struct {
	accel       host.Accel
	tsc         int    // kHz; 0: not used
	slowStrings bool   // backend.Probed.SlowStrings
	inodes      uint64 // that a VM may cache over virtiofs; 0: any number
	kernel      image.Kernel
	image       *image.Image    // set by openImage; nil if the VMs start no kernel from this host
	hosts       []topology.Host // that the plan may use
	plan        *plan.Plan      // set by place
}

// prepare probes the backend and the host, and fills in what the cluster file leaves open. Its parts need about 0.1 s
// each if they are not cached, so that independent parts run concurrently.
func (m *VMs) prepare(ctx context.Context, o options, notice func(string)) (*prepared, error) {
	p := &prepared{}
	s := o.Spec
	if err := openRoot(ctx, o, notice); err != nil {
		return nil, err
	}
	if err := checkExports(s); err != nil {
		return nil, err
	}
	var here *topology.Host
	var g errgroup.Group
	g.Go(func() error { return m.probe(ctx, o, p, notice) })
	g.Go(func() (err error) {
		here, err = topology.Read("/")
		return err
	})
	err := g.Wait()
	if err == nil {
		p.hosts, err = m.hostsFor(ctx, here)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// hostsFor returns the machines that the VMs may run on: this host, or those of the backend.
func (m *VMs) hostsFor(ctx context.Context, here *topology.Host) ([]topology.Host, error) {
	if !m.caps.Remote {
		return []topology.Host{*here}, nil
	}
	d, ok := m.driver.(backend.Locator)
	if !ok {
		return nil, fmt.Errorf("backend %s has VMs elsewhere, and does not report on which machines", m.own.Record().Backend)
	}
	return d.Hosts(ctx)
}

// probe opens the backend, matches the cluster file with its capabilities, and finds the kernel for the VMs.
func (m *VMs) probe(ctx context.Context, o options, p *prepared, notice func(string)) error {
	s := o.Spec
	var err error
	if m.driver, err = backend.Open(s.Backend); err != nil {
		return err
	}
	found, err := m.driver.Probe(ctx, s)
	if err != nil {
		return err
	}
	var kernelErr error
	if found.Caps.DirectKernel && s.Root != spec.RootBackend {
		if p.kernel, kernelErr = (image.Finder{Modules: s.KernelModules}).Find(s.Kernel); kernelErr == nil {
			mountable(&found.Caps, p.kernel)
		}
	}
	if err := errors.Join(backend.Fit(s, found), kernelErr); err != nil {
		return firstLine(err)
	}
	m.caps, p.accel, p.tsc, p.slowStrings, p.inodes = found.Caps, found.Accel, found.TSCKHz, found.SlowStrings, found.MaxInodes
	if !o.Quiet {
		notice(found.Notice)
	}
	return m.fence(o, notice)
}

// openImage opens the kernel and initramfs of the VMs, with the drivers of the planned functions of h; nil: there are
// none. It runs after the plan, because an initramfs that is not cached takes seconds to build, and a cluster without
// enough resources should be rejected before.
func (p *prepared) openImage(s *spec.Cluster, h *device.Host, notice func(string)) (err error) {
	if p.kernel.Path == "" {
		return nil // the guest has its own kernel
	}
	r := image.Request{Kernel: p.kernel, Files: s.Files, Devdax: wantsDevdax(s), Modules: rdmaModules(s), Notice: notice}
	if h != nil {
		for i := range p.plan.VMs {
			for _, d := range p.plan.VMs[i].Devices {
				r.Aliases = append(r.Aliases, h.Modalias(d.Address))
			}
		}
	}
	p.image, err = image.Open(r)
	return err
}

// mountable removes from c the kinds of exports that the guests' kernel cannot mount.
func mountable(c *backend.Caps, k image.Kernel) {
	var list []backend.ExportKind
	var first error
	if c.Why = maps.Clone(c.Why); c.Why == nil {
		c.Why = map[backend.Cap]string{}
	}
	for _, kind := range c.Exports {
		err := k.Mounts(string(kind))
		if err == nil {
			list = append(list, kind)
			continue
		}
		c.Why[kind.Cap()] = err.Error()
		if first == nil {
			first = err
		}
	}
	if len(list) == 0 && first != nil {
		c.Why[backend.CapHostFiles] = first.Error()
	}
	c.Exports = list
}

// place makes the plan of the cluster and writes it into the record, where the plan of the next cluster finds it. The
// lock of the base serializes clusters that are planned at the same time.
func (m *VMs) place(p *prepared, o options, notice func(string)) error {
	s := o.Spec
	b, err := m.own.LockBase()
	if err != nil {
		return err
	}
	defer b.Close()
	ledger, err := state.Ledger()
	if err != nil {
		return err
	}
	if !m.caps.Remote {
		if m.devices, err = claim.Find(s, o.Devices); err != nil {
			return err
		}
	}
	if o.Plan != nil {
		p.plan, err = m.takePlan(p, o, ledger)
	} else {
		p.plan, err = m.devices.Plan(s, p.hosts, ledger)
	}
	if err != nil {
		return err
	}
	if !m.caps.Remote {
		if err := checkMemory(p.plan); err != nil {
			return err
		}
	}
	if d, ok := m.driver.(backend.Adviser); ok {
		p.plan.Warnings = append(p.plan.Warnings, d.Advise(s, p.plan, p.hosts)...)
	}
	for _, w := range p.plan.Warnings {
		notice(w)
	}
	return m.own.Write(func(r *state.Record) {
		r.Plan, r.Survives = p.plan, !m.caps.DiesWithOwner
		if !m.caps.Remote { // otherwise the agents report it
			r.Accel = string(p.accel)
		}
	})
}

// takePlan returns the front's plan for this host. It fails if another cluster has started or ended here since the
// front's query.
func (m *VMs) takePlan(p *prepared, o options, ledger plan.Ledger) (*plan.Plan, error) {
	now, err := json.Marshal(ledger)
	if err != nil {
		return nil, err
	}
	if then, err := json.Marshal(o.Planned); err != nil || !bytes.Equal(now, then) {
		return nil, errors.New("another cluster has started or ended here meanwhile: try again")
	}
	if err := m.devices.Take(o.Plan); err != nil {
		return nil, err
	}
	for i := range o.Plan.VMs {
		o.Plan.VMs[i].Host = p.hosts[0].Name
	}
	return o.Plan, nil
}

func (p *prepared) close() {
	if p.image != nil {
		p.image.Close()
	}
}

// rdmaModules returns the kernel modules of a guest with soft RoCE: the device, and the interfaces that programs
// open.
func rdmaModules(s *spec.Cluster) []string {
	if s.Network.Type != "rxe" {
		return nil
	}
	return []string{"rdma_rxe", "ib_uverbs", "rdma_ucm"}
}

// wantsDevdax reports whether the guests need the modules of a devdax region.
func wantsDevdax(s *spec.Cluster) bool { return s.Region.Device == "devdax" }

// checkExports returns an error that names a directory which cannot be shown to the VMs, before anything is created.
func checkExports(s *spec.Cluster) error {
	check := func(what, path string, mode uint32) error {
		remedy := ""
		if what == "share" {
			remedy = ": leave it out (--no-share for the working directory)"
		}
		fi, err := os.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s cannot be shown to the VMs: %w", what, path, errors.Unwrap(err))
		case !fi.IsDir():
			return fmt.Errorf("%s %s cannot be shown to the VMs: it is not a directory", what, path)
		case unix.Access(path, mode&^unix.W_OK) != nil:
			return fmt.Errorf("%s %s cannot be shown to the VMs: you may not read it (mode %v)%s", what, path, fi.Mode(), remedy)
		case unix.Access(path, mode) != nil:
			return fmt.Errorf("%s %s cannot be shown to the VMs: you may not write to it (mode %v): share it read-only (--share %[2]s:ro, or mode: ro)", what, path, fi.Mode())
		}
		return nil
	}
	if s.Root != "host" && s.Root != spec.RootBackend {
		if err := check("root", s.Root, unix.R_OK|unix.X_OK); err != nil {
			return err
		}
		if fi, err := os.Stat(s.Root + "/bin/sh"); err != nil || fi.IsDir() {
			if fi, err := os.Lstat(s.Root + "/bin/sh"); err != nil || fi.Mode()&os.ModeSymlink == 0 {
				return fmt.Errorf("root %s has no /bin/sh: it is not the root of a system", s.Root)
			}
		}
	}
	for _, sh := range s.Shares {
		mode := uint32(unix.R_OK | unix.X_OK)
		if sh.Mode != "ro" {
			mode |= unix.W_OK
		}
		if err := check("share", sh.Path, mode); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		if err := s.WritesAsRoot(); err != nil {
			return err
		}
	}
	return nil
}

// checkMemory returns an error if the host's free ordinary memory is less than the plan needs. Huge pages do not
// count, because the plan itself checks how many are free.
func checkMemory(p *plan.Plan) error {
	have, err := host.AvailableMemory()
	if err != nil {
		return nil // an unknown size is not the user's fault
	}
	return shortOf(p, have)
}

// shortOf returns an error with the difference if have bytes of ordinary memory are less than the plan needs.
func shortOf(p *plan.Plan, have uint64) error {
	var need uint64
	for i := range p.VMs {
		need += ordinaryBytes(&p.VMs[i])
	}
	if p.Region != nil && p.Region.Backing == "shm" {
		need += p.Region.SizeBytes
	}
	if have >= need {
		return nil
	}
	each := have / uint64(len(p.VMs)) / (64 << 20) * (64 << 20)
	return fmt.Errorf("no memory for the VMs: %d VMs need %s together and %s is available; --memory %s would fit",
		len(p.VMs), spec.Size(need), roundSize(have), spec.Size(each))
}

// ordinaryBytes returns a VM's use of its host's ordinary pages, in bytes.
func ordinaryBytes(vm *plan.VM) uint64 {
	n := vm.MemoryBytes
	for i := range vm.Nodes {
		if vm.Nodes[i].PageBytes > 0 {
			n -= min(n, vm.Nodes[i].MemoryBytes)
		}
	}
	return n
}

// roundSize rounds n bytes down to whole MiB, for messages.
func roundSize(n uint64) spec.Size { return spec.Size(n / (1 << 20) * (1 << 20)) }

// makeRegion creates the plan's region; it returns nil if the plan has none.
func makeRegion(r *plan.Region, id region.ID) (*region.Region, error) {
	if r == nil {
		return nil, nil
	}
	return region.Create(region.Options{
		SizeBytes: r.SizeBytes, Backing: r.Backing, HostNode: r.HostNode,
		Devdax: r.Device == "devdax", Cluster: id,
	})
}
