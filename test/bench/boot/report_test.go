package main

import (
	"strings"
	"testing"
	"time"
)

func TestSummary(t *testing.T) {
	if x := summary("a", "s", []float64{3, 1, 2}); x.Median != 2 || x.Min != 1 || x.Max != 3 {
		t.Errorf("odd: %+v", x)
	}
	if x := summary("a", "s", []float64{4, 1, 2, 3}); x.Median != 2.5 {
		t.Errorf("even: %+v", x)
	}
	sec := func(s ...int) (d []time.Duration) {
		for _, n := range s {
			d = append(d, time.Duration(n)*time.Second)
		}
		return d
	}
	if x := ratio("r", sec(2, 4, 9), sec(2, 2, 3)); x.Median != 2 || x.Min != 1 || x.Max != 3 {
		t.Errorf("ratio: %+v", x)
	}
}

func TestPrint(t *testing.T) {
	r := report{Accel: "tcg", QEMU: "QEMU 7.2.0", Runs: 1, Results: []result{
		{Name: "slow", Median: 2, Bar: 1}, {Name: "quick", Median: 1, Bar: 1}, {Name: "inside", Guest: true}}}
	lines := func() []string {
		var b strings.Builder
		if err := r.print(&b); err != nil {
			t.Fatal(err)
		}
		return strings.Split(b.String(), "\n")
	}
	for i, words := range [][]string{3: {"slow", "≤ 1.000", "MISSED"}, 4: {"quick", "met"}, 5: {"inside (emulated)"}, 7: {"emulated: "}} {
		for _, w := range words {
			if !strings.Contains(lines()[i], w) {
				t.Errorf("line %d: %q lacks %q", i, lines()[i], w)
			}
		}
	}
	r.Accel = "kvm"
	if strings.Contains(strings.Join(lines(), "\n"), "emulated") {
		t.Error("KVM is called emulation")
	}
}
