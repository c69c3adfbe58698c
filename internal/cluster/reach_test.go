package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
)

// What a port says of itself decides what a user reads; the words are those that the kernel writes.
func TestPortFault(t *testing.T) {
	good := guest.Device{Kind: "pci", PCI: "0000:00:05.0", Net: "eth2", RDMA: "mlx5_0", State: "ACTIVE", Layer: "Ethernet", IP: "10.78.0.1", GID: "3"}
	ib := guest.Device{Kind: "pci", PCI: "0000:00:05.0", RDMA: "mlx5_0", State: "ACTIVE", Layer: "InfiniBand", PKey: "0xffff"}
	if a, b := portFault("vm0", good), portFault("vm0", ib); a+b != "" {
		t.Errorf("%q, %q", a, b)
	}
	for want, change := range map[string]func() guest.Device{
		"no subnet manager":              func() guest.Device { d := ib; d.State = "INIT"; return d },
		"its port is DOWN":               func() guest.Device { d := ib; d.State = "DOWN"; return d },
		"its port is in state ARMED":     func() guest.Device { d := ib; d.State = "ARMED"; return d },
		"no GID for RoCE v2":             func() guest.Device { d := good; d.GID = ""; return d },
		"has no link (eth2 is down)":     func() guest.Device { return guest.Device{Net: "eth2", State: "down"} },
		"device 0000:00:06.0 of vm0":     func() guest.Device { return guest.Device{PCI: "0000:00:06.0", RDMA: "", Net: "eth3", State: "dormant"} },
		"device mlx5_0 of vm0 has no li": func() guest.Device { d := good; d.State = "DOWN"; return d },
	} {
		got := portFault("vm0", change())
		if want == "device 0000:00:06.0 of vm0" {
			want = "device eth3 of vm0"
		}
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Real agents open the connections: from one there is no way to an address that belongs to nobody, and a VM
// that refuses has answered.
func TestReach(t *testing.T) {
	l := newLab(t)
	c, err := l.up(l.spec(2), Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := func(vm, addr string) end { return end{vm: vm, addr: netip.MustParseAddr(addr), name: "rxe0"} }
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	a, b := at("vm0", "127.0.0.1"), at("vm1", "127.0.0.2")
	if failed := reach(ctx, c.dialFrom, []end{a, b}, []end{a, b}); len(failed) > 0 {
		t.Errorf("%+v", failed)
	}
	short, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	far := at("n2-vm0", "224.0.0.1") // multicast: the kernel opens no connection to it
	failed := reach(short, c.dialFrom, []end{a, b}, []end{far, a})
	if len(failed) != 2 || failed[0].from.vm != "vm0" || failed[1].from.vm != "vm1" || failed[0].to != far {
		t.Fatalf("%+v", failed)
	}
	line := unreachedLine(failed)
	for _, want := range []string{"devices: vm0 (rxe0, 127.0.0.1) does not reach n2-vm0 (224.0.0.1): ", "VLAN"} {
		if !strings.Contains(line, want) || strings.Contains(line, "\n") {
			t.Errorf("no %q in %q", want, line)
		}
	}
	if line := unreachedLine(append(failed, failed...)); !strings.Contains(line, "and 1 pairs more") {
		t.Error(line)
	}

	// On InfiniBand, whose IPoIB interfaces have the addresses, the partition is to be looked at.
	ib := func(vm, ip string) end {
		return deviceEnds(vm, []guest.Device{{Kind: "pci", RDMA: "mlx5_0", Net: "ib0", Port: "1", State: "ACTIVE", Layer: "InfiniBand", PKey: "0x8005", IP: ip}})[0]
	}
	short, cancel = context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	line = unreachedLine(reach(short, c.dialFrom, []end{ib("vm0", "127.0.0.1")}, []end{ib("n2-vm0", "224.0.0.1")}))
	for _, want := range []string{"devices: vm0 (mlx5_0, 127.0.0.1) does not reach n2-vm0 (224.0.0.1): ", "same partition (pkey)"} {
		if !strings.Contains(line, want) || strings.Contains(line, "VLAN") || strings.Contains(line, "\n") {
			t.Errorf("no %q in %q", want, line)
		}
	}
}

// The devices of another host's VMs have the addresses that that host assigns.
func TestCounterparts(t *testing.T) {
	r, host := devicesOfTwo()
	for self := range 2 {
		c := &Cluster{rec: r, wiring: &wiring{overlay: &overlayLinks{Overlay: &Overlay{Self: self,
			Hosts: []OverlayHost{{Name: "n1", VMs: []string{"n1-vm0", "n1-vm1"}}, {Name: "n2", VMs: []string{"n2-vm0", "n2-vm1"}}}}}}}
		for vm := range r.Plan.VMs {
			fs, err := c.functions(host, r.Spec, r.Plan, vm)
			if err != nil {
				t.Fatal(err)
			}
			for n, f := range fs[:len(deviceEnds("", r.VMs[vm].Devices))] {
				got, err := c.counterpart(r, vm, self, vm, n)
				if err != nil || got != f.Address.Addr() {
					t.Errorf("host %d, VM %d has %v, expected elsewhere %v, %v", self, vm, f.Address, got, err)
				}
			}
		}
		list, err := c.endsOf(1 - self)
		if err != nil || len(list) != 4 || list[0].vm != c.wiring.overlay.Hosts[1-self].VMs[0] || list[0].addr == list[1].addr {
			t.Errorf("%+v, %v", list, err)
		}
	}
}

// Hosts that ssh reaches may have different numbers of VMs, and VMs without devices: every device has an address of its
// own, which each host knows of the others'.
func TestCounterpartsOfUnequalHosts(t *testing.T) {
	r, host := devicesOfTwo()
	two := func(n int) (list []plan.VM) {
		for range n {
			list = append(list, r.Plan.VMs[0])
		}
		return list
	}
	plans := [][]plan.VM{two(1), append([]plan.VM{{}}, two(2)...), two(1)}
	has := r.VMs[0].Devices
	overlay := Overlay{}
	for i, vms := range plans {
		h := OverlayHost{Name: fmt.Sprint("n", i)}
		for k, v := range vms {
			h.VMs = append(h.VMs, fmt.Sprintf("n%d-vm%d", i, k))
			h.Sizes = append(h.Sizes, VMSize{Devices: len(v.Devices)})
		}
		overlay.Hosts = append(overlay.Hosts, h)
	}
	own := map[string][]string{} // VM -> addresses of its devices
	seen := map[string]bool{}
	clusters := make([]*Cluster, len(plans))
	for i, vms := range plans {
		o := overlay
		o.Self = i
		rec := r
		rec.Plan, rec.VMs = &plan.Plan{VMs: vms}, nil
		for k, v := range vms {
			m := VMRecord{Name: overlay.Hosts[i].VMs[k]}
			if len(v.Devices) > 0 {
				m.Devices = has
			}
			rec.VMs = append(rec.VMs, m)
		}
		clusters[i] = &Cluster{rec: rec, wiring: &wiring{overlay: &overlayLinks{Overlay: &o}}}
		for k := range vms {
			fs, err := clusters[i].functions(host, r.Spec, rec.Plan, k)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range fs {
				a := f.Address.Addr().String()
				if seen[a] {
					t.Errorf("%s twice", a)
				}
				seen[a] = true
				own[overlay.Hosts[i].VMs[k]] = append(own[overlay.Hosts[i].VMs[k]], a)
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d addresses: %v", len(seen), seen)
	}
	for i, c := range clusters {
		for k := range plans {
			if k == i {
				continue
			}
			list, err := c.endsOf(k)
			if err != nil {
				t.Fatal(err)
			}
			at := map[string][]string{}
			for _, e := range list {
				at[e.vm] = append(at[e.vm], e.addr.String())
			}
			for _, vm := range overlay.Hosts[k].VMs {
				if !slices.Equal(at[vm], own[vm]) {
					t.Errorf("host %d takes %q for %s, which has %q", i, at[vm], vm, own[vm])
				}
			}
		}
	}
}
