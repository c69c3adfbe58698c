package plan

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

func TestMemoryShort(t *testing.T) {
	h := topology.Host{Name: "h", CPUs: []topology.CPU{{Online: true, Allowed: true}},
		Nodes: []topology.Node{{MemoryBytes: 4 << 30, AvailableBytes: 3 << 30, Allowed: true, CPUs: []int{0}}}}
	c := &spec.Cluster{VMs: []spec.Group{{Name: "vm", Count: 2, Memory: 2 << 30}}}
	_, err := Make(c, []topology.Host{h}, Ledger{})
	if err == nil || !strings.Contains(err.Error(), "short") {
		t.Errorf("4 GiB of VMs in 3 GiB: %v", err)
	}
}
