package qemu

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/plan"
	"nearmetal/test/golden"
)

// goldenCase is a VM whose command line is kept in testdata/golden.
type goldenCase struct {
	name string
	caps string
	vm   plan.VM
	set  backend.Settings
}

func goldenCases() []goldenCase {
	twoVMs := backend.Settings{
		Accel: host.TCG, TSCKHz: 2500000, PVH: true,
		KernelArgs: []string{"loglevel=7"},
		Exports:    []backend.Export{{Tag: "root", Path: "/", ReadOnly: true}, {Tag: "share0", Path: "/home/ann,bob"}},
		Links: []backend.Link{
			{Kind: backend.LinkStream, MAC: "52:54:00:4d:00:01", MTU: 65521},
			{Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01"},
		},
		Region: &plan.Region{SizeBytes: 64 * mib, Backing: "shm", Device: "ivshmem", HostNode: -1},
	}
	vm := func(name string, vcpus int) plan.VM {
		return plan.VM{Name: name, VCPUs: vcpus, Sockets: 1, Dies: 1, Cores: vcpus, Threads: 1, MemoryBytes: 2048 * mib}
	}
	kvm := twoVMs
	kvm.Accel = host.KVM
	pinned := vm("vm0", 2)
	pinned.Pins = [][]int{{2}, {3}}

	nodes := plan.VM{
		Name: "big", VCPUs: 8, Sockets: 2, Dies: 1, Cores: 2, Threads: 2, MemoryBytes: 12288 * mib,
		Nodes: []plan.Node{
			{ID: 0, VCPUs: []int{0, 1, 2, 3}, MemoryBytes: 4096 * mib, PageBytes: 2 << 20, HostNodes: []int{0}, Distances: []int{10, 21, 31}},
			{ID: 1, VCPUs: []int{4, 5, 6, 7}, MemoryBytes: 4096 * mib, PageBytes: 1 << 30, HostNodes: []int{2, 3}, Distances: []int{21, 10, 31}},
			{ID: 2, MemoryBytes: 4096 * mib, HostNodes: []int{4}, Distances: []int{31, 31, 10}}, // memory only
		},
		Devices: []plan.Device{
			{Kind: "vfio", Address: "0000:41:10.0", Node: 1},
			{Kind: "vfio", Address: "0000:41:10.1", Node: 1},
			{Kind: "vfio", Address: "0000:01:00.0", Node: -1, HideROM: true},
		},
	}
	expanders := nodes // with BARs that need a window, and wide addresses
	expanders.Devices = slices.Clone(nodes.Devices)
	for i := range expanders.Devices {
		expanders.Devices[i].BARBytes = 1 << 40
	}

	devdax := twoVMs
	devdax.Region = &plan.Region{SizeBytes: 256 * mib, Backing: "hugetlb", Device: "devdax", HostNode: 1}
	tap := backend.Settings{Accel: host.TCG, Links: []backend.Link{{Kind: backend.LinkTap, MAC: "52:54:00:4d:00:02", MTU: 9000}}}
	dies := vm("vm0", 8)
	dies.Dies, dies.Cores = 2, 4
	oneNode := vm("vm0", 2) // its device is on the VM's own root
	oneNode.Nodes = []plan.Node{{VCPUs: []int{0, 1}, MemoryBytes: 2048 * mib, HostNodes: []int{1}}}
	oneNode.Devices = []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: 0, HostNode: 1}}
	seabios := twoVMs
	seabios.PVH = false
	huge := vm("vm0", 288)
	huge.Sockets, huge.Cores, huge.Threads = 2, 72, 2
	hugeWithVF := huge
	hugeWithVF.Devices = []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: -1, HostNode: -1}}

	virtiofs := func(s backend.Settings) backend.Settings {
		s.Exports = slices.Clone(s.Exports)
		for i := range s.Exports {
			s.Exports[i].Kind = backend.ExportVirtiofs
		}
		return s
	}

	return []goldenCase{
		{"tcg-virtiofs", qemu72, vm("vm0", 1), virtiofs(twoVMs)},
		{"tcg-virtiofs-devdax", qemu10, vm("vm0", 1), virtiofs(devdax)},
		{"kvm-virtiofs-nodes", qemu72, nodes, virtiofs(kvm)},
		{"tcg-vm0", qemu72, vm("vm0", 1), twoVMs},
		{"tcg-vm1", qemu72, vm("vm1", 1), func() backend.Settings {
			s := twoVMs
			s.Links = []backend.Link{{Kind: backend.LinkStream, MAC: "52:54:00:4d:00:02", MTU: 65521}, {Kind: backend.LinkUser, MAC: "52:54:00:4d:01:02"}}
			return s
		}()},
		{"tcg-qemu10", qemu10, vm("vm0", 2), twoVMs},
		{"tcg-bzimage", qemu72, vm("vm0", 2), func() backend.Settings { s := twoVMs; s.PVH, s.TSCKHz = false, 0; return s }()},
		{"tcg-fenced", qemu72, vm("vm0", 1), func() backend.Settings {
			s := twoVMs
			s.Exports = []backend.Export{{Tag: "root", Path: "/", ReadOnly: true, Veiled: true}, {Tag: "share0", Path: "/home/ann", Veiled: true}}
			s.Links = []backend.Link{twoVMs.Links[0], {Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true}}
			return s
		}()},
		{"tcg-strict", qemu72, vm("vm0", 1), func() backend.Settings {
			s := twoVMs
			s.Strict = true
			s.Exports = []backend.Export{{Tag: "root", Path: "/", ReadOnly: true, Veiled: true}, {Tag: "share0", Path: "/home/ann", Veiled: true}}
			s.Links = []backend.Link{twoVMs.Links[0], {Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true}}
			return s
		}()},
		{"tcg-strict-virtiofs", qemu72, vm("vm0", 1), func() backend.Settings {
			s := twoVMs
			s.Strict = true
			s.Exports = []backend.Export{
				{Tag: "root", Path: "/", ReadOnly: true, Veiled: true, Kind: backend.ExportVirtiofs},
				{Tag: "share0", Path: "/home/ann", Veiled: true, Kind: backend.ExportVirtiofs},
			}
			s.Links = []backend.Link{twoVMs.Links[0], {Kind: backend.LinkUser, MAC: "52:54:00:4d:01:01", Filtered: true}}
			return s
		}()},
		{"tcg-tap", qemu72, vm("vm0", 4), tap},
		{"tcg-devdax", qemu72, vm("vm0", 1), devdax},
		{"kvm", qemu72, vm("vm0", 1), kvm},
		{"kvm-slow-strings", qemu72, vm("vm0", 1), func() backend.Settings { s := kvm; s.SlowStrings = true; return s }()},
		{"kvm-pinned", qemu72, pinned, kvm},
		{"kvm-nodes", qemu72, nodes, kvm},
		{"kvm-expanders", qemu10, expanders, kvm},
		{"kvm-288", qemu10, huge, backend.Settings{Accel: host.KVM, PVH: true}},
		{"kvm-288-vf", qemu10, hugeWithVF, backend.Settings{Accel: host.KVM, PVH: true}},
		{"tcg-nodes", qemu72, nodes, twoVMs},
		{"kvm-dies", qemu72, dies, kvm},
		{"kvm-dies-qemu10", qemu10, dies, kvm},
		{"tcg-dies", qemu72, dies, twoVMs},
		{"tcg-dies-seabios", qemu10, dies, seabios},
		{"kvm-one-node", qemu72, oneNode, kvm},
	}
}

// TestGolden compares every case's command line, one option per line, with a file that a person has reviewed.
func TestGolden(t *testing.T) {
	for _, c := range goldenCases() {
		t.Run(c.name, func(t *testing.T) {
			caps := capturedCaps(t, c.caps)
			caps.Virtiofsd = testVirtiofsd
			m, err := Build(c.vm, c.set, caps)
			if err != nil {
				t.Fatal(err)
			}
			got := byOption(m.Args())
			for _, e := range m.served {
				got += "\n" + byOption(m.virtiofsd.args(e.Export, true))
			}
			file := filepath.Join("testdata/golden", c.name+".args")
			golden.Check(t, file, got)
		})
	}
}

// byOption formats a command line, one option with its value per line.
func byOption(args []string) string {
	var b strings.Builder
	for i, a := range args {
		switch {
		case i == 0:
		case strings.HasPrefix(a, "-"):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(a)
	}
	return b.String() + "\n"
}

func TestBareArgs(t *testing.T) {
	got := byOption(BareArgs(capturedCaps(t, qemu72), "vmlinux", "initramfs", "/tmp/serial", 512, 2500000))
	file := "testdata/golden/bare.args"
	golden.Check(t, file, got)
}
