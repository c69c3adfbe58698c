package tenant

import (
	"context"
	"testing"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
)

// Checks the machine that a flavor promises: as many packages as the servers have NUMA nodes, with the flavor's vCPUs
// and memory, and nothing of a vendor.
func TestHosts(t *testing.T) {
	d := &driver{vms: 3, flavor: flavors.Flavor{Name: "hpc.16: \"large\"\n", VCPUs: 16, RAM: 32768,
		ExtraSpecs: map[string]string{"hw:numa_nodes": "2", "hw:cpu_threads": "2"}}}
	list, err := d.Hosts(context.Background())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	h := list[0]
	if len(h.CPUs) != 48 || len(h.Nodes) != 6 || h.Nodes[0].MemoryBytes != 16<<30 {
		t.Errorf("%d CPUs, %d nodes, %d bytes in the first", len(h.CPUs), len(h.Nodes), h.Nodes[0].MemoryBytes)
	}
	cores := map[[2]int]bool{}
	for _, c := range h.CPUs {
		cores[[2]int{c.Package, c.Core}] = true
	}
	if len(cores) != 24 {
		t.Errorf("%d cores", len(cores))
	}
	if h.Name != "openstack" || h.Vendor != "" || h.Model != `a server of flavor hpc.16: "large"` {
		t.Errorf("name %q, vendor %q, model %q", h.Name, h.Vendor, h.Model)
	}
	for _, bad := range []flavors.Flavor{{}, {VCPUs: 1}, {VCPUs: 30000, RAM: 1024}} {
		d.flavor = bad
		if _, err := d.Hosts(context.Background()); err == nil {
			t.Errorf("flavor %+v makes a machine", bad)
		}
	}
}
