package topology

import "testing"

func TestReadThisHost(t *testing.T) {
	h, err := Read("/")
	if err != nil {
		t.Fatal(err)
	}
	if _, cores, cpus := h.Counts(); cores < 1 || cpus < cores {
		t.Errorf("%d cores, %d CPUs", cores, cpus)
	}
	if h.Nodes[0].MemoryBytes == 0 || len(h.Nodes[0].CPUs) == 0 {
		t.Errorf("first node: %+v", h.Nodes[0])
	}
}
