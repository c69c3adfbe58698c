package topology

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/topology/machine"
)

func open(t *testing.T, name string) *Host {
	t.Helper()
	h, err := Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	sane(t, h)
	return h
}

// A NUL after a value is ignored.
func TestNUL(t *testing.T) {
	for _, name := range []string{"nul.tar.gz", "nul-cpulist.tar.gz"} {
		h := open(t, name)
		if len(h.Nodes) != 2 || FormatList(h.Nodes[0].CPUs) != "0-1" || FormatList(h.Nodes[1].CPUs) != "2-3" || len(h.Repairs) > 0 {
			t.Errorf("%s: %+v, repaired %q", name, h.Nodes, h.Repairs)
		}
	}
}

// Kinds of cores are recognized from x86's sets, from Arm's capacities, and from hwloc's XML.
func TestHybrid(t *testing.T) {
	h := open(t, "hybrid.tar.gz")
	if strings.Join(h.Kinds, ", ") != "P-cores, E-cores" || FormatList(h.KindCPUs(0)) != "0-3" || FormatList(h.KindCPUs(1)) != "4-7" {
		t.Errorf("%q: %v, %v", h.Kinds, h.KindCPUs(0), h.KindCPUs(1))
	}
	if s := h.Text(); !strings.Contains(s, "P-cores: CPUs 0-3\nE-cores: CPUs 4-7\n") {
		t.Error(s)
	}
	arm, err := readTree(smallTree(func(t *memTree) {
		t.add("proc/cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\n")
		for id, capacity := range []string{"430", "1024", "1003", "446"} {
			t.add(cpuDir+"/cpu"+string(rune('0'+id))+"/cpu_capacity", capacity)
		}
	}), "x")
	if err != nil || strings.Join(arm.Kinds, ", ") != "cores of capacity 1024, cores of capacity 446" || FormatList(arm.KindCPUs(0)) != "1-2" {
		t.Errorf("%v, %q: %v", err, arm.Kinds, arm.KindCPUs(0))
	}
	x, err := readXML(strings.NewReader(`<topology version="2.0"><object type="Machine" cpuset="0x7"><object type="PU" os_index="0"/><object type="PU" os_index="1"/><object type="PU" os_index="2"/></object>
<cpukind cpuset="0x1"><info name="FrequencyMaxMHz" value="5000"/><info name="CoreType" value="IntelCore"/></cpukind>
<cpukind cpuset="0x6"><info name="CoreType" value="IntelAtom"/></cpukind></topology>`))
	if err != nil || strings.Join(x.Kinds, ", ") != "P-cores, E-cores" || FormatList(x.KindCPUs(1)) != "1-2" {
		t.Errorf("%v, %q", err, x.Kinds)
	}
	if s := mustTree(t, nil); len(s.Kinds) > 0 {
		t.Errorf("kinds of a machine with one: %q", s.Kinds)
	}
}

func mustTree(t *testing.T, change func(t *memTree)) *Host {
	t.Helper()
	h, err := readTree(smallTree(change), "x")
	if err != nil {
		t.Fatal(err)
	}
	sane(t, h)
	return h
}

// The default size of huge pages is the kernel's, not assumed to be 2 MiB.
func TestDefaultHugePage(t *testing.T) {
	if h := open(t, "default-1g.tar.gz"); h.DefaultHugePage() != 1<<30 {
		t.Errorf("%d", h.DefaultHugePage())
	}
	for files, want := range map[[2]string]uint64{
		{"proc/meminfo", "Hugepagesize:    524288 kB\n"}:                            512 << 20,
		{"proc/cmdline", "ro default_hugepagesz=1G quiet"}:                          1 << 30,
		{"proc/cmdline", "default_hugepagesz=2M hugepagesz=1G default_hugepagesz="}: 2 << 20,
		{"proc/cmdline", "default_hugepagesz=99999999999999999999G"}:                2 << 20,
		{"proc/meminfo", "Hugepagesize:    3 kB\n"}:                                 2 << 20,
		{"proc/self/status", "Name: x"}:                                             2 << 20,
	} {
		if h := mustTree(t, func(t *memTree) { t.add(files[0], files[1]) }); h.DefaultHugePage() != want {
			t.Errorf("%q: %d, want %d", files, h.DefaultHugePage(), want)
		}
	}
}

// CPUs of a node that the XML omits stay on it: none is moved to another node.
func TestPartialXML(t *testing.T) {
	h := open(t, "partial.xml")
	if len(h.Nodes) != 2 || FormatList(h.Nodes[0].CPUs) != "0-1" || h.Nodes[0].Allowed || FormatList(h.Nodes[1].CPUs) != "2-3" || !h.Nodes[1].Allowed {
		t.Errorf("%+v", h.Nodes)
	}
	if len(h.Repairs) != 2 || !strings.HasPrefix(h.Repairs[0], "node 0: not in the topology") {
		t.Errorf("%q", h.Repairs)
	}
}

// A GPU's memory is shown as such, according to the driver and to hwloc, and a capture preserves it.
func TestGPUMemory(t *testing.T) {
	gpu := func(t *memTree) {
		t.add(nodeDir+"/node1/cpulist", "\n")
		t.add("proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:      1\nStatus:    online\n")
		t.add("proc/driver/nvidia/gpus/../../etc/numa_status", "Node: 0\n")
	}
	h := mustTree(t, gpu)
	if h.Nodes[1].GPU != "0009:01:00.0" || h.Nodes[1].Usable() || !h.Nodes[0].Usable() {
		t.Errorf("%+v", h.Nodes)
	}
	if s := h.Text(); !strings.Contains(s, "memory of GPU 0009:01:00.0: VMs get none of it") {
		t.Error(s)
	}
	x, err := readXML(strings.NewReader(`<topology version="2.0"><object type="Machine" cpuset="0x1"><object type="NUMANode" os_index="0" cpuset="0x1" local_memory="4096"/>
<object type="NUMANode" os_index="1" subtype="GPUMemory" cpuset="0x1" local_memory="4096"><info name="PCIBusID" value="0009:01:00.0"/></object><object type="PU" os_index="0"/></object></topology>`))
	if err != nil || x.Nodes[1].GPU != "0009:01:00.0" || len(x.Nodes[1].CPUs) > 0 {
		t.Errorf("%v: %+v", err, x)
	}
	// A node with CPUs is not a GPU's, regardless of the driver's files.
	if h := mustTree(t, func(t *memTree) { t.add("proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node: 1\n") }); h.Nodes[1].GPU != "" {
		t.Errorf("%+v", h.Nodes[1])
	}
}

// Repairs of one kind are one line, regardless of the number of CPUs.
func TestRepairsByKind(t *testing.T) {
	m := &machine.Machine{Name: "x", Packages: 2, DiesPer: 1, NodesPer: 1, CoresPerNode: 100, Threads: 1, GroupPackages: 1, L3: "none", MemoryMiB: 1024}
	tree := newMemTree()
	for _, f := range m.Files() {
		if f.Link == "" {
			tree.add(f.Path, f.Content)
		}
	}
	for name := range tree.files {
		if strings.HasSuffix(name, "/core_cpus") {
			tree.files[name] = "00000000\n"
		}
	}
	tree.add(nodeDir+"/node1/cpumap", "00000000\n")
	h, err := readTree(tree, "x")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"CPUs 0-199: not among the thread siblings of its own: taken as a core of its own", "CPUs 100-199: on no node: no VM is pinned there"}
	if strings.Join(h.Repairs, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", h.Repairs)
	}
}

// A hostile tree of nodes that all list missing CPUs is read quickly.
func TestManyRepairs(t *testing.T) {
	h := mustTree(t, func(t *memTree) {
		t.add(nodeDir+"/online", "0-1023\n")
		for n := 2; n < MaxNodes; n++ {
			t.add(fmt.Sprintf("%s/node%d/cpulist", nodeDir, n), "4-16383\n")
		}
	})
	if s := strings.Join(h.Repairs, "\n"); !strings.Contains(s, "CPUs 4-16383: on a node, but not present") {
		t.Error(s)
	}
}

// An archive of hwloc-gather-topology is read; one that unpacks to more than any tree is rejected.
func TestBzip2(t *testing.T) {
	h := open(t, "cores-without-memory.tar.bz2")
	if h.Name != "cores-without-memory" || len(h.Nodes) != 2 || FormatList(h.Nodes[1].CPUs) != "0-7" {
		t.Errorf("%s: %+v", h.Name, h.Nodes)
	}
	if _, err := Open("testdata/bomb.tbz2"); err == nil || !strings.Contains(err.Error(), "sys/online has 400 MiB") {
		t.Errorf("%v", err)
	}
	if _, err := ReadTar(strings.NewReader("BZh9garbage"), "x"); err == nil {
		t.Error("no bzip2, no error")
	}
}
