package job

import (
	"fmt"
	"testing"

	"nearmetal/internal/cluster/state"
	"nearmetal/internal/load"
)

// TestCarried: bytes from before the command do not count for it; a counter that decreased, or that is in one reading
// only, is omitted.
func TestCarried(t *testing.T) {
	vms := []state.VMRecord{{Name: "vm0"}, {Name: "vm1"}, {Name: "vm2"}}
	before := map[string][]load.Interface{
		"vm0": {{Name: "eth0", Received: 100, Sent: 10}, {Name: "mlx5_0/1", RDMA: true, Received: 4, Sent: 8}, {Name: "eth1", Received: 9}},
		"vm1": {{Name: "eth0", Sent: 7}},
	}
	after := map[string][]load.Interface{
		"vm0": {{Name: "eth0", Received: 150, Sent: 30}, {Name: "mlx5_0/1", RDMA: true, Received: 404, Sent: 8}, {Name: "eth1", Received: 1}},
		"vm1": {{Name: "eth0", Sent: 8}, {Name: "eth9", Sent: 5}},
		"vm2": {{Name: "eth0", Sent: 8}},
	}
	got := fmt.Sprint(Carried(vms, before, after))
	if want := "[{vm0 eth0 50 20} {vm0 mlx5_0/1 400 0} {vm1 eth0 0 1}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestUncounted: only a cluster whose VMs have no provider cannot count.
func TestUncounted(t *testing.T) {
	two := []state.VMRecord{{Name: "vm0"}, {Name: "vm1"}}
	for _, c := range []struct {
		r    state.Record
		want bool
	}{
		{state.Record{VMs: two}, true},
		{state.Record{VMs: two, Channels: state.Channels{Fabric: "/x"}}, false},
		{state.Record{VMs: two, Channels: state.Channels{Promised: 1 << 20}}, false},
		{state.Record{VMs: two[:1]}, false},
	} {
		if got := Uncounted(&c.r); got != c.want {
			t.Errorf("%d VMs, provider %q, promised %d: %v", len(c.r.VMs), c.r.Fabric, c.r.Promised, got)
		}
	}
}
