package verify

import (
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/plan"
	"nearmetal/test/golden"
)

// captured returns the facts that TestRealQEMU once gathered, with a device as vfio-pci shows it, and the matching
// plan.
func captured(t *testing.T) (*plan.VM, *plan.Region, *backend.Facts) {
	t.Helper()
	f := &backend.Facts{}
	readJSON(t, filepath.Join("testdata", "real.json"), f)
	f.Devices = []backend.Device{{Host: "0000:41:10.0", Port: "port0", Node: 1, Bus: 192}, {Host: "0000:01:00.0", Port: "port1", Node: -1, Bus: -1}}
	return &plan.VM{Name: "vm0", VCPUs: 4, Sockets: 2, Dies: 1, Cores: 1, Threads: 2, MemoryBytes: 128 * mib,
		Nodes: []plan.Node{
			{ID: 0, VCPUs: []int{0, 1}, MemoryBytes: 64 * mib, HostNodes: []int{0}},
			{ID: 1, VCPUs: []int{2, 3}, MemoryBytes: 64 * mib},
		},
		Pins: [][]int{{0}, {0}, {0}, {0}}, EmulatorCPUs: []int{0},
		Devices: []plan.Device{{Kind: "vfio", Address: "0000:41:10.0", Node: 1, HostNode: 0},
			{Kind: "vfio", Address: "0000:01:00.0", Node: -1, HostNode: -1}},
	}, &plan.Region{SizeBytes: 4 * mib, Backing: "shm", Device: "ivshmem", HostNode: -1}, f
}

func TestCompare(t *testing.T) {
	p, region, f := captured(t)
	golden.Check(t, "testdata/real.rows", table(Compare(p, region, f, f.Region.File)))
}

// freeThreads lets QEMU's own threads run anywhere, in the plan and in the facts.
func freeThreads(p *plan.VM, f *backend.Facts) {
	p.EmulatorCPUs = nil
	for i := range f.Threads {
		f.Threads[i].CPUs = f.Own
	}
}

// TestDiffers changes one fact, or the plan, and expects the one row that reports it.
func TestDiffers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*plan.VM, *plan.Region, *backend.Facts)
		want   string
	}{
		{"a vCPU elsewhere", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.VCPUs[2].CPUs = []int{1} },
			"differs vm0: CPUs of vCPU 2: planned 0, found 1"},
		{"a vCPU that may run on more", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.VCPUs[2].CPUs = []int{0, 1} },
			"differs vm0: CPUs of vCPU 2: planned 0, found 0-1"},
		{"one that is not pinned, pinned", func(p *plan.VM, _ *plan.Region, f *backend.Facts) {
			p.Pins = nil
			for i := range f.VCPUs[:3] {
				f.VCPUs[i].CPUs = f.Own
			}
		}, "differs vm0: CPUs of vCPU 3: planned any of 0-1, found 0"},
		{"an emulator thread elsewhere", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Threads[0].CPUs = []int{1} },
			`differs vm0: CPUs of QEMU's other threads: planned 0, found 0 (2 threads), 1 of "qemu-system-x86"`},
		{"a thread that took a node's memory", func(p *plan.VM, _ *plan.Region, f *backend.Facts) {
			freeThreads(p, f)
			f.Threads[0].Name, f.Threads[0].CPUs = "TC tc0", []int{1}
		}, ""},
		{"one that is bound elsewhere", func(p *plan.VM, _ *plan.Region, f *backend.Facts) {
			freeThreads(p, f)
			f.Threads[0].Name, f.Threads[0].CPUs = "TC tc0", []int{7}
		}, `differs vm0: CPUs of QEMU's other threads: planned any of 0-1, found any of 0-1 (2 threads), 7 of "TC tc0"`},
		{"a vCPU on another node", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.VCPUs[1].Node, f.VCPUs[2].Node = 1, 0 },
			"differs vm0: vCPUs of node 0 in QEMU: planned 0-1, found 0,2\ndiffers vm0: vCPUs of node 1 in QEMU: planned 2-3, found 1,3"},
		{"cores for threads", func(p *plan.VM, _ *plan.Region, _ *backend.Facts) { p.Cores, p.Threads = 2, 1 },
			"differs vm0: topology in QEMU: planned 2 sockets x 1 die x 2 cores x 1 thread, found 2 sockets x 1 die x 1 core x 2 threads"},
		{"vCPUs in another order", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.VCPUs[1].Socket, f.VCPUs[2].Socket = 1, 0 },
			"differs vm0: topology in QEMU: planned 2 sockets x 1 die x 1 core x 2 threads, found 2 sockets x 1 die x 1 core x 2 threads, and vCPU 1 is socket 1, die 0, core 0, thread 1"},
		{"less memory", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[1].Bytes = 32 * mib },
			"differs vm0: memory of node 1: planned 64 MiB, found 32 MiB"},
		{"memory that is not there", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[1].Mapping = nil },
			"differs vm0: memory of node 1: planned 64 MiB, found none"},
		{"memory that is not bound", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[0].Mapping.Policy = "default" },
			"differs vm0: policy of the memory of node 0: planned bind:0, found default"},
		{"memory that only prefers its node", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[0].Mapping.Policy = "prefer:0" },
			"differs vm0: policy of the memory of node 0: planned bind:0, found prefer:0"},
		{"pages on another node", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) {
			f.Blocks[0].Mapping.OnNode = map[int]uint64{0: 60 * mib, 1: 4 * mib}
		}, "differs vm0: pages of node 0: planned host node 0, found 60 MiB on host node 0, 4 MiB on host node 1"},
		{"memory that should be interleaved", func(p *plan.VM, _ *plan.Region, f *backend.Facts) {
			p.Nodes[0].HostNodes = []int{0, 1}
			f.Blocks[0].Mapping.OnNode = map[int]uint64{0: 32 * mib, 1: 32 * mib}
		}, "differs vm0: policy of the memory of node 0: planned interleave:0-1, found bind:0"},
		{"huge pages that are none", func(p *plan.VM, _ *plan.Region, _ *backend.Facts) { p.Nodes[1].PageBytes = 2 * mib },
			"differs vm0: page size of node 1: planned 2 MiB, all taken, found 4 KiB, all taken"},
		{"huge pages that are not all there", func(p *plan.VM, _ *plan.Region, f *backend.Facts) {
			p.Nodes[1].PageBytes = 2 * mib
			f.Blocks[1].Mapping.PageBytes, f.Blocks[1].Mapping.OnNode = 2*mib, map[int]uint64{0: 62 * mib}
		}, "differs vm0: page size of node 1: planned 2 MiB, all taken, found 2 MiB, 62 MiB of 64 MiB taken"},
		{"huge pages that nobody planned", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[1].Mapping.PageBytes = 2 * mib },
			"differs vm0: page size of node 1: planned ordinary, found 2 MiB"},
		{"a device that is not there", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Devices = f.Devices[1:] },
			"differs vm0: device 0000:41:10.0: planned node 1, found not in the VM"},
		{"a device on another node", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Devices[0].Node = 0 },
			"differs vm0: device 0000:41:10.0: planned node 1, found node 0, port port0, expander on bus 192"},
		{"a device below an expander", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Devices[1].Node, f.Devices[1].Bus = 0, 128 },
			"differs vm0: device 0000:01:00.0: planned the VM's own PCI root, found node 0, port port1, expander on bus 128"},
		{"no region", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Region = nil },
			"differs vm0: region: planned 4 MiB, shared, one file for all VMs, found not mapped"},
		{"another VM's region", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Region.File = "00:01 2" },
			"differs vm0: region: planned 4 MiB, shared, one file for all VMs, found 4 MiB, shared, a file of its own"},
		{"a region that is not shared", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Region.Shared = false },
			"differs vm0: region: planned 4 MiB, shared, one file for all VMs, found 4 MiB, one file for all VMs"},
		{"a region's file that was cut", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Region.FileBytes = mib },
			"differs vm0: region: planned 4 MiB, shared, one file for all VMs, found 1 MiB, shared, one file for all VMs"},
		{"a region that is not bound", func(_ *plan.VM, r *plan.Region, _ *backend.Facts) { r.HostNode = 0 },
			"differs vm0: policy of the memory of the region: planned bind:0, found default"},
		{"a region without huge pages", func(_ *plan.VM, r *plan.Region, _ *backend.Facts) { r.Backing = "hugetlb" },
			"differs vm0: page size of the region: planned 2 MiB, all taken, found 4 KiB, all taken"},
		{"QEMU gone", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Ended = true },
			"differs vm0: QEMU: planned runs, found has ended"},
		{"what cannot be read", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) {
			f.Unread = map[backend.Part]string{backend.PartCPUs: "a", backend.PartThreads: "b", backend.PartMemory: "c", backend.PartDevices: "d", backend.PartRegion: "e"}
		}, "note vm0: CPUs: planned 4 vCPUs, found cannot be read: a\n" +
			"note vm0: threads: planned 0, found cannot be read: b\n" +
			"note vm0: memory: planned 128 MiB, found cannot be read: c\n" +
			"note vm0: devices: planned 2 devices, found cannot be read: d\n" +
			"note vm0: region: planned 4 MiB, shared, one file for all VMs, found cannot be read: e"},
		{"a kernel without NUMA", func(_ *plan.VM, _ *plan.Region, f *backend.Facts) { f.Blocks[0].Mapping.Policy = "" },
			"note vm0: host nodes of the memory of node 0: planned bind:0, found this kernel reports no nodes"},
	} {
		p, region, f := captured(t)
		file := f.Region.File
		c.change(p, region, f)
		if got := differing(Compare(p, region, f, file)); strings.TrimSpace(got) != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}

// The region's file is the one that most VMs have.
func TestRegionFile(t *testing.T) {
	var facts []*backend.Facts
	for _, s := range []string{"a", "b", "b", ""} {
		f := &backend.Facts{}
		if s != "" {
			f.Region = &backend.Mapping{File: s}
		}
		facts = append(facts, f)
	}
	if got := regionFile(facts); got != "b" {
		t.Errorf("%q", got)
	}
}

// Programs parse the status words.
func TestReport(t *testing.T) {
	r := &Report{Rows: []Row{{"a", "b", "c", "d", OK}, {"a", "b", "c", "d", Differs}, {"a", "b", "c", "d", Note}}}
	if r.Count(Differs) != 1 || len(r.Differences()) != 1 || !strings.HasPrefix(r.Differences()[0].String(), "a: b: planned c") {
		t.Errorf("%+v", r)
	}
}
