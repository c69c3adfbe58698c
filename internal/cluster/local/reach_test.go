package local

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/cluster/wiring"
	"nearmetal/internal/guest"
	"nearmetal/internal/plan"
	"nearmetal/test/clustertest"
)

// Checks with real agents that an address that belongs to no VM is unreachable, and that a VM which refuses a
// connection has answered.
func TestReach(t *testing.T) {
	m := up(t, clustertest.New(t), 2)
	at := func(vm, addr string) wiring.End {
		return wiring.End{VM: vm, Addr: netip.MustParseAddr(addr), Name: "rxe0"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Patience)
	defer cancel()
	a, b := at("vm0", "127.0.0.1"), at("vm1", "127.0.0.2")
	if failed := wiring.Reach(ctx, m.dialFrom, []wiring.End{a, b}, []wiring.End{a, b}); len(failed) > 0 {
		t.Errorf("%+v", failed)
	}
	short, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	far := at("n2-vm0", "224.0.0.1") // multicast: the kernel opens no connection to it
	failed := wiring.Reach(short, m.dialFrom, []wiring.End{a, b}, []wiring.End{far, a})
	if len(failed) != 2 || failed[0].From.VM != "vm0" || failed[1].From.VM != "vm1" || failed[0].To != far {
		t.Fatalf("%+v", failed)
	}
	line := wiring.UnreachedLine(failed)
	for _, want := range []string{"devices: vm0 (rxe0, 127.0.0.1) does not reach n2-vm0 (224.0.0.1): ", "VLAN"} {
		if !strings.Contains(line, want) || strings.Contains(line, "\n") {
			t.Errorf("no %q in %q", want, line)
		}
	}
	if line := wiring.UnreachedLine(append(failed, failed...)); !strings.Contains(line, "and 1 pairs more") {
		t.Error(line)
	}

	// On InfiniBand, where IPoIB interfaces have the addresses, the message recommends to check the partition.
	ib := func(vm, ip string) wiring.End {
		return wiring.Ends(vm, []guest.Device{{Kind: "pci", RDMA: "mlx5_0", Net: "ib0", Port: "1", State: "ACTIVE", Layer: "InfiniBand", PKey: "0x8005", IP: ip}})[0]
	}
	short, cancel = context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	line = wiring.UnreachedLine(wiring.Reach(short, m.dialFrom, []wiring.End{ib("vm0", "127.0.0.1")}, []wiring.End{ib("n2-vm0", "224.0.0.1")}))
	for _, want := range []string{"devices: vm0 (mlx5_0, 127.0.0.1) does not reach n2-vm0 (224.0.0.1): ", "same partition (pkey)"} {
		if !strings.Contains(line, want) || strings.Contains(line, "VLAN") || strings.Contains(line, "\n") {
			t.Errorf("no %q in %q", want, line)
		}
	}
}

// Checks that a host predicts the device addresses that another host assigns to its VMs.
func TestCounterparts(t *testing.T) {
	r, host := devicesOfTwo()
	for self := range 2 {
		m := &VMs{net: &wiring.Net{Joined: &wiring.Joined{Overlay: &wiring.Overlay{Self: self,
			Hosts: []wiring.OverlayHost{{Name: "n1", VMs: []string{"n1-vm0", "n1-vm1"}}, {Name: "n2", VMs: []string{"n2-vm0", "n2-vm1"}}}}}}}
		same, err := m.net.EndsOf(r, self) // as the other host predicts them
		if err != nil {
			t.Fatal(err)
		}
		for vm := range r.Plan.VMs {
			fs, err := m.functions(host, r.Spec, r.Plan, vm)
			if err != nil {
				t.Fatal(err)
			}
			n := len(wiring.Ends("", r.VMs[vm].Devices))
			for i, f := range fs[:n] {
				if got := same[vm*n+i].Addr; got != f.Address.Addr() {
					t.Errorf("host %d, VM %d has %v, expected elsewhere %v", self, vm, f.Address, got)
				}
			}
		}
		list, err := m.net.EndsOf(r, 1-self)
		if err != nil || len(list) != 4 || list[0].VM != m.net.Joined.Hosts[1-self].VMs[0] || list[0].Addr == list[1].Addr {
			t.Errorf("%+v, %v", list, err)
		}
	}
}

// Checks hosts reached by ssh, which may have different numbers of VMs, and VMs without devices: every device has a
// unique address, which each host can predict.
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
	overlay := wiring.Overlay{}
	for i, vms := range plans {
		h := wiring.OverlayHost{Name: fmt.Sprint("n", i)}
		for k, v := range vms {
			h.VMs = append(h.VMs, fmt.Sprintf("n%d-vm%d", i, k))
			h.Sizes = append(h.Sizes, wiring.VMSize{Devices: len(v.Devices)})
		}
		overlay.Hosts = append(overlay.Hosts, h)
	}
	own := map[string][]string{} // VM to addresses of its devices
	seen := map[string]bool{}
	clusters := make([]*VMs, len(plans))
	records := make([]state.Record, len(plans))
	for i, vms := range plans {
		o := overlay
		o.Self = i
		rec := r
		rec.Plan, rec.VMs = &plan.Plan{VMs: vms}, nil
		for k, p := range vms {
			v := state.VMRecord{Name: overlay.Hosts[i].VMs[k]}
			if len(p.Devices) > 0 {
				v.Devices = has
			}
			rec.VMs = append(rec.VMs, v)
		}
		records[i] = rec
		clusters[i] = &VMs{net: &wiring.Net{Joined: &wiring.Joined{Overlay: &o}}}
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
	for i, m := range clusters {
		for k := range plans {
			if k == i {
				continue
			}
			list, err := m.net.EndsOf(records[i], k)
			if err != nil {
				t.Fatal(err)
			}
			at := map[string][]string{}
			for _, e := range list {
				at[e.VM] = append(at[e.VM], e.Addr.String())
			}
			for _, vm := range overlay.Hosts[k].VMs {
				if !slices.Equal(at[vm], own[vm]) {
					t.Errorf("host %d takes %q for %s, which has %q", i, at[vm], vm, own[vm])
				}
			}
		}
	}
}
