package libvirt

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/domain"
	"nearmetal/internal/backend/libvirt/daemon"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/test/golden"
)

func vmOf(vcpus int) plan.VM {
	return plan.VM{Name: "vm0", VCPUs: vcpus, Sockets: 1, Dies: 1, Cores: vcpus, Threads: 1, MemoryBytes: 2 << 30}
}

// TestGolden compares the domains of VMs, each valid by libvirt's own schema. The sockets and the PID in them are
// replaced by fixed values.
func TestGolden(t *testing.T) {
	pinned := vmOf(2)
	pinned.Pins, pinned.EmulatorCPUs = [][]int{{2}, {3}}, []int{0}
	exports := []backend.Export{{Tag: "root", Path: "/", ReadOnly: true, Veiled: true}, {Tag: "share0", Path: "/home/ann&bob"}}
	links := []backend.Link{
		{Kind: backend.LinkStream, MAC: "52:54:00:4d:00:01", MTU: 65521},
		{Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true},
	}
	for _, c := range []struct {
		name    string
		session bool
		vm      plan.VM
		set     backend.Settings
	}{
		{"session-tcg", true, vmOf(1), backend.Settings{Accel: host.TCG, TSCKHz: 2500000, PVH: true, Exports: exports, Links: links,
			Region: &plan.Region{SizeBytes: 64 << 20, Backing: "shm", Device: "ivshmem", HostNode: -1}}},
		{"system-kvm", false, pinned, backend.Settings{Accel: host.KVM, Exports: exports, KernelArgs: []string{"loglevel=7"},
			Links:  []backend.Link{{Kind: backend.LinkTap, MAC: "52:54:00:4d:00:01"}, {Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01"}},
			Region: &plan.Region{SizeBytes: 256 << 20, Backing: "shm", Device: "devdax", HostNode: 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &driver{address: daemon.Address{Session: c.session}, found: found{emulator: "/usr/bin/qemu-system-x86_64", qboot: "/usr/share/qemu/qboot.rom"}}
			p := places{owner: 4711, sockets: map[string]string{}}
			for _, what := range socketsFor(c.set) {
				p.sockets[what] = "/run/user/1000/nearmetal/demo/0123abcd." + what
			}
			x, err := d.machine(c.vm, c.set, identity{"demo-vm0", nameless.uuid, "demo"}, p)
			if err != nil {
				t.Fatal(err)
			}
			text, err := domain.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			// The domain contains the user who runs the test.
			text = strings.Replace(text, labelOf(), "+1000:+1000", 1)
			golden.Check(t, "testdata/golden/"+c.name+".xml", text)
			if _, err := exec.LookPath("virt-xml-validate"); err != nil {
				t.Skip("no virt-xml-validate: sh scripts/install.sh libvirt")
			}
			path := filepath.Join(t.TempDir(), "domain.xml")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("virt-xml-validate", path, "domain").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestRefused: a setting that a domain cannot have is an error before anything is made.
func TestRefused(t *testing.T) {
	d := &driver{}
	for want, s := range map[string]backend.Settings{
		"isolation=strict":       {Strict: true},
		"by 9p only":             {Exports: []backend.Export{{Tag: "root", Path: "/", Kind: backend.ExportVirtiofs}}},
		"unknown kind":           {Links: []backend.Link{{Kind: backend.LinkOwn}}},
		"at most 13":             {Links: make([]backend.Link, 14)},
		"unknown device \"cxl\"": {Region: &plan.Region{Device: "cxl", SizeBytes: 1 << 20, Backing: "shm"}},
		"control characters":     {KernelArgs: []string{"a\nb"}},
		"are not 1 sockets":      {},
	} {
		vm := vmOf(2)
		if want == "are not 1 sockets" {
			vm.Cores = 3
		}
		if err := d.Check(vm, s); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestNames(t *testing.T) {
	t.Setenv("LIBVIRT_DEFAULT_URI", "")
	own := "libvirt:qemu:///system"
	if os.Geteuid() != 0 {
		own = "libvirt:qemu:///session"
	}
	for name, want := range map[string]string{
		"libvirt":                                 own,
		"libvirt:///session":                      "libvirt:qemu:///session",
		"libvirt:qemu:///system":                  "libvirt:qemu:///system",
		"qemu:///system":                          "libvirt:qemu:///system",
		"qemu:///session?socket=/tmp/a%20b/s":     "libvirt:qemu:///session?socket=%2Ftmp%2Fa+b%2Fs",
		"libvirt:xen:///system":                   "",
		"libvirt:":                                "",
		"qemu:///elsewhere":                       "",
		"libvirt:qemu+ssh://host/system":          "",
		"libvirt:qemu://host/system":              "",
		"libvirt:qemu:///system?socket=relative":  "",
		"libvirt:qemu:///system?command=/bin/sh":  "",
		"libvirt:qemu:///system?socket=/a&socket": "",
	} {
		a, err := parse(name)
		if (err != nil) != (want == "") || err == nil && nameOf(a) != want {
			t.Errorf("%s: %v, %v; want %q", name, nameOf(a), err, want)
		}
		if err == nil {
			if again, err := parse(nameOf(a)); err != nil || again != a {
				t.Errorf("%s: again %v, %v", name, again, err)
			}
			if backend.Scheme(name) != "libvirt" {
				t.Errorf("%s is of %s", name, backend.Scheme(name))
			}
		}
	}
}

// TestCaps: a feature that a QEMU lacks is missing in the caps, with a reason.
func TestCaps(t *testing.T) {
	all := found{emulator: "/q", devices: `name "virtio-9p-pci", bus PCI` + "\n" + `name "ivshmem-plain"` + "\n" + `name "nvdimm"` + "\n" + `name "vfio-pci"`, netdevs: "Available:\nstream\nuser\nhubport\n"}
	c := all.caps(daemon.Address{})
	if len(c.Exports) != 1 || len(c.Regions) != 2 || len(c.Links) != 3 || !c.Filter || !c.VFIO || c.DiesWithOwner || c.Jail {
		t.Errorf("%+v", c)
	}
	if c := all.caps(daemon.Address{Session: true}); c.VFIO || c.Why[backend.CapVFIO] == "" {
		t.Errorf("session: %+v", c)
	}
	none := found{emulator: "/q"}
	c = none.caps(daemon.Address{})
	for _, k := range []backend.Cap{backend.CapHostFiles, backend.CapIvshmem, backend.CapDevdax, backend.CapUserNetwork, backend.CapJail, backend.CapVirtiofs} {
		if c.Why[k] == "" {
			t.Errorf("no reason for %q", k)
		}
	}
	if len(c.Exports)+len(c.Regions)+len(c.Links) > 0 {
		t.Errorf("%+v", c)
	}
}
