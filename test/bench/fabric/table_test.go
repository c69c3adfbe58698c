package main

import (
	"strings"
	"testing"
)

func TestRatio(t *testing.T) {
	tab := newTable("", &way{name: "ivshmem"}, &way{name: "sm"}, &way{name: "ucx"})
	lat, bw := key{"latency", 8}, key{"bandwidth", 4096}
	for run, v := range []float64{9, 1, 2} {
		tab.add("ivshmem", lat, sample{run, 0.2, v})
		tab.add("sm", lat, sample{run, 0.2, 1.5 * v})
		tab.add("ucx", lat, sample{run, 0.2, v / 2})
	}
	tab.add("ivshmem", bw, sample{0, 0.2, 10})
	tab.add("sm", bw, sample{0, 0.2, 5})
	tab.add("ucx", bw, sample{0, 0.2, 20})
	for _, c := range []struct {
		k    key
		to   []string
		want float64
		peer string
	}{
		{lat, []string{"sm", "ucx"}, 0.5, "ucx"}, // the lowest latency is the best peer's
		{lat, []string{"sm"}, 1.5, "sm"},
		{bw, []string{"sm", "ucx"}, 0.5, "ucx"},
	} {
		if r, peer, ok := tab.ratio(c.k, ratio{"ivshmem", c.to}); !ok || r != c.want || peer != c.peer {
			t.Errorf("%v to %v: %v to %s (%v), want %v to %s", c.k, c.to, r, peer, ok, c.want, c.peer)
		}
	}
	if _, _, ok := tab.ratio(bw, ratio{"ivshmem", []string{"none"}}); ok {
		t.Error("a ratio without samples")
	}
}

func TestWorst(t *testing.T) {
	tab := newTable("", &way{name: "ivshmem"}, &way{name: "sm"})
	for bytes, v := range map[int]float64{4096: 5, 8192: 12, 16384: 9} {
		tab.add("ivshmem", key{"bandwidth", bytes}, sample{0, 0.2, v})
		tab.add("sm", key{"bandwidth", bytes}, sample{0, 0.2, 10})
	}
	// Another figure is not among these, and has units of its own.
	tab.add("ivshmem", key{"bandwidth+16", 8192}, sample{0, 0.2, 1})
	tab.add("sm", key{"bandwidth+16", 8192}, sample{0, 0.2, 10})
	if r, _, ok := tab.ratio(key{"bandwidth+16", 8192}, ratio{"ivshmem", []string{"sm"}}); r != 0.1 || !ok {
		t.Errorf("ratio of bandwidth+16: %v (%v), want 0.1", r, ok)
	}
	tab.add("ivshmem", key{"bandwidth", 12288}, sample{0, 0.2, 20})
	least, at, n, blank := worst(tab, ratio{"ivshmem", []string{"sm"}}, "bandwidth", 8192, 16384)
	if least != 0.9 || at != 16384 || n != 2 || blank != 1 {
		t.Errorf("worst: %v at %d of %d sizes, %d blank, want 0.9 at 16384 of 2, 1 blank", least, at, n, blank)
	}
}

// TestSlower: a figure counts as slower only where the median and the best run say so, by more than the noise.
func TestSlower(t *testing.T) {
	tab := newTable("", &way{name: "lf"}, &way{name: "lf-was"}, &way{name: "lf-again"})
	for bytes, lf := range map[int][3]float64{
		8:    {1.1, 1.1, 1.1},     // slower by more than the noise
		64:   {1.04, 1.04, 1.04},  // within it
		512:  {1, 1.2, 1.2},       // slower in the median alone
		1024: {0.9, 0.95, 1.0001}, // faster
	} {
		for run, v := range lf {
			tab.add("lf", key{"latency", bytes}, sample{run, 0.2, v})
			tab.add("lf-was", key{"latency", bytes}, sample{run, 0.2, 1})
			tab.add("lf-again", key{"latency", bytes}, sample{run, 0.2, 1 + float64(bytes)/20480})
		}
	}
	got := tab.slower(ratio{"lf", []string{"lf-was"}}, ratio{"lf-again", []string{"lf-was"}})
	if len(got) != 1 || !strings.HasPrefix(got[0], "latency 8 B: 0.909") {
		t.Errorf("slower: %q, want latency of 8 B alone", got)
	}
}
