package launch

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestOurs(t *testing.T) {
	env, err := Env(Setup{Side: OnHost, Cluster: "a", Agent: "/a/nearmetal-rsh", OpenMPIHosts: "/a/h", MPICHHosts: "/a/m",
		Subnet: netip.MustParsePrefix("10.77.0.0/16"), Interface: "eth0"}, []string{"UCX_NET_DEVICES=mine"})
	if err != nil {
		t.Fatal(err)
	}
	got := Ours(append([]string{"PATH=/bin", "UCX_NET_DEVICES=mine"}, env...))
	var want []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		want = append(want, name)
	}
	slices.Sort(got)
	if slices.Sort(want); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Ours([]string{"PATH=/bin"}); got != nil {
		t.Errorf("without the marker: %q", got)
	}
	if got := Ours([]string{marker + "=A_1:$(reboot):;b:2"}); !reflect.DeepEqual(got, []string{marker, "A_1"}) {
		t.Errorf("a marker that is not ours: %q", got)
	}
}
