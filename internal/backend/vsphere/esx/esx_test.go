package esx

import (
	"strings"
	"testing"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// esxi returns a described machine as an ESXi host.
func esxi(t *testing.T, name, version string) topology.Host {
	t.Helper()
	h, err := topology.Open("../../../../test/topology/" + name + ".machine")
	if err != nil {
		t.Fatal(err)
	}
	h.MHz = 2600
	h.System = []string{"VMware ESXi " + version + " build-1"}
	for i := range h.Nodes {
		h.Nodes[i].Pools = nil
	}
	return *h
}

// four returns a plan of one VM over all four nodes of a host.
func four(h *topology.Host, each int) *plan.Plan {
	v := plan.VM{Name: "vm0", Host: h.Name, VCPUs: 4 * each, Sockets: 4, Dies: 1, Cores: each, Threads: 1, MemoryBytes: 16 << 30}
	for n := 0; n < 4; n++ {
		node := plan.Node{ID: n, MemoryBytes: 4 << 30, HostNodes: []int{n}, Distances: []int{10, 12, 32, 32}}
		for i := 0; i < each; i++ {
			node.VCPUs = append(node.VCPUs, n*each+i)
			v.Pins = append(v.Pins, []int{n*each + i})
		}
		v.Nodes = append(v.Nodes, node)
	}
	return &plan.Plan{VMs: []plan.VM{v}}
}

// TestNodes: equal nodes become coresPerNumaNode on ESXi 8, and older settings before it; few vCPUs need
// numa.vcpu.min.
func TestNodes(t *testing.T) {
	for _, x := range []struct {
		version string
		each    int
		cores   int
		extra   map[string]string
	}{
		{"8.0.2", 4, 4, map[string]string{"numa.nodeAffinity": "0,1,2,3"}},
		{"8.0.2", 2, 2, map[string]string{"numa.vcpu.min": "8", "numa.nodeAffinity": "0,1,2,3"}},
		{"7.0.3", 4, 0, map[string]string{"numa.vcpu.maxPerVirtualNode": "4", "numa.autosize.once": "FALSE", "numa.nodeAffinity": "0,1,2,3"}},
		{"7.0.3", 1, 0, map[string]string{"numa.vcpu.maxPerVirtualNode": "1", "numa.vcpu.min": "4", "numa.autosize.once": "FALSE", "numa.nodeAffinity": "0,1,2,3"}},
	} {
		h := esxi(t, "epyc-nps4", x.version)
		r, err := Translate(spec.VSphere{}, four(&h, x.each), []topology.Host{h})
		if err != nil {
			t.Fatal(err)
		}
		v := r.VMs[0]
		if v.CoresPerNUMANode != x.cores || v.CPUHotAdd || v.CoresPerSocket != x.each || v.HardwareVersion != map[bool]int{true: 20}[x.cores > 0] {
			t.Errorf("%s: %+v", x.version, v)
		}
		if len(v.ExtraConfig) != len(x.extra) {
			t.Errorf("%s: %v", x.version, v.ExtraConfig)
		}
		for key, value := range x.extra {
			if v.ExtraConfig[key] != value {
				t.Errorf("%s: %s is %q, not %q", x.version, key, v.ExtraConfig[key], value)
			}
		}
		if v.Latency != "high" || v.CPUReservation != int64(4*x.each)*2600 || !v.MemoryLocked {
			t.Errorf("%+v", v)
		}
	}
}

// TestLost: a loss is reported once, with the VMs it applies to.
func TestLost(t *testing.T) {
	h := esxi(t, "epyc-nps4", "7.0.3")
	p := four(&h, 4)
	v := &p.VMs[0]
	v.Dies, v.Threads, v.EmulatorCPUs, v.L3 = 2, 2, []int{63}, [][]int{{0}, {1}}
	v.Nodes[0].PageBytes = 1 << 30
	v.Devices = []plan.Device{{Kind: "vfio", Address: "f0000001:41:00.0", PF: "0000:41:00.0", Node: 1, HostNode: 1}, {Kind: "vfio", Address: "0000:42:00.0", Node: 0, HostNode: 0, BARBytes: 40 << 30}}
	w := *v
	w.Name = "vm1"
	p.VMs = append(p.VMs, w)
	h.Devices = append(h.Devices[:0:0], topology.Device{Address: "0000:42:00.0", Driver: Passthru})
	r, err := Translate(spec.VSphere{}, p, []topology.Host{h})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(r.Lost, "\n")
	for _, want := range []string{"sees no dies", "threads of a core", "last-level cache", "no distances", "but which is ESXi's choice", "other threads", "no page size", "on which of its nodes a device is"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%q is there %d times:\n%s", want, strings.Count(text, want), text)
		}
	}
	for _, line := range r.Lost {
		if !strings.HasPrefix(line, "vm0, vm1: ") {
			t.Errorf("%s", line)
		}
	}
	if d := r.VMs[0].Devices; d[0].Kind != "sriov" || d[0].Address != "0000:41:00.0" || d[1].Kind != "passthru" || d[0].NUMANode != nil {
		t.Errorf("%+v", d)
	}
	if x := r.VMs[0].ExtraConfig; x["pciPassthru.64bitMMIOSizeGB"] != "128" || x["sched.mem.lpage.enable1GPage"] != "TRUE" || x["numa.vcpu.preferHT"] != "TRUE" || r.VMs[0].Firmware != "efi" {
		t.Errorf("%v", x)
	}
	if len(r.Undone) != 1 || !strings.Contains(r.Undone[0], "restarted elsewhere by HA") {
		t.Errorf("%v", r.Undone)
	}
	v.Nodes = v.Nodes[:3]
	v.Nodes[2].VCPUs = v.Nodes[2].VCPUs[:2]
	if r, err = Translate(spec.VSphere{}, p, []topology.Host{h}); err != nil || !strings.Contains(strings.Join(r.Lost, "\n"), "unequal") || r.VMs[0].ExtraConfig["numa.vcpu.maxPerVirtualNode"] != "" {
		t.Errorf("%v, %v", err, r)
	}
}

// TestRefused: a setting that ESXi would reject is one line, with the alternative.
func TestRefused(t *testing.T) {
	h := esxi(t, "epyc-nps4", "8.0.2")
	_, cores, _ := h.Counts()
	for _, x := range []struct {
		plan func() (*plan.Plan, topology.Host)
		want string
	}{
		{func() (*plan.Plan, topology.Host) {
			p := four(&h, 4)
			p.Region = &plan.Region{SizeBytes: 1 << 20}
			return p, h
		}, "write region: 0"},
		{func() (*plan.Plan, topology.Host) { return four(&h, cores/4), h }, "ESXi needs"},
		{func() (*plan.Plan, topology.Host) { k := h; k.MHz = 0; return four(&k, 4), k }, "clock rate is not known"},
		{func() (*plan.Plan, topology.Host) { p := four(&h, 4); p.VMs[0].Host = "other"; return p, h }, "other is not among"},
		{func() (*plan.Plan, topology.Host) {
			p := four(&h, 4)
			p.VMs[0].Devices = []plan.Device{{Address: "0000:42:00.0"}}
			return p, h
		}, "does not pass it through"},
		{func() (*plan.Plan, topology.Host) {
			k := h
			k.System = append([]string{Maintenance}, h.System...)
			return four(&k, 4), k
		}, "in maintenance mode"},
	} {
		p, host := x.plan()
		if _, err := Translate(spec.VSphere{}, p, []topology.Host{host}); err == nil || !strings.Contains(err.Error(), x.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v\nwant %s", err, x.want)
		}
	}
	if Spare(48) != 4 {
		t.Error("of 48 cores VMware's study leaves 4")
	}
}

// TestBeside: a VM of one node with one card is bound to the card's node; without pins it has no reservation of CPU.
func TestBeside(t *testing.T) {
	h := esxi(t, "epyc-nps4", "8.0.2")
	c := &spec.Cluster{VMs: []spec.Group{{Name: "vm", Count: 1, VCPUs: 4, Memory: 2 << 30}}}
	spec.Defaults(c)
	c.Accel, c.Region.Size, c.Placement.HostNodes = "kvm", new(spec.Size), []int{2}
	p, err := plan.Make(c, []topology.Host{h}, plan.Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Translate(spec.VSphere{}, p, []topology.Host{h})
	if err != nil || r.VMs[0].ExtraConfig["numa.nodeAffinity"] != "2" || r.VMs[0].Latency != "high" {
		t.Fatalf("%v, %+v", err, r)
	}
	c.Placement.Pin = "never"
	if p, err = plan.Make(c, []topology.Host{h}, plan.Ledger{}); err != nil {
		t.Fatal(err)
	}
	if r, err = Translate(spec.VSphere{}, p, []topology.Host{h}); err != nil || r.VMs[0].Latency != "normal" || r.VMs[0].CPUReservation != 0 {
		t.Fatalf("%v, %+v", err, r)
	}
}

// TestMore: settings for vSphere only are in the VM, with their requirements and losses.
func TestMore(t *testing.T) {
	h := esxi(t, "epyc-nps4", "8.0.2")
	p := four(&h, 4)
	for i := range p.VMs[0].Nodes {
		p.VMs[0].Nodes[i].PageBytes = 0
	}
	off, on := false, true
	r, err := Translate(spec.VSphere{SecureBoot: &off}, p, []topology.Host{h})
	if err != nil || r.VMs[0].SecureBoot == nil || *r.VMs[0].SecureBoot || r.VMs[0].Firmware != "" || len(r.VMs[0].Devices) > 0 {
		t.Errorf("%v, %+v", err, r)
	}
	p.VMs[0].Pins = nil
	r, err = Translate(spec.VSphere{SecureBoot: &on, VGPU: "grid_v100-4q", PVRDMA: "rdma"}, p, []topology.Host{h})
	if err != nil {
		t.Fatal(err)
	}
	v := r.VMs[0]
	if !*v.SecureBoot || v.Firmware != "efi" || !v.MemoryLocked || len(v.Devices) != 2 || v.HardwareVersion != 20 {
		t.Errorf("%+v", v)
	}
	text := r.Text() + strings.Join(r.Lost, "\n") + strings.Join(r.Undone, "\n")
	for _, want := range []string{"efiSecureBootEnabled           true", "vgpu grid_v100-4q", "pvrdma rdma", "its vGPU is of, and on which node that is, is ESXi's choice", "PVRDMA card sends by", "HA can restart"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "cannot be moved") {
		t.Error(text)
	}
	h = esxi(t, "epyc-nps4", "7.0.3")
	if r, err = Translate(spec.VSphere{PVRDMA: "rdma"}, p, []topology.Host{h}); err != nil || r.VMs[0].HardwareVersion != 13 || !strings.Contains(strings.Join(r.Undone, "\n"), "DRS may move") {
		t.Errorf("%v, %+v", err, r)
	}
}
