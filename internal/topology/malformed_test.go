package topology

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// smallTree returns a tree of two nodes with two CPUs each, altered by change.
func smallTree(change func(t *memTree)) *memTree {
	t := newMemTree()
	t.add(cpuDir+"/online", "0-3\n")
	t.add(cpuDir+"/present", "0-3\n")
	for c := 0; c < 4; c++ {
		d := fmt.Sprintf("%s/cpu%d/topology", cpuDir, c)
		t.add(d+"/physical_package_id", fmt.Sprint(c/2))
		t.add(d+"/core_cpus_list", fmt.Sprint(c))
	}
	t.add(nodeDir+"/online", "0-1\n")
	for n := 0; n < 2; n++ {
		d := fmt.Sprintf("%s/node%d", nodeDir, n)
		t.add(d+"/cpulist", fmt.Sprintf("%d-%d\n", 2*n, 2*n+1))
		t.add(d+"/meminfo", fmt.Sprintf("Node %d MemTotal: 1048576 kB\nNode %d MemFree: 524288 kB\n", n, n))
	}
	t.add(nodeDir+"/node0/distance", "10 21\n")
	t.add(nodeDir+"/node1/distance", "21 10\n")
	if change != nil {
		change(t)
	}
	return t
}

func (t *memTree) remove(name string) {
	delete(t.files, name)
	dir, base := filepath.Split(name)
	delete(t.dirs[strings.TrimSuffix(dir, "/")], base)
}

// A fault in a tree is repaired and reported, or rejected with a one-line error.
func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *memTree)
		repair string // part of the only repair; "": none
		err    string // part of the error; "": none
		check  func(h *Host) bool
	}{
		{name: "whole"},
		{name: "no distances", change: func(t *memTree) { t.remove(nodeDir + "/node0/distance"); t.remove(nodeDir + "/node1/distance") },
			repair: "nodes 0-1: distances missing", check: func(h *Host) bool { return h.Distance(0, 1) == 20 && h.Distance(1, 1) == 10 }},
		{name: "one distance missing", change: func(t *memTree) { t.remove(nodeDir + "/node1/distance") },
			repair: "node 1: distances missing", check: func(h *Host) bool { return h.Distance(1, 0) == 21 }},
		{name: "short distances", change: func(t *memTree) { t.add(nodeDir+"/node0/distance", "10\n") },
			repair: "node 0: a list of distances of another length", check: func(h *Host) bool { return h.Distance(0, 1) == 21 }},
		{name: "asymmetric", change: func(t *memTree) { t.add(nodeDir+"/node1/distance", "31 10\n") },
			repair: "nodes 0-1: distances that differ by direction", check: func(h *Host) bool { return h.Distance(0, 1) == 21 && h.Distance(1, 0) == 31 }},
		{name: "distance out of range", change: func(t *memTree) { t.add(nodeDir+"/node1/distance", "255 10\n") },
			repair: "out of range", check: func(h *Host) bool { return h.Distance(1, 0) == 21 }},
		{name: "distance no number", change: func(t *memTree) { t.add(nodeDir+"/node1/distance", "near 10\n") }, err: "is not a list of numbers"},
		{name: "gap in node ids", change: func(t *memTree) {
			t.add(nodeDir+"/online", "0,5\n")
			t.add(nodeDir+"/node5/cpulist", "2-3")
			t.add(nodeDir+"/node5/distance", "21 10")
			t.add(nodeDir+"/node5/meminfo", "MemTotal: 4 kB")
		}, check: func(h *Host) bool { return h.Nodes[1].ID == 5 && h.CPU(2).Node == 5 && h.Distance(5, 0) == 21 }},
		{name: "CPUs of no node", change: func(t *memTree) { t.add(nodeDir+"/node1/cpulist", "2\n") },
			repair: "CPU 3: on no node", check: func(h *Host) bool { return h.CPU(3).Node == -1 }},
		{name: "CPU of two nodes", change: func(t *memTree) { t.add(nodeDir+"/node1/cpulist", "1-3\n") },
			repair: "node 1: shares CPUs with a node before it", check: func(h *Host) bool { return h.CPU(1).Node == 0 && len(h.Nodes) == 1 }},
		{name: "node of a CPU that is not there", change: func(t *memTree) { t.add(nodeDir+"/node1/cpulist", "2-3,9\n") }, repair: "CPU 9: on a node, but not present"},
		{name: "no cpulist", change: func(t *memTree) { t.remove(nodeDir + "/node1/cpulist") },
			check: func(h *Host) bool { return len(h.Repairs) == 2 && h.CPU(2).Node == -1 }},
		{name: "no meminfo", change: func(t *memTree) { t.remove(nodeDir + "/node1/meminfo") },
			repair: "node 1: no meminfo", check: func(h *Host) bool { return h.Nodes[1].MemoryBytes == 0 }},
		{name: "not its own sibling", change: func(t *memTree) { t.add(cpuDir+"/cpu3/topology/core_cpus_list", "0-1") },
			repair: "CPU 3: not among the thread siblings of its own", check: func(h *Host) bool { return h.CPU(3).Core == 3 }},
		{name: "no nodes", change: func(t *memTree) {
			for n := 0; n < 2; n++ {
				for _, f := range []string{"cpulist", "meminfo", "distance"} {
					t.remove(fmt.Sprintf("%s/node%d/%s", nodeDir, n, f))
				}
			}
			t.add(nodeDir+"/online", "\n")
			t.add("proc/meminfo", "MemTotal: 2048 kB\nMemFree: 1024 kB\n")
		}, check: func(h *Host) bool {
			return len(h.Nodes) == 1 && len(h.Nodes[0].CPUs) == 4 && h.Nodes[0].MemoryBytes == 2<<20
		}},
		{name: "no online file", change: func(t *memTree) { t.remove(cpuDir + "/online"); t.add(cpuDir+"/cpu3/online", "0") },
			check: func(h *Host) bool { return !h.CPU(3).Online && h.CPU(2).Online }},
		{name: "no CPU online", change: func(t *memTree) { t.add(cpuDir+"/online", "\n") }, err: "lists no online CPU"},
		{name: "online no list", change: func(t *memTree) { t.add(cpuDir+"/online", "0-x\n") }, err: `"0-x" is not a number or range`},
		{name: "too many CPUs", change: func(t *memTree) { t.add(cpuDir+"/present", "0-99999999\n") }, err: "above this program's maximum"},
		{name: "too many nodes", change: func(t *memTree) { t.add(nodeDir+"/online", "0-99999\n") }, err: "above this program's maximum"},
		{name: "device of a node that is not there", change: func(t *memTree) {
			t.add("sys/devices/pci0000:00/0000:00:02.0/numa_node", "7")
			t.link("sys/bus/pci/devices/0000:00:02.0", "../../../devices/pci0000:00/0000:00:02.0")
		}, repair: "says node 7", check: func(h *Host) bool { return h.Devices[0].Node == -1 && h.Devices[0].Root == "pci0000:00" }},
		{name: "links in a circle", change: func(t *memTree) { t.link("proc/cpuinfo", "self"); t.link("proc/self", "cpuinfo") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := readTree(smallTree(c.change), "x")
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %v, want one line with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.repair != "" && (len(h.Repairs) == 0 || !strings.Contains(strings.Join(h.Repairs, "\n"), c.repair)) {
				t.Errorf("repairs %q, want %q", h.Repairs, c.repair)
			}
			if c.repair == "" && c.check == nil && len(h.Repairs) > 0 {
				t.Errorf("repairs %q, want none", h.Repairs)
			}
			if c.check != nil && !c.check(h) {
				t.Errorf("%+v", h)
			}
			sane(t, h)
		})
	}
}

// sane checks the properties of a host on which the planner relies.
func sane(t *testing.T, h *Host) {
	t.Helper()
	if len(h.CPUs) == 0 || len(h.Nodes) == 0 {
		t.Fatal("no CPUs or nodes")
	}
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if i > 0 && c.ID <= h.CPUs[i-1].ID {
			t.Fatalf("CPU %d after %d", c.ID, h.CPUs[i-1].ID)
		}
		if c.Online && (c.Node != -1 && h.NodeIndex(c.Node) < 0 || c.Core < 0 || c.Core >= len(h.CPUs) || c.Package < 0 || c.Die < 0) {
			t.Fatalf("CPU %+v", *c)
		}
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if i > 0 && n.ID <= h.Nodes[i-1].ID || len(n.Distances) != len(h.Nodes) || n.AvailableBytes > n.MemoryBytes {
			t.Fatalf("node %+v", *n)
		}
		for j, d := range n.Distances {
			if d < 10 || d > 254 || i == j && d != 10 {
				t.Fatalf("distance %d to %d is %d", i, j, d)
			}
		}
		for _, id := range n.CPUs {
			if c := h.CPU(id); c == nil || c.Node != n.ID {
				t.Fatalf("node %d has CPU %d", n.ID, id)
			}
		}
	}
	for _, d := range h.Devices {
		if d.Node != -1 && h.NodeIndex(d.Node) < 0 {
			t.Fatalf("device %+v", d)
		}
	}
	if s := h.Text(); strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }) {
		t.Fatalf("text with control characters: %q", s)
	}
	var b bytes.Buffer
	pic := Picture{Title: "t", Hosts: []*Host{h}}
	if err := pic.SVG(&b); err != nil {
		t.Fatal(err)
	}
}

// The cgroup's and the affinity's limits, for both cgroup versions.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		cpus  string
		nodes string
		mem   uint64
		quota float64
	}{
		{"none", nil, "0-3", "0-1", 0, 0},
		{"affinity", map[string]string{"proc/self/status": "Cpus_allowed_list:\t1-2\nMems_allowed_list:\t0\n"}, "1-2", "0", 0, 0},
		{"v2", map[string]string{
			"proc/self/cgroup": "0::/slurm/job_7\n", "sys/fs/cgroup/cgroup.controllers": "cpuset memory",
			"sys/fs/cgroup/slurm/job_7/cpuset.cpus.effective": "2-3\n", "sys/fs/cgroup/slurm/job_7/cpuset.mems.effective": "1\n",
			"sys/fs/cgroup/slurm/job_7/memory.max": "max\n", "sys/fs/cgroup/slurm/memory.max": "1073741824\n", "sys/fs/cgroup/slurm/memory.current": "73741824\n",
			"sys/fs/cgroup/slurm/job_7/cpu.max": "150000 100000\n"}, "2-3", "1", 1000000000, 1.5},
		{"v1", map[string]string{
			"proc/self/cgroup":                                   "4:memory:/j\n3:cpuset:/j\n1:cpu,cpuacct:/j\n0::/\n",
			"sys/fs/cgroup/cpuset/j/cpuset.cpus":                 "0\n",
			"sys/fs/cgroup/cpuset/j/cpuset.effective_mems":       "0-1\n",
			"sys/fs/cgroup/memory/j/memory.limit_in_bytes":       "500\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":         "9223372036854771712\n",
			"sys/fs/cgroup/cpu/j/cpu.cfs_quota_us":               "-1\n",
			"sys/fs/cgroup/cpu/j/cpu.cfs_period_us":              "100000\n",
			"sys/fs/cgroup/cpuset/cpuset.cpus":                   "0-3\n",
			"sys/fs/cgroup/memory/j/memory.usage_in_bytes":       "100\n",
			"sys/fs/cgroup/memory/j/child/memory.limit_in_bytes": "1\n"}, "0", "0-1", 400, 0},
		{"above the namespace", map[string]string{"proc/self/cgroup": "0::/../../other\n", "sys/fs/cgroup/cgroup.controllers": "cpuset",
			"sys/fs/cgroup/cpuset.cpus.effective": "0-1\n"}, "0-1", "0-1", 0, 0},
		{"nonsense", map[string]string{"proc/self/cgroup": "::::\n0\n0::/x\n", "sys/fs/cgroup/cgroup.controllers": "",
			"sys/fs/cgroup/x/cpuset.cpus.effective": "a-b\n", "sys/fs/cgroup/x/cpu.max": "NaN 0\n", "sys/fs/cgroup/x/memory.max": "-5"}, "0-3", "0-1", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := readTree(smallTree(func(t *memTree) {
				for n, s := range c.files {
					t.add(n, s)
				}
			}), "x")
			if err != nil {
				t.Fatal(err)
			}
			var cpus, nodes []int
			for i := range h.CPUs {
				if h.CPUs[i].Usable() {
					cpus = append(cpus, h.CPUs[i].ID)
				}
			}
			for i := range h.Nodes {
				if h.Nodes[i].Allowed {
					nodes = append(nodes, h.Nodes[i].ID)
				}
			}
			if FormatList(cpus) != c.cpus || FormatList(nodes) != c.nodes || h.Limits.MemoryBytes != c.mem || h.Limits.CPUQuota != c.quota {
				t.Errorf("CPUs %s, nodes %s, %+v", FormatList(cpus), FormatList(nodes), h.Limits)
			}
		})
	}
}

// A hostile directory: links that lead out of it, a FIFO that would block, a huge file.
func TestHostileFolder(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	os.WriteFile(secret, []byte("0-3"), 0o600)
	os.MkdirAll(filepath.Join(dir, cpuDir), 0o755)
	os.Symlink(secret, filepath.Join(dir, cpuDir, "online"))
	if err := syscall.Mkfifo(filepath.Join(dir, cpuDir, "present"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("read a tree whose only CPUs are named by a link out of it")
	}
	if _, err := Read(secret); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file as root: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none.xml")); err == nil {
		t.Error("no file, no error")
	}
}

// A hostile archive: names outside the tree, endless entries.
func TestHostileArchive(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range []string{"../../sys/devices/system/cpu/online", "/etc/passwd", "x/y/sys/a"} {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: 3, Typeflag: tar.TypeReg})
		w.Write([]byte("0-3"))
	}
	w.Close()
	tree, err := readTar(bytes.NewReader(b.Bytes()))
	if err != nil || len(tree.files) != 1 || tree.files["sys/devices/system/cpu/online"] == "" {
		t.Errorf("%v, %v", tree, err)
	}
	for _, s := range []string{"", "x", "\x1f\x8bzzz", strings.Repeat("a", 1000)} {
		if _, err := ReadTar(strings.NewReader(s), "x"); err == nil {
			t.Errorf("%q was read", clip(s))
		}
	}
}

func TestBadXML(t *testing.T) {
	deep := "<topology>" + strings.Repeat("<object type='Group'>", 100)
	for _, c := range []struct{ text, want string }{
		{"", "empty"},
		{"<html></html>", "not hwloc's"},
		{"<topology><object type='Machine'>", "cut off"},
		{"<topology", "not well-formed"},
		{"<topology></topology>", "no PU"},
		{deep, "nested"},
		{"<topology></object></topology>", "without a beginning"},
		{"<topology><object type='PU' os_index='-3'/></topology>", "os_index"},
		{"<topology><object type='PU' os_index='99999999'/></topology>", "not a number from 0 to"},
		{"<topology><object type='PU' os_index='0'/><object type='PU' os_index='0'/></topology>", "twice"},
		{"<topology><object type='NUMANode' os_index='1' cpuset='zz'/></topology>", "not hexadecimal"},
		{"<topology><object type='PU' cpuset='0xf...f' os_index='0'/></topology>", "infinite"},
		{"<topology><object type='PCIDev' pci_busid='../../x'/></topology>", "pci_busid"},
	} {
		h, err := readXML(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", clip(c.text), h, err, c.want)
		}
	}
	// Version 1, with a machine without nodes, and a matrix that is too short.
	h, err := readXML(strings.NewReader(`<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc.dtd"><topology><object type="Machine" os_index="0" cpuset="0x3">
<distances nbobjs="2" relative_depth="1" latency_base="10"><latency value="1.0"/></distances>
<object type="Socket" os_index="0" cpuset="0x3"><object type="Cache" depth="3" cache_size="1024" cache_type="0" cpuset="0x3">
<object type="Core" cpuset="0x1"><object type="PU" os_index="0" cpuset="0x1"/></object><object type="Core" cpuset="0x2"><object type="PU" os_index="1" cpuset="0x2"/></object></object></object></object></topology>`))
	if err != nil || len(h.CPUs) != 2 || h.CPUs[1].L3 != 0 || len(h.Nodes) != 1 {
		t.Fatalf("%+v, %v", h, err)
	}
	sane(t, h)
}

func FuzzHwloc(f *testing.F) {
	f.Add(`<topology><object type="Machine" cpuset="0x3" allowed_cpuset="0x1"><info name="HostName" value="h"/><object type="NUMANode" os_index="0" cpuset="0x3" local_memory="4096"><page_type size="2097152" count="3"/></object><object type="L3Cache" cache_size="9" depth="3" cpuset="0x3" cache_type="0"><object type="Core"><object type="PU" os_index="0"/></object><object type="PU" os_index="1"/></object><object type="Bridge" bridge_pci="0000:[00-ff]"><object type="PCIDev" pci_busid="0000:01:00.0" pci_type="0207 [15b3:1017] [0:0] 0"><object type="OSDev" name="mlx5_0" osdev_type="3"/></object></object></object><distances2 type="NUMANode" nbobjs="1" indexing="os"><indexes length="1">0 </indexes><u64values>10</u64values></distances2></topology>`)
	f.Add(`<topology><object type="Socket"><object type="PU" os_index="5"/></object></topology>`)
	f.Fuzz(func(t *testing.T, s string) {
		h, err := readXML(strings.NewReader(s))
		if err != nil {
			if len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
				t.Fatalf("error %q", err)
			}
			return
		}
		sane(t, h)
	})
}

// FuzzSysfs replaces the text of a file of a tree; a number selects the file.
func FuzzSysfs(f *testing.F) {
	names := []string{cpuDir + "/online", cpuDir + "/present", cpuDir + "/isolated", cpuDir + "/cpu1/topology/core_cpus_list", cpuDir + "/cpu1/topology/thread_siblings",
		cpuDir + "/cpu1/topology/physical_package_id", cpuDir + "/cpu1/topology/die_id", cpuDir + "/cpu0/cache/index0/level", cpuDir + "/cpu0/cache/index0/shared_cpu_list",
		cpuDir + "/cpu0/cache/index0/size", nodeDir + "/online", nodeDir + "/node0/cpulist", nodeDir + "/node1/distance", nodeDir + "/node0/meminfo",
		nodeDir + "/node0/hugepages/hugepages-2048kB/nr_hugepages", nodeDir + "/node0/hugepages/hugepages-2048kB/free_hugepages", "proc/cpuinfo", "proc/meminfo",
		"proc/self/status", "proc/self/cgroup", "proc/sys/kernel/hostname", "sys/bus/pci/devices/0000:00:01.0/class", "sys/bus/pci/devices/0000:00:01.0/numa_node",
		"sys/bus/pci/devices/0000:00:01.0/resource", "sys/bus/pci/devices/0000:00:01.0/sriov_totalvfs", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/cpu.max"}
	f.Add(uint8(0), "0-3", uint8(3), "0-1")
	f.Add(uint8(13), "Node 0 MemTotal: 99 kB", uint8(12), "10 20 30")
	f.Fuzz(func(t *testing.T, i uint8, a string, j uint8, b string) {
		tree := smallTree(func(t *memTree) {
			t.add(names[int(i)%len(names)], a)
			t.add(names[int(j)%len(names)], b)
		})
		h, err := readTree(tree, "x")
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("error %q", err)
			}
			return
		}
		sane(t, h)
	})
}
