package launch

import (
	"net"
	"net/netip"
	"strings"
	"testing"
)

var twoHosts = []Host{
	{"vm0", netip.MustParseAddr("10.77.0.1"), 2},
	{"vm1", netip.MustParseAddr("10.77.0.2"), 1},
}

func TestHostfile(t *testing.T) {
	for format, want := range map[string][2]string{
		"openmpi": {"vm0 slots=2\nvm1 slots=1\n", "10.77.0.1 slots=2\n10.77.0.2 slots=1\n"},
		"mpich":   {"vm0:2\nvm1:1\n", "10.77.0.1:2\n10.77.0.2:1\n"},
		"slurm":   {"vm0\nvm0\nvm1\n", "10.77.0.1\n10.77.0.1\n10.77.0.2\n"},
		"pdsh":    {"vm0\nvm1\n", "10.77.0.1\n10.77.0.2\n"},
	} {
		if got, err := Hostfile(twoHosts, format); err != nil || got != want[0] {
			t.Errorf("%s: %q %v", format, got, err)
		}
		if got, err := AddressHostfile(twoHosts, format); err != nil || got != want[1] {
			t.Errorf("%s: %q %v", format, got, err)
		}
	}
	if _, err := Hostfile(twoHosts, "pbs"); err == nil || !strings.Contains(err.Error(), "openmpi, mpich, slurm, pdsh") {
		t.Error(err)
	}
}

func TestCheckHosts(t *testing.T) {
	if err := CheckHosts(twoHosts, "login1.example.org"); err != nil {
		t.Error(err)
	}
	for _, own := range []string{"vm1", "VM1", "vm1.example.org"} {
		if err := CheckHosts(twoHosts, own); err == nil || !strings.Contains(err.Error(), "vm1 has the name of this host") {
			t.Errorf("%s: %v", own, err)
		}
	}
	for _, h := range []Host{{Name: "", Slots: 1}, {Name: "a b", Slots: 1}, {Name: "a:1", Slots: 1}, {Name: "-a", Slots: 1}, {Name: "localhost", Slots: 1}, {Name: "vm", Slots: 0}} {
		if err := CheckHosts([]Host{h}, "x"); err == nil {
			t.Errorf("%+v is wrong", h)
		}
	}
}

func TestNeedsVM(t *testing.T) {
	addr := func(s string) net.Addr {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		n.IP = ip
		return n
	}
	lo := []net.Addr{addr("127.0.0.1/8"), addr("::1/128")}
	for _, c := range []struct {
		l    Launcher
		a    []net.Addr
		need bool
	}{
		{Launcher{Library: OpenMPI, Version: "5.0.11"}, lo, true},
		{Launcher{Library: OpenMPI, Version: "5.0.11"}, append(lo, addr("192.0.2.2/24")), false},
		{Launcher{Library: OpenMPI, Version: "4.1.4"}, lo, false},
		{Launcher{Library: MPICH, Version: "5.0.2"}, lo, false},
	} {
		if why := NeedsVM(c.l, c.a); (why != "") != c.need {
			t.Errorf("%v: %q", c.l, why)
		}
	}
}
