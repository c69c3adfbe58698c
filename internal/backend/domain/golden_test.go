package domain

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend"
	"nearmetal/internal/backend/lower"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/test/golden"
	"nearmetal/test/plans"
)

// TestGolden compares the domains of each plan that package plan keeps a golden file of, and validates them with
// libvirt's own schema.
func TestGolden(t *testing.T) {
	for _, file := range plans.Files(t, "../../plan") {
		name := plans.Name(file)
		if name == "grace" {
			continue // not an x86-64 host
		}
		t.Run(name, func(t *testing.T) {
			p, _ := plans.Make(t, file)
			domains, err := Files(p, backend.Settings{Accel: host.KVM, Region: p.Region})
			if err != nil {
				t.Fatal(err)
			}
			all := ""
			for _, d := range domains {
				all += d.XML
			}
			golden.Check(t, "testdata/golden/"+name+".xml", all)
			validate(t, domains)
		})
	}
}

// validate runs libvirt's own check of domains, all in one process.
func validate(t *testing.T, domains []File) {
	t.Helper()
	if _, err := exec.LookPath("virt-xml-validate"); err != nil {
		t.Skip("no virt-xml-validate: sh scripts/install.sh libvirt")
	}
	for _, d := range domains {
		path := filepath.Join(t.TempDir(), "domain.xml")
		if err := os.WriteFile(path, []byte(d.XML), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("virt-xml-validate", path, "domain").CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", d.Name, err, out)
		}
	}
}

// TestShapes covers what package qemu keeps golden files of in addition to plans: regions, dies, wide addresses, TCG.
func TestShapes(t *testing.T) {
	vm := func(vcpus int) plan.VM {
		return plan.VM{Name: "vm0", Host: "h", VCPUs: vcpus, Sockets: 1, Dies: 1, Cores: vcpus, Threads: 1, MemoryBytes: 2 << 30}
	}
	region := &plan.Region{SizeBytes: 64 << 20, Backing: "shm", Device: "ivshmem", HostNode: -1}
	devdax := &plan.Region{SizeBytes: 256 << 20, Backing: "shm", Device: "devdax", HostNode: 0}
	dies := vm(8)
	dies.Dies, dies.Cores = 2, 4
	wide := vm(8)
	wide.Sockets, wide.Cores = 2, 4
	wide.Nodes = []plan.Node{
		{ID: 0, VCPUs: []int{0, 1, 2, 3}, MemoryBytes: 1 << 30, PageBytes: 1 << 30, HostNodes: []int{0}, Distances: []int{10, 21}},
		{ID: 1, VCPUs: []int{4, 5, 6, 7}, MemoryBytes: 1 << 30, HostNodes: []int{2, 3}, Distances: []int{21, 10}},
	}
	wide.Devices = []plan.Device{
		{Kind: "vfio", Address: "0000:41:10.0", Node: 1, BARBytes: 1 << 40},
		{Kind: "vfio", Address: "0000:41:10.1", Node: 1},
		{Kind: "vfio", Address: "0001:01:00.0", Node: -1},
	}
	huge := vm(288)
	huge.Sockets, huge.Cores, huge.Threads = 2, 72, 2
	hugeWithVF := huge
	hugeWithVF.Devices = []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: -1}}
	for _, c := range []struct {
		name string
		vm   plan.VM
		set  backend.Settings
	}{
		{"tcg-one-vcpu", vm(1), backend.Settings{Accel: host.TCG, Region: region}},
		{"kvm-devdax", vm(2), backend.Settings{Accel: host.KVM, Region: devdax}},
		{"kvm-dies", dies, backend.Settings{Accel: host.KVM}},
		{"kvm-slow-strings", dies, backend.Settings{Accel: host.KVM, SlowStrings: true}},
		{"kvm-expanders", wide, backend.Settings{Accel: host.KVM, Region: region}},
		{"kvm-288", huge, backend.Settings{Accel: host.KVM}},
		{"kvm-288-vf", hugeWithVF, backend.Settings{Accel: host.KVM}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := Files(&plan.Plan{Cluster: "c", VMs: []plan.VM{c.vm}}, c.set)
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/golden/shape-"+c.name+".xml", files[0].XML)
			validate(t, files)
		})
	}
}

// TestRefused: a plan that libvirt cannot carry out is a one-line error.
func TestRefused(t *testing.T) {
	good := plan.VM{Name: "vm0", VCPUs: 2, Sockets: 1, Dies: 1, Cores: 2, Threads: 1, MemoryBytes: 2 << 30}
	bad := func(change func(*plan.VM)) plan.VM { v := good; change(&v); return v }
	for _, c := range []struct {
		vm   plan.VM
		set  backend.Settings
		want string
	}{
		{good, backend.Settings{Region: &plan.Region{SizeBytes: 1 << 20, Device: "ivshmem", Backing: "hugetlb"}}, "always a file in /dev/shm"},
		{bad(func(v *plan.VM) { v.Cores = 3 }), backend.Settings{}, "2 vCPUs are not"},
		{bad(func(v *plan.VM) { v.MemoryBytes++ }), backend.Settings{}, "a multiple of 1 MiB"},
		{bad(func(v *plan.VM) { v.Nodes = []plan.Node{{ID: 1}} }), backend.Settings{}, "numbered from 0"},
		{bad(func(v *plan.VM) { v.Devices = []plan.Device{{Address: "0000:00:20.0", Node: -1}} }), backend.Settings{}, "not a PCI address"},
		{bad(func(v *plan.VM) { v.Devices = []plan.Device{{Address: "x", Node: -1}} }), backend.Settings{}, "not a PCI address"},
	} {
		_, err := Make("d", "r", &c.vm, c.set)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

func TestMachine(t *testing.T) {
	for name, want := range map[string]string{"": "pc", "pc": "pc", "rhel6.4.0": "pc", "pc-i440fx-7.2": "pc", "q35": "q35", "pc-q35-7.2": "q35", "microvm": "microvm"} {
		if got := Machine(&libvirtxml.Domain{OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Machine: name}}}); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Machine(&libvirtxml.Domain{}); got != "pc" {
		t.Errorf("%q", got)
	}
}

// TestAddDevicesAgain: a device added to a domain with an expander gets an expander of its own, with another bus
// number. A network card that is a VF is moved, and not added again. A larger window stays.
func TestAddDevicesAgain(t *testing.T) {
	d := &libvirtxml.Domain{}
	if err := d.Unmarshal(`<domain type='kvm'><devices><controller type='pci' index='0' model='pcie-root'><pcihole64 unit='KiB'>4294967296</pcihole64></controller>
<interface type='hostdev'><source><address type='pci' domain='0' bus='0x41' slot='0x10' function='0'/></source></interface></devices></domain>`); err != nil {
		t.Fatal(err)
	}
	vm := plan.VM{VCPUs: 2, Sockets: 2, Dies: 1, Cores: 1, Threads: 1, Nodes: []plan.Node{{ID: 0, VCPUs: []int{0}}, {ID: 1, VCPUs: []int{1}}}}
	for i, address := range []string{"0000:41:10.0", "0000:41:10.1"} {
		vm.Devices = []plan.Device{{Address: address, Node: i, BARBytes: 64 << 30}}
		if err := AddDevices(d, &vm, lower.Of(&vm)); err != nil {
			t.Fatal(err)
		}
	}
	var buses []uint
	for _, c := range d.Devices.Controllers {
		if c.PCI != nil && c.PCI.Target != nil && c.PCI.Target.BusNr != nil {
			buses = append(buses, *c.PCI.Target.BusNr)
		}
	}
	if len(buses) != 2 || buses[0] != 64 || buses[1] < 80 || buses[1] > 250 {
		t.Errorf("buses %v", buses)
	}
	if n := d.Devices.Interfaces[0].Address; n == nil || n.PCI == nil || len(d.Devices.Hostdevs) != 1 {
		t.Errorf("%+v, and host devices %+v", n, d.Devices.Hostdevs)
	}
	if hole := d.Devices.Controllers[0].PCI.Hole64; hole.Size != 4294967296 {
		t.Errorf("%+v", hole)
	}
}
