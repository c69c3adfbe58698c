package plan

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// machine reads the description of a machine.
func machine(t testing.TB, name string) topology.Host {
	t.Helper()
	h, err := topology.Open(machines + name + ".machine")
	if err != nil {
		t.Fatal(err)
	}
	return *h
}

func clusterOf(p spec.Placement, groups ...spec.Group) *spec.Cluster {
	c := &spec.Cluster{VMs: groups, Placement: p, Accel: "kvm"}
	spec.Defaults(c)
	return c
}

// TestNames: VMs have the names of the file, pinned or not; the VMs of a group without names have the group's name
// and a number.
func TestNames(t *testing.T) {
	for _, pin := range []string{"always", "never"} {
		c := clusterOf(spec.Placement{Pin: pin}, spec.Group{Names: []string{"login", "gpu-7"}, VCPUs: 2, Memory: 1 << 30}, spec.Group{VCPUs: 2, Memory: 1 << 30})
		p, err := Make(c, []topology.Host{machine(t, "dl380g8")}, Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for i := range p.VMs {
			names = append(names, p.VMs[i].Name)
		}
		if got := strings.Join(names, " "); got != "login gpu-7 vm0" || got != strings.Join(spec.VMNames(c), " ") {
			t.Errorf("pin %s: %s", pin, got)
		}
	}
}

// TestShort: a request that cannot be met is rejected with one sentence: the resource that is short, where, by how
// much, and a request that would fit.
func TestShort(t *testing.T) {
	strict := spec.Placement{Strict: true}
	for _, c := range []struct {
		name, machine string
		place         spec.Placement
		groups        []spec.Group
		want          []string
	}{
		{"cores", "dl380g8", strict, []spec.Group{{Count: 3, VCPUs: 6, Memory: 4 << 30}},
			[]string{"18 vCPUs need 18 cores, and dl380g8 has 16 free: 2 short", "3 VMs of 4 vCPUs", "2 VMs of 6 vCPUs and 4 GiB"}},
		{"reserved", "dl380g8", spec.Placement{Strict: true, Reserve: 2}, []spec.Group{{Count: 2, VCPUs: 8, Memory: 4 << 30}},
			[]string{"14 free of 16 (2 reserved): 2 short", "2 VMs of 7 vCPUs"}},
		{"memory", "dl380g8", spec.Placement{Pages: "ordinary"}, []spec.Group{{Count: 2, VCPUs: 4, Memory: 58 << 30}},
			[]string{"of memory available for VMs of 116 GiB", "short", "node 0 4 GiB"}},
		{"memory for many without pins", "laptop", spec.Placement{}, []spec.Group{{Count: 100, VCPUs: 6, Memory: 4 << 30}},
			[]string{"390 GiB short", "fits: 2 VMs of 6 vCPUs and 4 GiB"}}, // with the small region of two VMs
		{"memory for one without pins", "laptop", spec.Placement{}, []spec.Group{{Count: 2, VCPUs: 6, Memory: 10 << 30}},
			[]string{"10 GiB short", "1 VM of 6 vCPUs and 10 GiB", "2 VMs of 4 GiB"}},
		{"huge pages", "c6100", spec.Placement{Pages: "1GiB"}, []spec.Group{{Count: 1, VCPUs: 6, Memory: 4 << 30}},
			[]string{"0 B of free pages of 1GiB for VMs of 4 GiB: 4 GiB short"}},
		{"VFs", "r740", strict, []spec.Group{{Count: 3, VCPUs: 4, Memory: 4 << 30, Devices: []spec.Device{{PF: "mlx5_0"}}}},
			[]string{"3 VMs need 3 VFs of mlx5_0, and 2 are free on 1 host: 1 short", "the cards can have 14 more", "2 VMs would fit"}},
		{"no such card", "r740", strict, []spec.Group{{Count: 1, VCPUs: 4, Memory: 4 << 30, Devices: []spec.Device{{PF: "mlx5_9"}}}},
			[]string{"1 VM needs 1 VF of mlx5_9, and 0 are free"}},
		{"not in equal parts", "dl380g8", strict, []spec.Group{{Count: 1, VCPUs: 9, Memory: 4 << 30}},
			[]string{"9 vCPUs and 4 GiB cannot be split into equal parts that fit the nodes of dl380g8", "node 0 8 cores", "1 VM of 8 vCPUs"}},
		{"SMT", "grace", spec.Placement{SMT: "require"}, []spec.Group{{Count: 1, VCPUs: 4, Memory: 4 << 30}}, []string{"smt: require"}},
		{"node", "dl380g8", spec.Placement{HostNodes: []int{7}}, []spec.Group{{Count: 1, VCPUs: 4, Memory: 4 << 30}}, []string{"has no node 7; it has nodes 0-1"}},
		{"memory node", "xeonmax-hbm", spec.Placement{MemoryNodes: []int{4}, MemoryNodeSize: 20 << 30}, []spec.Group{{Count: 1, VCPUs: 4, Memory: 4 << 30}},
			[]string{"memory nodes of xeonmax-hbm", "short", "memoryNodeSize"}},
		{"memory node with CPUs", "xeonmax-hbm", spec.Placement{MemoryNodes: []int{0}, MemoryNodeSize: 1 << 30}, []spec.Group{{Count: 1, VCPUs: 4, Memory: 4 << 30}},
			[]string{"node 0 of xeonmax-hbm has CPUs"}},
		{"nothing", "laptop", strict, []spec.Group{{Count: 0, VCPUs: 1, Memory: 1 << 30}}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Make(clusterOf(c.place, c.groups...), []topology.Host{machine(t, c.machine)}, Ledger{})
			if c.want == nil {
				return // defaults make it one VM
			}
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
	if _, err := Make(&spec.Cluster{}, []topology.Host{machine(t, "laptop")}, Ledger{}); err == nil {
		t.Error("a cluster that asks for nothing")
	}
	if _, err := Make(clusterOf(strict), nil, Ledger{}); err == nil {
		t.Error("no host")
	}
}

// TestNearestFits: the requests that an error lists do fit, and one more VM does not.
func TestNearestFits(t *testing.T) {
	h := []topology.Host{machine(t, "epyc-nps4")}
	place := spec.Placement{Strict: true, SMT: "isolate"}
	_, err := Make(clusterOf(place, spec.Group{Count: 9, VCPUs: 15, Memory: 8 << 30}), h, Ledger{})
	if err == nil || !strings.Contains(err.Error(), "fits: 9 VMs of 14 vCPUs, or 8 VMs of 15 vCPUs and 8 GiB") {
		t.Fatal(err)
	}
	for _, g := range []spec.Group{{Count: 9, VCPUs: 14, Memory: 8 << 30}, {Count: 8, VCPUs: 15, Memory: 8 << 30}} {
		if _, err := Make(clusterOf(place, g), h, Ledger{}); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

// TestNearestUnpinned: if too few CPUs is only a warning, the requests that an error lists are those that fit by
// memory.
func TestNearestUnpinned(t *testing.T) {
	h := []topology.Host{machine(t, "laptop")}
	_, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 100, VCPUs: 1, Memory: 1 << 30}), h, Ledger{})
	if err == nil {
		t.Fatal("100 VMs of 1 GiB fit")
	}
	m := regexp.MustCompile(`fits: (\d+) VMs of 1 vCPU and 1 GiB`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(m[1])
	for count, fits := range map[int]bool{n: true, n + 1: false} {
		_, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: count, VCPUs: 1, Memory: 1 << 30}), h, Ledger{})
		if (err == nil) != fits {
			t.Errorf("%d VMs: %v", count, err)
		}
	}
}

// TestFloat: too few CPUs is a warning unless strict is set: the VMs share them.
func TestFloat(t *testing.T) {
	h := []topology.Host{machine(t, "laptop")}
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 3, VCPUs: 4, Memory: 1 << 30}), h, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], "8 CPUs for 12 vCPUs") || p.VMs[0].Pins != nil || p.VMs[2].Name != "vm2" {
		t.Errorf("%+v", p)
	}
	if _, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 3, VCPUs: 4, Memory: 5 << 30}), h, Ledger{}); err == nil || !strings.Contains(err.Error(), "short") {
		t.Errorf("memory is short as well: %v", err)
	}
}

// TestUnpinnedDistances: requested guest nodes have distances also if vCPUs are not pinned: two on one host node 11,
// on two host nodes the distance of these nodes.
func TestUnpinnedDistances(t *testing.T) {
	for name, want := range map[string]string{"laptop": "[10 11]", "dl380g8": "[10 20]"} {
		h := machine(t, name)
		want := want
		if name != "laptop" {
			want = fmt.Sprintf("[10 %d]", h.Distance(0, 1))
		}
		p, err := Make(clusterOf(spec.Placement{Nodes: 2}, spec.Group{Count: 1, VCPUs: 64, Memory: 1 << 30}), []topology.Host{h}, Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		n := p.VMs[0].Nodes
		if p.VMs[0].Pins != nil || len(n) != 2 || fmt.Sprint(n[0].Distances) != want || n[1].Distances[1] != 10 || n[1].Distances[0] != n[0].Distances[1] {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// TestDies: every VM of a group has a die for each last-level cache if the caches hold equal numbers of vCPUs.
func TestDies(t *testing.T) {
	for _, c := range []struct {
		name, machine      string
		place              spec.Placement
		count, vcpus       int
		sockets, dies, l3s int
		reason             string
	}{
		{"one cache", "epyc-nps4", spec.Placement{}, 1, 8, 1, 1, 1, ""},
		{"two caches", "epyc-nps4", spec.Placement{}, 1, 16, 1, 2, 2, ""},
		{"two sockets", "epyc-nps4", spec.Placement{}, 1, 32, 2, 2, 4, ""},
		{"threads", "epyc-nps4", spec.Placement{SMT: "prefer"}, 1, 32, 1, 2, 2, ""},
		{"unequal", "epyc-nps4", spec.Placement{}, 1, 12, 1, 1, 2, "do not hold equal numbers"},
		{"unpinned", "epyc-nps4", spec.Placement{Pin: "never"}, 1, 16, 1, 1, 0, ""},
		{"one cache for several nodes", "spr-snc4", spec.Placement{Nodes: 4}, 1, 16, 1, 1, 1, ""},
	} {
		p, err := Make(clusterOf(c.place, spec.Group{Count: c.count, VCPUs: c.vcpus, Memory: 4 << 30}), []topology.Host{machine(t, c.machine)}, Ledger{})
		if err != nil {
			t.Fatal(c.name, err)
		}
		for _, v := range p.VMs {
			if v.Sockets != c.sockets || v.Dies != c.dies || len(v.L3) != c.l3s || v.Sockets*v.Dies*v.Cores*v.Threads != c.vcpus {
				t.Errorf("%s: %d sockets x %d dies x %d cores x %d threads, caches %v", c.name, v.Sockets, v.Dies, v.Cores, v.Threads, v.L3)
			}
			if text := strings.Join(v.Reasons, "\n"); !strings.Contains(text, c.reason) || c.reason == "" && strings.Contains(text, "cache a socket") {
				t.Errorf("%s: reasons:\n%s", c.name, text)
			}
		}
	}
	m := &maker{groups: []group{{count: 2}, {first: 2, count: 1}}}
	vms := []VM{{Sockets: 1, Dies: 2, Cores: 4, Threads: 1}, {Sockets: 1, Dies: 1, Cores: 8, Threads: 1}, {Sockets: 1, Dies: 2, Cores: 2, Threads: 1}}
	m.equalDies(vms)
	if vms[0].Dies != 1 || vms[0].Cores != 8 || len(vms[0].Reasons) != 1 || vms[1].Cores != 8 || vms[2].Dies != 2 {
		t.Errorf("unequal VMs of a group: %+v", vms)
	}
}

// TestOvercommitted: a plan records whether VMs wait for each other's CPUs.
func TestOvercommitted(t *testing.T) {
	h := machine(t, "laptop")
	for vcpus, want := range map[int]bool{1: false, len(h.CPUs): false, len(h.CPUs) + 1: true} {
		c := clusterOf(spec.Placement{Pin: "never"}, spec.Group{Count: 1, VCPUs: vcpus, Memory: 1 << 30})
		p, err := Make(c, []topology.Host{h}, Ledger{})
		if err != nil || p.Overcommitted != want {
			t.Errorf("%d vCPUs on %d CPUs: %+v, %v", vcpus, len(h.CPUs), p, err)
		}
	}
}

// TestPin: emulated VMs are not pinned unless requested.
func TestPin(t *testing.T) {
	for accel, want := range map[string]bool{"tcg": false, "kvm": true, "auto": false} {
		c := clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 2, Memory: 1 << 30})
		c.Accel = accel
		p, err := Make(c, []topology.Host{machine(t, "laptop")}, Ledger{})
		if err != nil || (p.VMs[0].Pins != nil) != want {
			t.Errorf("%s: %v, %v", accel, p.VMs[0].Pins, err)
		}
		c.Placement.Pin = "always"
		if p, err := Make(c, []topology.Host{machine(t, "laptop")}, Ledger{}); err != nil || p.VMs[0].Pins == nil {
			t.Errorf("%s, pin: always: %v", accel, err)
		}
	}
}

// TestLedger plans one cluster after the other with the ledger between them: no cluster uses the resources of
// another.
func TestLedger(t *testing.T) {
	h := []topology.Host{machine(t, "epyc-nps4")}
	var l Ledger
	used, vfs := map[int]bool{}, map[string]bool{}
	c := clusterOf(spec.Placement{Strict: true, Reserve: 8, SMT: "isolate"}, spec.Group{Count: 1, VCPUs: 15, Memory: 20 << 30, Devices: []spec.Device{{Class: "infiniband"}}})
	n := 0
	for ; ; n++ {
		p, err := Make(c, h, l)
		if err != nil {
			if n != 4 || !strings.Contains(err.Error(), "infiniband VF, and 0 are free") {
				t.Errorf("after %d clusters: %v", n, err)
			}
			break
		}
		for _, pin := range p.VMs[0].Pins {
			if used[pin[0]] {
				t.Fatalf("cluster %d: CPU %d is another's", n, pin[0])
			}
			used[pin[0]] = true
		}
		if a := p.VMs[0].Devices[0].Address; vfs[a] {
			t.Fatalf("cluster %d: %s is another's", n, a)
		} else {
			vfs[a] = true
		}
		p.Cluster = fmt.Sprint(n)
		l.Hold(p)
	}
	// Promised memory counts, touched or not: 48 pages of 1 GiB per node.
	c = clusterOf(spec.Placement{Strict: true, Pages: "1GiB", HostNodes: []int{0}}, spec.Group{Count: 1, VCPUs: 1, Memory: 30 << 30})
	l = Ledger{Held: []Held{{Host: "epyc-nps4", Memory: []HeldMemory{{Node: 0, PageBytes: 1 << 30, Bytes: 20 << 30}}}}}
	if _, err := Make(c, h, l); err == nil || !strings.Contains(err.Error(), "2 GiB short") {
		t.Errorf("30 of 28 GiB: %v", err)
	}
	// VMs on other hosts do not count.
	l.Held[0].Host = "other"
	if _, err := Make(c, h, l); err != nil {
		t.Error(err)
	}
}

// TestHosts: over several hosts, pack uses the fewest, spread distributes evenly, and equal VMs have equal shapes.
func TestHosts(t *testing.T) {
	var hosts []topology.Host
	for i := 0; i < 5; i++ {
		h := machine(t, map[bool]string{true: "r740", false: "dl380g8"}[i%2 == 1])
		h.Name = fmt.Sprintf("n%d", i)
		hosts = append(hosts, h)
	}
	count := func(policy string) map[string]int {
		c := clusterOf(spec.Placement{HostPolicy: policy, Strict: true, SMT: "isolate"}, spec.Group{Count: 10, VCPUs: 8, Memory: 16 << 30})
		p, err := Make(c, hosts, Ledger{})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]int{}
		for i := range p.VMs {
			v := &p.VMs[i]
			m[v.Host]++
			if v.Index != i || v.Name != fmt.Sprintf("vm%d", i) {
				t.Errorf("VM %d is %s with index %d", i, v.Name, v.Index)
			}
			if len(v.Nodes) != len(p.VMs[0].Nodes) || v.Threads != p.VMs[0].Threads || v.Nodes[0].PageBytes != p.VMs[0].Nodes[0].PageBytes {
				t.Errorf("%s is not equal to vm0: %+v", v.Name, v)
			}
		}
		return m
	}
	// r740 has room for 6 VMs of 8 cores, dl380g8 for 2.
	if got := count("pack"); !reflect.DeepEqual(got, map[string]int{"n1": 6, "n3": 4}) {
		t.Errorf("packed: %v", got)
	}
	if got := count("spread"); !reflect.DeepEqual(got, map[string]int{"n0": 2, "n1": 2, "n2": 2, "n3": 2, "n4": 2}) {
		t.Errorf("spread: %v", got)
	}
	two := clusterOf(spec.Placement{Strict: true}, spec.Group{Name: "a", Count: 4, VCPUs: 20, Memory: 8 << 30}, spec.Group{Name: "b", Count: 6, VCPUs: 4, Memory: 4 << 30})
	p, err := Make(two, hosts, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.VMs) != 10 || p.VMs[4].Name != "b0" {
		t.Errorf("%d VMs, fifth %s", len(p.VMs), p.VMs[4].Name)
	}
	hosts[1].Name = "n0"
	if _, err := Make(two, hosts, Ledger{}); err == nil || !strings.Contains(err.Error(), "two hosts are named n0") {
		t.Errorf("%v", err)
	}
}

// TestSame: the same input produces the same plan.
func TestSame(t *testing.T) {
	h := []topology.Host{machine(t, "spr-snc4")}
	c := clusterOf(spec.Placement{}, spec.Group{Count: 3, VCPUs: 20, Memory: 24 << 30, Devices: []spec.Device{{Class: "infiniband"}}})
	first, err := Make(c, h, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 20; i++ {
		if again, _ := Make(c, h, Ledger{}); !reflect.DeepEqual(first, again) {
			t.Fatal("another plan")
		}
	}
}

// TestMove: the placement of a VM with fixed nodes on other hosts (paper 001, section 3).
func TestMove(t *testing.T) {
	p, err := Make(clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 32, Memory: 64 << 30}), []topology.Host{machine(t, "r910")}, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to     string
		nodes  [][]int // host nodes of each guest node
		local  float64
		ideal  bool
		differ string
	}{
		{"r910", [][]int{{0}, {1}, {2}, {3}}, 1, true, ""},
		{"r740", [][]int{{0}, {0}, {1}, {1}}, 1, true, "2 guest nodes lie on one host node"},
		{"c6100", nil, 0, false, ""}, // 12 cores: no room
		{"dl980g7", [][]int{{0}, {1}, {2}, {3}}, 1, true, "the guest's table says 20"},
	} {
		m, err := MakeMove(p, machine(t, c.to), spec.Placement{}, Ledger{})
		if c.nodes == nil {
			if err == nil || !strings.Contains(err.Error(), "vm0: ") {
				t.Errorf("to %s: %v", c.to, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("to %s: %v", c.to, err)
			continue
		}
		v := m.VMs[0]
		var nodes [][]int
		for _, n := range v.Plan.Nodes {
			nodes = append(nodes, n.HostNodes)
		}
		if !reflect.DeepEqual(nodes, c.nodes) || v.Local != c.local || (v.Distance == v.Ideal) != c.ideal {
			t.Errorf("to %s: nodes %v, local %v, distance %v, ideal %v", c.to, nodes, v.Local, v.Distance, v.Ideal)
		}
		if all := strings.Join(v.Differences, "\n"); !strings.Contains(all, c.differ) || (c.differ == "") != (all == "") {
			t.Errorf("to %s: %q", c.to, v.Differences)
		}
		if v.Plan.Sockets != 4 || len(v.Plan.Pins) != 32 {
			t.Errorf("to %s: the guest's topology changed: %+v", c.to, v.Plan)
		}
	}
	// 8 vCPUs per node, moved to nodes of 6: each guest node spans two.
	big := machine(t, "epyc-l3numa")
	for i := range big.CPUs {
		if big.CPUs[i].Core%8 > 5 {
			big.CPUs[i].Allowed = false
		}
	}
	m, err := MakeMove(p, big, spec.Placement{SMT: "isolate"}, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	if v := m.VMs[0]; len(v.Plan.Nodes[0].HostNodes) != 2 || v.Local != 0.5 || v.Distance < v.Ideal || !strings.Contains(strings.Join(v.Differences, " "), "interleaved") {
		t.Errorf("%+v", v)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add("version: 1\nvms: [{name: a, vcpus: 2, sockets: 1, dies: 1, cores: 2, threads: 1, memoryBytes: 9, pins: [[0],[1]], nodes: [{id: 0, vcpus: [0, 1], memoryBytes: 9, distances: [10]}]}]")
	f.Add(`{"version":1,"vms":[{"vcpus":1}]}`)
	h := topology.Host{Name: "h", Nodes: []topology.Node{{MemoryBytes: 8 << 30, AvailableBytes: 8 << 30, Allowed: true, Distances: []int{10}, CPUs: []int{0, 1}}}}
	for i := 0; i < 4; i++ {
		h.CPUs = append(h.CPUs, topology.CPU{ID: i, Core: i, Online: true, Allowed: true, L3: -1})
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Load(strings.NewReader(s))
		if err != nil {
			return
		}
		p.text(true)
		MakeMove(p, h, spec.Placement{}, Ledger{})
	})
}

// A whole network card has no option ROM in the VM. Others have, and VFs have none anyway.
func TestHideROM(t *testing.T) {
	for class, want := range map[int]bool{0x020000: true, 0x020700: true, 0x0c0600: true, 0x030200: false, 0x120000: false} {
		if isNetworkCard(class) != want {
			t.Errorf("class %06x: %v", class, !want)
		}
	}
	h := machine(t, "r740")
	var whole, vfs int
	for i := range h.Devices {
		d := &h.Devices[i]
		if d.Class>>16 != 0x02 {
			continue
		}
		c := clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 2, Memory: 1 << 30, Devices: []spec.Device{{Type: "pci", Address: d.Address}}})
		p, err := Make(c, []topology.Host{h}, Ledger{})
		if err != nil {
			continue // a bridge's group, or the host's own
		}
		if d.IsVF() {
			vfs++
		} else {
			whole++
		}
		if got := p.VMs[0].Devices[0].HideROM; got == d.IsVF() {
			t.Errorf("%s (VF: %v): %v", d.Address, d.IsVF(), got)
		}
	}
	if whole == 0 || vfs == 0 {
		t.Errorf("%d whole cards and %d VFs were planned", whole, vfs)
	}
}
