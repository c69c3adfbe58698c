package wiring

import (
	"testing"

	"nearmetal/internal/backend"
	"nearmetal/internal/spec"
)

func TestWire(t *testing.T) {
	n := spec.Network{Type: "auto", Subnet: "10.77.0.0/16", MTU: 65521}
	for _, c := range []struct {
		names  []string
		typ    string
		uplink bool
		files  int // files that QEMU inherits for each VM
		cards  int
		ip     string // of the first VM
		subnet string
		sw     bool
	}{
		{[]string{"vm0"}, "auto", true, 0, 1, "10.0.2.15", "10.0.2.0/24", false},
		{[]string{"vm0"}, "auto", false, 0, 0, "127.0.0.1", "", false},
		{[]string{"vm0", "vm1"}, "auto", true, 1, 2, "10.77.0.1", "10.77.0.0/16", false},
		{[]string{"vm0", "vm1", "vm2"}, "auto", false, 1, 1, "10.77.0.1", "10.77.0.0/16", true},
		{[]string{"vm0", "vm1"}, "none", true, 0, 1, "10.0.2.15", "10.0.2.0/24", false},
	} {
		n.Type = c.typ
		w, err := Make(Request{Network: n, ID: [16]byte{1, 2, 3, 4, 5, 6}, Names: c.names, Uplink: c.uplink})
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		macs := map[string]bool{}
		for i := range c.names {
			if len(w.files[i]) != c.files || len(w.links[i]) != c.cards || len(w.config[i]) != c.cards {
				t.Errorf("%v: VM %d has %d files, %d cards", c, i, len(w.files[i]), len(w.links[i]))
			}
			for _, l := range w.links[i] {
				if macs[l.MAC] {
					t.Errorf("%v: MAC %s twice", c, l.MAC)
				}
				macs[l.MAC] = true
				if (l.Kind == backend.LinkUser) != (l.MTU == 0) {
					t.Errorf("%v: card %+v", c, l)
				}
			}
		}
		if w.IP(0).String() != c.ip || w.Subnet(0) != c.subnet || (w.sw != nil) != c.sw {
			t.Errorf("%v: ip %s, subnet %q, switch %v", c, w.IP(0), w.Subnet(0), w.sw != nil)
		}
		w.Close()
	}
}
