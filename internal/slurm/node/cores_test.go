package node

import (
	"fmt"
	"testing"

	"nearmetal/internal/topology"
)

// twoSockets returns a host with two sockets of two cores of two threads, numbered as in Linux: threads of a core are
// four apart, and cores alternate between the sockets.
func twoSockets() *topology.Host {
	h := &topology.Host{}
	for id := range 8 {
		core := id % 4
		h.CPUs = append(h.CPUs, topology.CPU{ID: id, Package: core % 2, Core: core, Online: true, Allowed: id != 7})
	}
	return h
}

func TestCoreCPUs(t *testing.T) {
	for list, want := range map[string]string{
		"0":   "[0 4]",   // the first core of socket 0
		"1":   "[2 6]",   // its second core
		"2-3": "[1 3 5]", // socket 1, of whose last core one thread is not allowed
		"0,9": "[0 4]",   // core 9 does not exist
		"0-3": "[0 1 2 3 4 5 6]",
	} {
		got, err := coreCPUs(twoSockets(), list)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v, %v; want %s", list, got, err, want)
		}
	}
	for _, bad := range []string{"8", "x", "3-1"} {
		if got, err := coreCPUs(twoSockets(), bad); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}
