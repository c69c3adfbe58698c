package plan

import (
	"fmt"
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// TestAddressOnEachHost: an address is local to a host. If equal hosts have their cards in equal slots, one VM on
// each host has its own card; two VMs of one host cannot share it.
func TestAddressOnEachHost(t *testing.T) {
	var hosts []topology.Host
	for i := range 2 {
		h := machine(t, "r740")
		h.Name = fmt.Sprintf("n%d", i)
		hosts = append(hosts, h)
	}
	i := 0
	for hosts[0].Devices[i].PF != "" || hosts[0].Devices[i].TotalVFs == 0 {
		i++
	}
	at := hosts[0].Devices[i].Address
	file := func(vms int) *spec.Cluster {
		c, err := spec.Parse("cluster.yaml", []byte(fmt.Sprintf("vms:\n  - count: %d\n    vcpus: 4\n    memory: 4GiB\n    devices: [{type: pci, address: %q}]\n", vms, at)))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	p, err := Make(file(2), hosts, Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := p.VMs[0], p.VMs[1]; a.Host == b.Host || a.Devices[0].Address != at || b.Devices[0].Address != at {
		t.Errorf("%s has %+v, %s has %+v", a.Host, a.Devices, b.Host, b.Devices)
	}
	for vms, n := range map[int]int{3: 2, 2: 1} {
		if _, err := Make(file(vms), hosts[:n], Ledger{}); err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), at) {
			t.Errorf("%d VMs on %d hosts: %v", vms, n, err)
		} else {
			t.Log(err)
		}
	}
}

// TestTooWide: the plan rejects a VM with more vCPUs than QEMU supports. ESXi has other limits.
func TestTooWide(t *testing.T) {
	h := []topology.Host{machine(t, "uv16")}
	if len(h[0].CPUs) < 289 {
		t.Fatalf("%d CPUs", len(h[0].CPUs))
	}
	c := clusterOf(spec.Placement{}, spec.Group{Count: 1, VCPUs: 289, Memory: 16 << 30})
	for backend, refused := range map[string]bool{"": true, "qemu": true, "libvirt": true, "libvirt:///session": true, "vsphere": false} {
		c.Backend = backend
		_, err := Make(c, h, Ledger{})
		if got := err != nil && strings.Contains(err.Error(), "vm0 would have 289 vCPUs") && !strings.Contains(err.Error(), "\n"); got != refused || err != nil && !got {
			t.Errorf("%q: %v", backend, err)
		}
	}
	c.Backend, c.VMs[0].VCPUs = "qemu", 288
	if _, err := Make(c, h, Ledger{}); err != nil {
		t.Error(err)
	}
}
