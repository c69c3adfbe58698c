package local

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/backend"
)

// Checks that missing isolation mechanisms are described in the backend's own words, without the names of another
// backend's programs.
func TestUnfenced(t *testing.T) {
	why := map[backend.Cap]string{backend.CapSandbox: "it has no filter", backend.CapFilter: "it has no hub"}
	const calls, loop, refused = "the VMs' system calls are not filtered", "the VMs reach this host's loopback", " (isolation: standard refuses that)"
	for _, x := range []struct {
		caps   backend.Caps
		uplink bool
		want   []string
	}{
		{backend.Caps{Sandbox: true, Filter: true, Why: why}, true, nil},
		{backend.Caps{Why: why}, false, []string{calls + ": it has no filter" + refused}},
		{backend.Caps{Why: why}, true, []string{calls + ": it has no filter" + refused, loop + ": it has no hub" + refused}},
		{backend.Caps{}, true, []string{calls + refused, loop + refused}},
	} {
		if got := unfenced(x.caps, x.uplink); !slices.Equal(got, x.want) {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
}

// Checks that a missing mechanism of isolation: strict is reported once, or is an error if demanded.
func TestLack(t *testing.T) {
	var said []string
	notice := func(line string) { said = append(said, line) }
	missing := errors.New("no cgroups")
	if err := lack("x", nil, true, notice); err != nil || said != nil {
		t.Errorf("%v, %q", err, said)
	}
	if err := lack("x", missing, true, notice); !errors.Is(err, missing) || said != nil {
		t.Errorf("%v, %q", err, said)
	}
	if err := lack("x", missing, false, notice); err != nil || len(said) != 1 || !strings.Contains(said[0], "no cgroups") {
		t.Errorf("%v, %q", err, said)
	}
}
