package node

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// Checks that the VFs of a node are divided evenly, or that the error names a number that can be.
func TestShare(t *testing.T) {
	two := Allocation{Node: "n1", Devices: []string{"0000:41:10.0", "0000:41:10.2"}}
	for _, c := range []struct {
		vf   string
		vms  int
		a    Allocation
		want int // per VM
		err  string
	}{
		{"", 2, two, 0, ""},
		{"igb:2", 2, two, 1, ""},
		{"2", 1, two, 2, ""},
		{"1", 2, two, 0, "ask for 2"},
		{"3", 1, two, 0, "add --gres=vf:3"},
		{"igb:1", 1, Allocation{Node: "n1"}, 0, "add --gres=vf:igb:1"},
		{"x", 1, two, 0, "broken"},
	} {
		s := &spec.Cluster{VMs: []spec.Group{{Count: c.vms}}}
		err := share(s, c.vf, c.a)
		got := 0
		for _, d := range s.VMs[0].Devices {
			got += d.Count
		}
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q on %d VMs: %d, %v", c.vf, c.vms, got, err)
		}
	}
}
