package wiring

import (
	"net/netip"
	"strings"
	"testing"

	"nearmetal/internal/backend"
)

// Checks that Own validates the backend's description of its network.
func TestOwnNetworkChecked(t *testing.T) {
	at := netip.MustParsePrefix
	good := backend.Card{MAC: "52:54:00:00:00:01", Address: at("192.0.2.1/24")}
	for _, x := range []struct {
		second backend.Card
		want   string
	}{
		{backend.Card{MAC: "52:54:00:00:00:02"}, "is not an IPv4 address"},
		{backend.Card{MAC: "52:54:00:00:00:02", Address: at("2001:db8::1/64")}, "is not an IPv4 address"},
		{backend.Card{MAC: "53:54:00:00:00:02", Address: at("192.0.2.2/24")}, "not a unicast MAC"},
		{backend.Card{MAC: "52:54:00:00:00:01", Address: at("192.0.2.2/24")}, "another VM's"},
		{backend.Card{MAC: "52:54:00:00:00:02", Address: at("192.0.2.1/24")}, "another VM's"},
	} {
		if _, err := Own([]string{"vm0", "vm1"}, []backend.Card{good, x.second}); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "vm1") {
			t.Errorf("%+v: %v", x.second, err)
		}
	}
	if _, err := Own([]string{"vm0", "vm1"}, []backend.Card{good}); err == nil {
		t.Error("one card for two VMs")
	}
	// Addresses that arrive after the VMs have started are checked then.
	w, err := Own([]string{"vm0", "vm1"}, []backend.Card{{MAC: "52:54:00:00:00:01"}, {MAC: "52:54:00:00:00:02"}})
	if err != nil || !w.Late || w.Subnet(1) != "" || w.IP(1).IsValid() {
		t.Fatalf("%v, %+v", err, w)
	}
	if err := w.Address(0, good.Address); err != nil {
		t.Error(err)
	}
	for _, x := range []struct{ address, want string }{{"192.0.2.1/16", "another VM's"}, {"2001:db8::1/64", "is not an IPv4 address"}} {
		if err := w.Address(1, at(x.address)); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "vm1") {
			t.Errorf("%s: %v", x.address, err)
		}
	}
	if err := w.Address(1, at("192.0.2.2/24")); err != nil || w.Subnet(1) != "192.0.2.0/24" || w.config[1][0].Address != at("192.0.2.2/24") {
		t.Errorf("%v, %+v", err, w)
	}
}
