package qemu

import (
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
)

// TestBuildErrors changes one part of a good VM at a time: each is rejected with one line that names the part.
func TestBuildErrors(t *testing.T) {
	type vmEdit = func(*plan.VM)
	type setEdit = func(*backend.Settings)
	type capsEdit = func(*Caps)
	twoNodes := func(v *plan.VM) {
		v.VCPUs, v.Cores, v.MemoryBytes = 2, 2, 1024*mib
		v.Nodes = []plan.Node{{ID: 0, VCPUs: []int{0}, MemoryBytes: 512 * mib}, {ID: 1, VCPUs: []int{1}, MemoryBytes: 512 * mib}}
	}
	with := func(f ...vmEdit) vmEdit {
		return func(v *plan.VM) {
			for _, g := range f {
				g(v)
			}
		}
	}
	without := func(device string) capsEdit {
		return func(c *Caps) {
			c.Devices = slices.DeleteFunc(slices.Clone(c.Devices), func(d string) bool { return d == device })
		}
	}
	for _, tt := range []struct {
		name string
		edit any
		want string
	}{
		{"name", vmEdit(func(v *plan.VM) { v.Name = "vm0,x" }), "VM name"},
		{"empty name", vmEdit(func(v *plan.VM) { v.Name = "" }), "VM name"},
		{"no vCPU", vmEdit(func(v *plan.VM) { v.VCPUs = 0 }), "0 vCPUs"},
		{"topology", vmEdit(func(v *plan.VM) { v.VCPUs = 3 }), "3 vCPUs are not 1 sockets"},
		{"too many vCPUs", vmEdit(func(v *plan.VM) { v.VCPUs, v.Cores, v.Sockets = 400, 200, 2 }), "each from 1 to 288"},
		{"huge topology", vmEdit(func(v *plan.VM) { v.Sockets, v.Cores = 288, 288 }), "at most 288"},
		{"no memory", vmEdit(func(v *plan.VM) { v.MemoryBytes = 0 }), "at least 96M"},
		{"memory", vmEdit(func(v *plan.VM) { v.MemoryBytes++ }), "a multiple of 1 MiB"},
		{"too much memory", vmEdit(func(v *plan.VM) { v.MemoryBytes = 1 << 50 }), "at most 64 TiB"},
		{"node twice", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].ID = 0 })), "node 0: nodes are numbered from 0 to 1"},
		{"vCPU twice", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].VCPUs = []int{0} })), "node 1: vCPU 0"},
		{"vCPU nowhere", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].VCPUs = nil })), "1 of 2 vCPUs are of no node"},
		{"node memory", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].MemoryBytes = 256 * mib })), "the nodes' memory is 768M, the VM's 1024M"},
		{"pages", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].PageBytes = 3 })), "node 1: pages of 3 bytes"},
		{"broken pages", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].PageBytes = 1 << 30 })), "not a whole number of pages"},
		{"host node", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].HostNodes = []int{-1} })), "node 1: host node -1"},
		{"distances", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].Distances = []int{20} })), "node 1: 1 distances for 2 nodes"},
		{"own distance", vmEdit(with(twoNodes, func(v *plan.VM) { v.Nodes[1].Distances = []int{20, 20} })), "node 1: distances are 10"},
		{"device kind", vmEdit(func(v *plan.VM) { v.Devices = []plan.Device{{Kind: "usb", Node: -1}} }), `unknown kind "usb"`},
		{"device address", vmEdit(func(v *plan.VM) { v.Devices = []plan.Device{{Kind: "vfio", Address: "41:10.0,x=y", Node: -1}} }), "not a PCI address"},
		{"device node", vmEdit(func(v *plan.VM) { v.Devices = []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: 3}} }), "there is no node 3"},
		{"too many devices", vmEdit(with(twoNodes, func(v *plan.VM) {
			v.Devices = make([]plan.Device, 200)
			for i := range v.Devices {
				v.Devices[i] = plan.Device{Kind: "vfio", Address: "0000:41:10.0", Node: 1}
			}
		})), "more devices than there are PCI buses for"},
		{"MMIO", vmEdit(func(v *plan.VM) {
			v.Devices = []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: -1, BARBytes: 1 << 46}}
		}), "MMIO window"},

		{"accelerator", setEdit(func(s *backend.Settings) { s.Accel = "xen" }), "is built without xen"},
		{"tag", setEdit(func(s *backend.Settings) { s.Exports = []backend.Export{{Tag: "a,b", Path: "/"}} }), "mount tag"},
		{"tag twice", setEdit(func(s *backend.Settings) { s.Exports = []backend.Export{{Tag: "a", Path: "/"}, {Tag: "a", Path: "/x"}} }), "two exports"},
		{"relative export", setEdit(func(s *backend.Settings) { s.Exports = []backend.Export{{Tag: "a", Path: "x"}} }), "not a clean absolute path"},
		{"unclean export", setEdit(func(s *backend.Settings) { s.Exports = []backend.Export{{Tag: "a", Path: "/x/../y"}} }), "not a clean absolute path"},
		{"MAC", setEdit(func(s *backend.Settings) { s.Links = []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00,x=y"}} }), "not a unicast MAC"},
		{"multicast MAC", setEdit(func(s *backend.Settings) {
			s.Links = []backend.Link{{Kind: backend.LinkUser, MAC: "01:54:00:00:00:01"}}
		}), "not a unicast MAC"},
		{"MTU", setEdit(func(s *backend.Settings) {
			s.Links = []backend.Link{{Kind: backend.LinkUser, MAC: "52:54:00:00:00:01", MTU: 70000}}
		}), "MTU 70000"},
		{"link kind", setEdit(func(s *backend.Settings) { s.Links = []backend.Link{{Kind: "pigeon", MAC: "52:54:00:00:00:01"}} }), "no network of the kind pigeon"},
		{"region size", setEdit(func(s *backend.Settings) { s.Region = &plan.Region{SizeBytes: 3 * mib, Device: "ivshmem"} }), "a power of two"},
		{"region device", setEdit(func(s *backend.Settings) { s.Region = &plan.Region{SizeBytes: mib, Device: "floppy"} }), `unknown device "floppy"`},
		{"kernel argument", setEdit(func(s *backend.Settings) { s.KernelArgs = []string{"a\nb"} }), "control characters"},
		{"long command line", setEdit(func(s *backend.Settings) { s.KernelArgs = []string{strings.Repeat("x", 3000)} }), "at most 2047"},

		{"no q35", capsEdit(func(c *Caps) { c.Q35 = false }), "no machine type q35"},
		{"no tcg", capsEdit(func(c *Caps) { c.Accels = []string{"kvm"} }), "built without tcg"},
		{"no 9p", without("virtio-9p-pci"), "has no virtio-9p-pci"},
		{"no virtiofsd", setEdit(func(s *backend.Settings) { s.Exports[0].Kind = backend.ExportVirtiofs }), "files: virtiofs: install virtiofsd"},
		{"virtiofs in a jail", setEdit(func(s *backend.Settings) {
			s.Strict, s.Exports[0].Veiled, s.Exports[0].Kind = true, true, backend.ExportVirtiofs
		}), "files: virtiofs: install virtiofsd"},
		{"no ivshmem", without("ivshmem-plain"), "region: {device: devdax}"},
		{"no port", without("virtserialport"), "install qemu-system-x86"},
		{"no stream", capsEdit(func(c *Caps) { c.Netdevs = []string{"user"} }), "no network of the kind stream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := onePlan()
			set := backend.Settings{
				Accel: host.TCG, PVH: true, Exports: []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}},
				Links:  []backend.Link{{Kind: backend.LinkStream, MAC: "52:54:00:00:00:01"}},
				Region: &plan.Region{SizeBytes: mib, Device: "ivshmem", HostNode: -1},
			}
			caps := capturedCaps(t, qemu72)
			if _, err := Build(vm, set, caps); err != nil {
				t.Fatalf("the good VM: %v", err)
			}
			switch edit := tt.edit.(type) {
			case vmEdit:
				edit(&vm)
			case setEdit:
				edit(&set)
			case capsEdit:
				edit(&caps)
			}
			_, err := Build(vm, set, caps)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %q", err, tt.want)
			}
		})
	}
}

// TestSpareCPU verifies the rule on which atomics between VMs depend.
func TestSpareCPU(t *testing.T) {
	for _, accel := range []host.Accel{host.TCG, host.KVM} {
		m, err := Build(onePlan(), backend.Settings{Accel: accel}, capturedCaps(t, qemu72))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(byOption(m.Args()), "-smp cpus=1,maxcpus=2,") {
			t.Errorf("%s: no room for a second CPU:\n%s", accel, byOption(m.Args()))
		}
	}
	if err := (smp{1, 1, 1, 1, 1}).Valid(); err == nil {
		t.Error("one possible CPU is valid")
	}
}

func TestRanges(t *testing.T) {
	for _, tt := range []struct {
		in   []int
		want string
	}{
		{nil, ""}, {[]int{3}, "3"}, {[]int{0, 1, 2}, "0-2"}, {[]int{5, 1, 0, 7, 8, 5}, "0-1 5 7-8"},
	} {
		if got := strings.Join(ranges(tt.in), " "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.in, got, tt.want)
		}
	}
}
