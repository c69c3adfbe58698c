package backend

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/host"
	"nearmetal/internal/spec"
)

// TestSeam: no package below internal names a driver, except backend/all; and no driver names another.
func TestSeam(t *testing.T) {
	const drivers = "nearmetal/internal/backend/"
	shared := []string{drivers + "all", drivers + "qemufacts", drivers + "lower", drivers + "domain", drivers + "console", drivers + "vsphere/esx",
		drivers + "openstack",      // renders plans, and is not a driver
		drivers + "libvirt/daemon"} // connects to a libvirtd, also for packages other than the driver
	files := 0
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		for _, i := range f.Imports {
			name := strings.Trim(i.Path.Value, `"`)
			if strings.HasPrefix(name, drivers) && !slices.Contains(shared, name) && filepath.Dir(path) != "../backend/all" {
				t.Errorf("%s imports %s", path, name)
			}
		}
		return nil
	})
	if err != nil || files < 100 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestOpen(t *testing.T) {
	if _, err := Open("nowhere:///x"); err == nil || err.Error() != `unknown backend "nowhere" (have none)` {
		t.Errorf("%v", err)
	}
	got := ""
	Register("seam-test", func(name string) (Driver, error) { got = name; return nil, nil })
	if _, err := Open("seam-test://there"); err != nil || got != "seam-test://there" {
		t.Errorf("%q, %v", got, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a second driver of the name was taken")
		}
	}()
	Register("seam-test", nil)
}

func TestKnown(t *testing.T) {
	Register("known-a", func(string) (Driver, error) { return nil, nil })
	for _, name := range []string{"", "known-a", "known-a:there"} {
		if err := Known(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := Known("known-b:there"); err == nil || !strings.HasPrefix(err.Error(), `unknown backend "known-b" (have known-a`) {
		t.Errorf("%v", err)
	}
}

// all is a driver that lacks nothing.
func all() *Probed {
	return &Probed{Accel: host.KVM, RegionDevice: "ivshmem", Caps: Caps{Links: []LinkKind{LinkStream, LinkTap, LinkUser},
		Exports: []ExportKind{Export9p, ExportVirtiofs}, OwnDisk: true, Regions: []string{"ivshmem", "devdax"}, VFIO: true, Dynamic: true, Pins: true, DirectKernel: true,
		Veil: true, Sandbox: true, Filter: true, Jail: true}}
}

// TestFitSettles: Fit settles values that a file leaves open by the available capabilities.
func TestFitSettles(t *testing.T) {
	s := file()
	if err := Fit(s, all()); err != nil || s.Accel != "kvm" || s.Files != "9p" || s.Region.Device != "ivshmem" || s.Region.Size != nil || s.Network.Uplink != "user" || s.Placement.Pin != "auto" {
		t.Errorf("%v, %+v", err, s)
	}
	p := all()
	p.Caps.Links, p.Caps.Regions, p.Caps.Pins, p.Caps.VFIO, p.Caps.DirectKernel = []LinkKind{LinkStream}, nil, false, false, false
	p.Caps.Exports = []ExportKind{ExportVirtiofs}
	s = file()
	if err := Fit(s, p); err != nil || s.Files != "virtiofs" || s.Region.Size == nil || *s.Region.Size != 0 || s.Network.Uplink != "none" || s.Placement.Pin != "never" {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestFitLacks: missing capabilities that a file requires are named with the setting that requires them, all in one
// line.
func TestFitLacks(t *testing.T) {
	size := spec.Size(1 << 20)
	for _, x := range []struct {
		file func(*spec.Cluster)
		caps func(*Caps)
		want string
	}{
		{nil, func(c *Caps) { c.Exports = nil }, "show files of this host to VMs, which root: host needs"},
		{func(s *spec.Cluster) { s.Root = "/srv/x" }, func(c *Caps) { c.Exports = nil }, "which root: /srv/x needs"},
		{nil, func(c *Caps) { c.Exports, c.OwnDisk = nil, true }, "which root: host needs: write root: backend, and no shares"},
		{func(s *spec.Cluster) { s.Root = spec.RootBackend }, func(c *Caps) { c.OwnDisk = false }, "start VMs from a disk of its own, which root: backend needs"},
		{func(s *spec.Cluster) { s.Files = "9p" }, func(c *Caps) { c.Exports = []ExportKind{ExportVirtiofs} }, "show files of this host by 9p, which files: 9p needs"},
		{func(s *spec.Cluster) { s.Files = "virtiofs" }, func(c *Caps) { c.Exports = []ExportKind{Export9p} }, "show files of this host by virtiofs, which files: virtiofs needs"},
		{nil, func(c *Caps) { c.Links = nil }, "join VMs by links between them, which network: auto needs"},
		{func(s *spec.Cluster) { s.Network.Type = "bridge" }, func(c *Caps) { c.Links = []LinkKind{LinkStream} }, "join VMs to a bridge, which network: bridge needs"},
		{func(s *spec.Cluster) { s.Network.Uplink = "user" }, func(c *Caps) { c.Links = []LinkKind{LinkStream} }, "which network: {uplink: user} needs"},
		{func(s *spec.Cluster) { s.Region.Device = "devdax" }, func(c *Caps) { c.Regions = []string{"ivshmem"} }, "show the region as a devdax device"},
		{func(s *spec.Cluster) { s.Region.Device = "ivshmem" }, func(c *Caps) { c.Regions = []string{"devdax"} }, "show the region as an ivshmem device"},
		{func(s *spec.Cluster) { s.Region.Size = &size }, func(c *Caps) { c.Regions = nil }, "share memory between VMs, which region: 1MiB needs"},
		{func(s *spec.Cluster) { s.VMs[0].Devices = []spec.Device{{}} }, func(c *Caps) { c.VFIO = false }, "pass devices of the host through, which devices of vm needs"},
		{func(s *spec.Cluster) { s.VMs[0].Devices = []spec.Device{{Dynamic: true}} }, func(c *Caps) { c.Dynamic = false }, "choose a function of the host when a VM starts, which dynamic: true of vm needs"},
		{func(s *spec.Cluster) { s.Placement.Pin = "always" }, func(c *Caps) { c.Pins = false }, "which placement: {pin: always} needs"},
		{func(s *spec.Cluster) { s.Kernel = "/boot/vmlinuz" }, func(c *Caps) { c.DirectKernel = false }, "start a kernel of this host's, which kernel: /boot/vmlinuz needs"},
		{func(s *spec.Cluster) { s.KernelArgs = []string{"quiet"} }, func(c *Caps) { c.DirectKernel = false }, "which kernelArgs needs"},
	} {
		s, p := file(), all()
		if x.file != nil {
			x.file(s)
		}
		before := *s
		if err := Fit(&before, all()); err != nil {
			t.Errorf("%s: with all of it: %v", x.want, err)
		}
		x.caps(&p.Caps)
		err := Fit(s, p)
		lacks, ok := err.(Lacks)
		if !ok || len(lacks) != 1 || !strings.HasPrefix(err.Error(), "backend x cannot ") || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	s := file()
	s.Placement.Pin = "always"
	err := Fit(s, &Probed{Caps: Caps{Why: map[Cap]string{CapPins: "it is elsewhere"}}})
	if lacks, ok := err.(Lacks); !ok || len(lacks) != 3 || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "pin: always} needs: it is elsewhere") {
		t.Errorf("%v", err)
	}
}

// file returns a cluster file of two VMs with its defaults.
func file() *spec.Cluster {
	s := &spec.Cluster{Backend: "x:there", VMs: []spec.Group{{Name: "vm", Count: 2}}}
	spec.Defaults(s)
	return s
}
