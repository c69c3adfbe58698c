package main

import "testing"

func TestRatio(t *testing.T) {
	tab := newTable("raw", "ivshmem", "ivshmem-nocma", "sm", "sm-nocma", "ucx")
	lat, bw := key{"latency", 8}, key{"bandwidth", 4096}
	for _, v := range []float64{9, 1, 2} { // median 2
		tab.add("ivshmem", lat, v)
	}
	tab.add("ivshmem-nocma", lat, 4)
	tab.add("sm", lat, 3)
	tab.add("ucx", lat, 1)
	tab.add("sm-nocma", lat, 8)
	tab.add("raw", lat, 0.1)
	tab.add("ivshmem", bw, 10)
	tab.add("sm", bw, 5)
	tab.add("ucx", bw, 20)
	for _, c := range []struct {
		k    key
		ours string
		want float64
		peer string
	}{
		{lat, "ivshmem", 0.5, "ucx"},          // the lowest latency is the best peer's
		{lat, "ivshmem-nocma", 2, "sm-nocma"}, // and only those without CMA count here
		{bw, "ivshmem", 0.5, "ucx"},
	} {
		if r, peer, ok := tab.ratio(c.k, c.ours); !ok || r != c.want || peer != c.peer {
			t.Errorf("%v %s: %v to %s (%v), want %v to %s", c.k, c.ours, r, peer, ok, c.want, c.peer)
		}
	}
	if _, _, ok := tab.ratio(bw, "ivshmem-nocma"); ok {
		t.Error("a ratio without samples")
	}
}
