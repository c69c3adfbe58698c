package local

import (
	"strings"
	"testing"

	"nearmetal/internal/plan"
)

// Checks that a plan is compared with the free ordinary memory, and that huge pages do not count.
func TestShortOf(t *testing.T) {
	const gib = 1 << 30
	vm := func(pages ...uint64) plan.VM {
		v := plan.VM{MemoryBytes: 4 * gib}
		for _, p := range pages {
			v.Nodes = append(v.Nodes, plan.Node{MemoryBytes: 4 * gib / uint64(len(pages)), PageBytes: p})
		}
		return v
	}
	shm, huge := &plan.Region{SizeBytes: gib, Backing: "shm"}, &plan.Region{SizeBytes: gib, Backing: "hugetlb"}
	for i, c := range []struct {
		vms    []plan.VM
		region *plan.Region
		have   uint64
		want   string
	}{
		{[]plan.VM{vm(), vm()}, nil, 8 * gib, ""},
		{[]plan.VM{vm(), vm()}, nil, 7 * gib, "no memory for the VMs: 2 VMs need 8GiB together and 7GiB is available; --memory 3584MiB would fit"},
		{[]plan.VM{vm(), vm()}, shm, 8 * gib, "2 VMs need 9GiB together"},
		{[]plan.VM{vm(), vm()}, huge, 8 * gib, ""},
		{[]plan.VM{vm(2<<20, 2<<20), vm(gib)}, huge, 1 << 20, ""},
		{[]plan.VM{vm(2 << 20), vm(0, 0)}, nil, gib, "2 VMs need 4GiB together"},
	} {
		err := shortOf(&plan.Plan{VMs: c.vms, Region: c.region}, c.have)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d: %v, want %q", i, err, c.want)
		}
	}
}
