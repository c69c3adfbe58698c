package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/guest/image"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/internal/region"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// prepared is what is known and made before the first VM starts.
type prepared struct {
	caps   qemu.Caps
	accel  host.Accel
	tsc    int // kHz, 0 where it is not used
	kernel image.Kernel
	image  *image.Image
	host   *topology.Host
	plan   *plan.Plan // made by place
}

// prepare finds out what the host has. Its parts do not depend on one
// another and take some 0.1 s each when they are not cached: they run side by side.
func prepare(ctx context.Context, o Options, notice func(string)) (*prepared, error) {
	p := &prepared{}
	s := o.Spec
	var reason string
	if err := checkExports(s); err != nil {
		return nil, err
	}
	err := together(
		func() error {
			path, err := qemu.Find(s.QEMU)
			if err == nil {
				p.caps, err = qemu.Probe(ctx, path)
			}
			return err
		},
		func() (err error) {
			p.accel, reason, err = host.DetectAccel(s.Accel)
			if err == nil && p.accel == host.TCG {
				if khz, ok := host.TSCKHz(); ok {
					p.tsc = khz
				}
			}
			return err
		},
		func() (err error) {
			p.host, err = topology.Read("/")
			return err
		},
		func() error {
			k, err := image.FindKernel(s.Kernel)
			if err == nil {
				p.kernel = k
				p.image, err = image.Open(image.Request{Kernel: k, Devdax: wantsDevdax(s), Modules: rdmaModules(s), Notice: notice})
			}
			return err
		},
	)
	if err != nil {
		p.close()
		return nil, err
	}
	notice(reason)
	if s.Region.Device == "auto" {
		s.Region.Device = regionDevice(s)
	}
	// What the plan does with CPUs depends on it: pinning means something under KVM only.
	s.Accel = string(p.accel)
	return p, nil
}

// place makes the plan of the cluster and writes it into the record, where the planning of
// the next cluster finds it: two that are planned at the same time wait for each other.
func (c *Cluster) place(p *prepared, o Options, notice func(string)) error {
	s := o.Spec
	b, err := lockBase(filepath.Dir(c.dir))
	if err != nil {
		return err
	}
	defer b.Close()
	var ledger plan.Ledger
	running, err := List()
	if err != nil {
		return err
	}
	for i := range running {
		if r := &running[i]; r.Plan != nil && r.State != Dead {
			ledger.Hold(r.Plan)
		}
	}
	if c.devices, err = findDevices(s, o.Devices); err != nil {
		return err
	}
	if p.plan, err = c.devices.planned(s, p.host, ledger); err != nil {
		return err
	}
	if err := checkMemory(p.plan); err != nil {
		return err
	}
	if err := checkLocked(p.plan); err != nil {
		return err
	}
	for _, w := range p.plan.Warnings {
		notice(w)
	}
	return c.write(func(r *Record) { r.Accel, r.Plan = string(p.accel), p.plan })
}

func (p *prepared) close() {
	if p.image != nil {
		p.image.Close()
	}
}

// together runs the functions side by side and gives their errors, joined.
func together(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = f()
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// rdmaModules are the modules of a guest with soft RoCE: the device, and what programs open.
func rdmaModules(s *spec.Cluster) []string {
	if s.Network.Type != "rxe" {
		return nil
	}
	return []string{"rdma_rxe", "ib_uverbs", "rdma_ucm"}
}

// wantsDevdax tells whether the guests need the modules of a devdax region.
func wantsDevdax(s *spec.Cluster) bool {
	return s.Region.Device == "devdax" || s.Region.Device == "auto" && regionDevice(s) == "devdax"
}

// regionDevice chooses how a region is shown where the user leaves it open. On AMD, KVM
// honours the guest's uncached mapping of a PCI BAR, and the region would be some hundred
// times slower; a devdax device is mapped write-back everywhere. Elsewhere ivshmem is in
// effect write-back and costs no time at boot.
func regionDevice(s *spec.Cluster) string {
	accel, _, err := host.DetectAccel(s.Accel)
	if err == nil && accel == host.KVM && cpuVendor() == "AuthenticAMD" {
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

// checkExports says which directory cannot be shown to the VMs, before anything is made.
func checkExports(s *spec.Cluster) error {
	check := func(what, path string, mode uint32) error {
		fi, err := os.Stat(path)
		switch {
		case err != nil:
			return fmt.Errorf("%s %s cannot be shown to the VMs: %w", what, path, errors.Unwrap(err))
		case !fi.IsDir():
			return fmt.Errorf("%s %s cannot be shown to the VMs: it is not a directory", what, path)
		case unix.Access(path, mode) != nil:
			return fmt.Errorf("%s %s cannot be shown to the VMs: you may not read it, or not write to it (mode %v)", what, path, fi.Mode())
		}
		return nil
	}
	if s.Root != "host" {
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
	return nil
}

// checkMemory says by how much the host's free memory falls short of the plan.
func checkMemory(p *plan.Plan) error {
	var need uint64
	for _, vm := range p.VMs {
		need += vm.MemoryBytes
	}
	if p.Region != nil && p.Region.Backing == "shm" {
		need += p.Region.SizeBytes
	}
	have, err := host.AvailableMemory()
	if err != nil || have >= need {
		return nil // what cannot be read is not held against the user
	}
	each := have / uint64(len(p.VMs)) / (64 << 20) * (64 << 20)
	return fmt.Errorf("no memory for the VMs: %d VMs need %s together and %s is available; --memory %s would fit",
		len(p.VMs), spec.Size(need), roundSize(have), spec.Size(each))
}

// roundSize is n bytes in whole MiB, for messages.
func roundSize(n uint64) spec.Size { return spec.Size(n / (1 << 20) * (1 << 20)) }

// makeRegion makes the plan's region; nil where it has none.
func makeRegion(r *plan.Region, id region.ID) (*region.Region, error) {
	if r == nil {
		return nil, nil
	}
	return region.Create(region.Options{
		SizeBytes: r.SizeBytes, Backing: r.Backing, HostNode: r.HostNode,
		Devdax: r.Device == "devdax", Cluster: id,
	})
}
