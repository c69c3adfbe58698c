package fleet

import (
	"context"
	"testing"

	"nearmetal/internal/spec"
)

// Hosts that are described are planned for without asking them: they are assumed to run VMs under KVM, and get different names.
func TestPlanDescribed(t *testing.T) {
	const machine = "../../../test/topology/c6100.machine"
	c := &spec.Cluster{VMs: []spec.Group{{Name: "vm", Count: 2, VCPUs: 2}}}
	spec.Defaults(c)
	p, hosts, _, err := Plan(context.Background(), []string{machine, machine}, c)
	if err != nil || len(p.VMs) != 2 || len(hosts) != 2 || c.Accel != "kvm" {
		t.Fatalf("%+v, %d hosts, %s, %v", p, len(hosts), c.Accel, err)
	}
	if hosts[0].Name == hosts[1].Name || hosts[1].Name != hosts[0].Name+"-2" {
		t.Errorf("%s and %s", hosts[0].Name, hosts[1].Name)
	}
	c.Placement.Hosts = []string{machine}
	if _, hosts, _, err = Plan(context.Background(), nil, c); err != nil || len(hosts) != 1 {
		t.Errorf("%d hosts, %v", len(hosts), err)
	}
	if _, _, _, err := Plan(context.Background(), []string{"/nonexistent.machine"}, c); err == nil {
		t.Error("a host that is not there is planned for")
	}
}
