package measure

import (
	"strings"
	"testing"
)

// The text has a line for each kind of value, and names those that are out of line.
func TestText(t *testing.T) {
	m := &Result{Seconds: 2, Pairs: []Pair{{A: 0, B: 1, Kind: "core", Ns: 20}, {A: 0, B: 2, Kind: "core", Ns: 30}, {A: 0, B: 3, Kind: "core", Ns: 90, Odd: true}},
		RDMA: []RDMA{{Device: "mlx5_0", Error: "no port"}}}
	got := m.Text()
	for _, want := range []string{"measured in 2.0 s\n", "cache line, threads of a core", "30 ns (20 to 90)", "RDMA mlx5_0", "not measured: no port",
		"out of line for this machine:\n  CPUs 0 and 3 (same core): 90 ns\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if got := (&Result{}).Text(); !strings.Contains(got, "nothing is out of line") {
		t.Error(got)
	}
}
