package network

import (
	"net/netip"
	"testing"
)

func names(n int) []string { return make([]string, n) }

func TestAddresses(t *testing.T) {
	id := [16]byte{1, 2, 3, 4}
	got, err := Addresses(id, netip.MustParsePrefix("10.77.3.9/16"), []string{"vm0", "vm1"})
	if err != nil {
		t.Fatal(err)
	}
	if s := Hosts(got); s != "10.77.0.1 vm0\n10.77.0.2 vm1\n" {
		t.Errorf("hosts:\n%s", s)
	}
	if m := got[1].MAC.String(); m != "52:01:02:03:00:01" {
		t.Errorf("MAC %s", m)
	}
	if got[0].Prefix.String() != "10.77.0.0/16" {
		t.Errorf("prefix %s", got[0].Prefix)
	}
	many, err := Addresses(id, netip.MustParsePrefix("10.77.0.0/16"), names(1024))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, a := range many {
		if a.MAC[0]&3 != 2 {
			t.Fatalf("%s is not a local unicast address", a.MAC)
		}
		if seen[a.MAC.String()] || seen[a.IP.String()] {
			t.Fatalf("%s %s given twice", a.MAC, a.IP)
		}
		seen[a.MAC.String()], seen[a.IP.String()] = true, true
	}
	if ip := many[1023].IP.String(); ip != "10.77.4.0" {
		t.Errorf("the last of 1024 has %s", ip)
	}
}

func TestAddressesRefuses(t *testing.T) {
	for _, c := range []struct {
		subnet string
		n      int
	}{
		{"10.0.0.0/7", 2}, {"10.0.0.0/29", 2}, {"fd00::/16", 2}, {"10.0.0.0/28", 15}, {"10.0.0.0/8", 1<<16 + 1},
	} {
		if _, err := Addresses([16]byte{}, netip.MustParsePrefix(c.subnet), names(c.n)); err == nil {
			t.Errorf("%s with %d VMs was taken", c.subnet, c.n)
		}
	}
	if _, err := Addresses([16]byte{}, netip.Prefix{}, names(1)); err == nil {
		t.Error("no subnet was taken")
	}
	if _, err := Addresses([16]byte{}, netip.MustParsePrefix("10.0.0.0/28"), names(14)); err != nil {
		t.Error(err)
	}
}
