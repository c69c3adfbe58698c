package node

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// Checks that all nodes of a job derive the same names and secret, and that steps have secrets of their own.
func TestOverlay(t *testing.T) {
	c := &spec.Cluster{VMs: []spec.Group{{Count: 2}}}
	job := Overlay{Secret: strings.Repeat("5a", 32), Hosts: "n1=10.0.0.1 N2.site=fe80::1", Use: "job"}
	one, err := job.overlay(c, "n1")
	if err != nil {
		t.Fatal(err)
	}
	two, err := job.overlay(c, "N2.site")
	if err != nil || string(two.Secret) != string(one.Secret) || one.Self != 0 || two.Self != 1 || one.Ports != [2]int{61000, 65535} {
		t.Errorf("%v: %+v and %+v", err, one, two)
	}
	if got := strings.Join(append(one.Hosts[0].VMs, two.Hosts[1].VMs...), " "); got != "n1-vm0 n1-vm1 n2-site-vm0 n2-site-vm1" {
		t.Errorf("names: %s", got)
	}
	step := job
	step.Use = "step 3"
	if other, err := step.overlay(c, "n1"); err != nil || string(other.Secret) == string(one.Secret) {
		t.Errorf("%v: a step has its job's secret", err)
	}
	for _, bad := range []Overlay{
		{Secret: "", Hosts: job.Hosts}, {Secret: job.Secret, Hosts: "n1=a n2=b;c"}, {Secret: job.Secret, Hosts: "n3=a n2=b"},
		{Secret: job.Secret, Hosts: job.Hosts, Ports: "x"},
	} {
		if got, err := bad.overlay(c, "n1"); err == nil {
			t.Errorf("%+v: %+v", bad, got)
		}
	}
	c.Network.Type = "none"
	if got, err := job.overlay(c, "n1"); got != nil || err != nil {
		t.Errorf("without a network: %+v, %v", got, err)
	}
}
