package job

import (
	"context"
	"path/filepath"
	"testing"

	"nearmetal/internal/cluster/state"
)

// Usage has a row for each VM of the clusters that run here, or of the one that is named.
func TestUsage(t *testing.T) {
	t.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(t.TempDir(), "run"))
	t.Setenv("NEARMETAL_CLUSTER", "")
	if list, err := Usage(context.Background(), "", Extras{}); err != nil || list == nil || len(list) != 0 {
		t.Errorf("without a cluster: %v, %v", list, err)
	}
	for name, vms := range map[string][]state.VMRecord{"one": {{Name: "vm0"}}, "two": {{Name: "vm0"}, {Name: "vm1"}}} {
		o, err := state.Create(state.Record{Name: name, State: state.Ready, VMs: vms})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { o.Remove() })
	}
	for name, want := range map[string]int{"": 3, "one": 1, "two": 2} {
		list, err := Usage(context.Background(), name, Extras{Nodes: true})
		if err != nil || len(list) != want {
			t.Errorf("cluster %q: %d VMs, %v", name, len(list), err)
		}
	}
	if _, err := Usage(context.Background(), "three", Extras{}); err == nil {
		t.Error("a cluster that does not run has VMs")
	}
}
