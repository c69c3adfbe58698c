package plan

import "testing"

// TestOn: a host's part of a plan has its own VMs, numbered from 0, with the region if any host needs one.
func TestOn(t *testing.T) {
	p := &Plan{Version: 1, Cluster: "c", Region: &Region{SizeBytes: 64 << 20, HostNode: -1, Hosts: []RegionHost{{"a", 0}, {"b", 1}}},
		Reserved: []Reserved{{"a", []int{0}}, {"b", []int{7}}},
		VMs:      []VM{{Name: "vm0", Index: 0, Host: "a"}, {Name: "vm1", Index: 1, Host: "b"}, {Name: "vm2", Index: 2, Host: "a"}}}
	b := p.On("b")
	if len(b.VMs) != 1 || b.VMs[0].Name != "vm1" || b.VMs[0].Index != 0 || len(b.Reserved) != 1 || b.Reserved[0].CPUs[0] != 7 {
		t.Errorf("%+v", b)
	}
	if b.Region == nil || b.Region.HostNode != 1 || b.Region.Hosts != nil {
		t.Errorf("region %+v: host a has two VMs, so b needs it too", b.Region)
	}
	if !crowded(p.VMs) || crowded(p.VMs[:2]) {
		t.Error("two VMs of a host are not seen, or are where there are none")
	}
	if p.Region.Hosts == nil || p.VMs[1].Index != 1 {
		t.Error("the whole plan has changed")
	}
}
