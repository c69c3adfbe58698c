package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree writes files as a kernel shows them below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRead(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/7/task/7/comm": "qemu-system-x86\n", "proc/7/task/7/schedstat": "1000000000 5 9\n",
		"proc/7/task/8/comm": "CPU 0/KVM\n", "proc/7/task/8/schedstat": "3000000000 200 9\n",
		"proc/7/task/9/comm": "CPU 1/KVM\n", "proc/7/task/9/schedstat": "4000000000 300 9\n",
		"proc/7/task/10/comm": "CPU 2/KVM\n", "proc/7/task/10/schedstat": "broken\n",
		"proc/7/status": "Name:\tqemu\nVmRSS:\t    2048 kB\nHugetlbPages:\t 4096 kB\n",
		"proc/7/io":     "rchar: 500\nwchar: 60\nsyscr: 7\nbroken\nread_bytes: 9\n",
		"proc/7/numa_maps": "7f00 bind:1 anon=3 dirty=3 N1=2 N0=1 kernelpagesize_kB=4\n" +
			"7f01 bind:1 file=/dev/shm/#120658\\040(deleted) dirty=2 N1=2 kernelpagesize_kB=2048\n" +
			"7f02 default file=/N9=5 mapped=x Nope=3 N0=x\n7f03 default\n",
		"sys/kernel/debug/kvm/7-12/exits":  "1234\n",
		"sys/kernel/debug/kvm/71-12/exits": "9\n",
	})
	v := VM{}
	if !v.Read(root, 7) || v.VCPU != 7*time.Second || v.Wait != 500 || v.Other != time.Second ||
		v.ResidentBytes != 2<<20 || v.HugeBytes != 4<<20 || v.Exits == nil || *v.Exits != 1234 {
		t.Errorf("%+v", v)
	}
	if v.ReadBytes == nil || *v.ReadBytes != 500 || v.WrittenBytes == nil || *v.WrittenBytes != 60 {
		t.Errorf("%v, %v bytes", v.ReadBytes, v.WrittenBytes)
	}
	v.ReadNodes(root, 7)
	if fmt.Sprint(v.Nodes) != "[{0 4096} {1 4202496}]" || v.RegionBytes == nil || *v.RegionBytes != 4<<20 {
		t.Errorf("nodes %v, region %v", v.Nodes, v.RegionBytes)
	}
	none := VM{}
	if none.ReadNodes(root, 8); none.Nodes != nil || none.RegionBytes != nil {
		t.Errorf("a process that is not there: %+v", none)
	}
	if (&VM{}).Read(root, 8) {
		t.Error("a process that is not there was read")
	}
	self := VM{}
	if !self.Read("/", os.Getpid()) || self.Other <= 0 || self.ResidentBytes == 0 || self.Exits != nil {
		t.Errorf("this process: %+v", self)
	}
}

func TestSince(t *testing.T) {
	n, m := uint64(1000), uint64(3000)
	then, now := VM{VCPU: time.Second, Exits: &n, ReadBytes: &n}, VM{VCPU: 4 * time.Second, Wait: time.Second, Exits: &m, ReadBytes: &m}
	if r := now.Since(&then, 2*time.Second); r.VCPU != 1.5 || r.Wait != 0.5 || r.Other != 0 || r.Exits != 1000 || r.Read != 1000 || r.Written != -1 {
		t.Errorf("%+v", r)
	}
	if r := then.Since(&now, time.Second); r.VCPU != 0 || r.Exits != -1 {
		t.Errorf("another process of that number: %+v", r)
	}
	if r := now.Since(&then, 0); r.VCPU != 0 || r.Exits != -1 {
		t.Errorf("no time has passed: %+v", r)
	}
}

func TestOpenMetrics(t *testing.T) {
	n := uint64(5)
	var b strings.Builder
	if err := OpenMetrics(&b, []VM{{Cluster: `a"b`, Name: "vm0", State: "ready", VCPUs: 2, VCPU: 1500 * time.Millisecond, HugeBytes: 4096, Exits: &n, ReadBytes: &n, WrittenBytes: &n, Nodes: []Node{{1, 77}}, RegionBytes: &n}, {Cluster: "a", Name: "vm1", State: "dead"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE nearmetal_vm_cpu_seconds counter\n", `nearmetal_vm_cpu_seconds_total{cluster="a\"b",vm="vm0",threads="vcpu"} 1.5` + "\n",
		`nearmetal_vm_io_bytes_total{cluster="a\"b",vm="vm0",direction="write"} 5` + "\n",
		`nearmetal_vm_node_memory_bytes{cluster="a\"b",vm="vm0",node="1"} 77` + "\n", `nearmetal_vm_region_bytes{cluster="a\"b",vm="vm0"} 5` + "\n",
		`nearmetal_vm_up{cluster="a",vm="vm1"} 0` + "\n", `nearmetal_vm_exits_total{cluster="a\"b",vm="vm0"} 5` + "\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if !strings.HasSuffix(b.String(), "# EOF\n") || strings.Count(b.String(), "# EOF") != 1 || strings.Contains(b.String(), `exits_total{cluster="a",`) {
		t.Errorf("%s", b.String())
	}
}
