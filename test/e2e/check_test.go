package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"nearmetal/internal/host/check"
)

// TestCheckVM checks a running VM from the inside: the report is the VM's, and nothing stays in it.
func TestCheckVM(t *testing.T) {
	name := up(t, "--vms", "1", "--vcpus", "1", "--accel", "tcg", "--no-share")
	// An emulated VM fails vm.accel, and so the check.
	out := nm(t, "check", "-c", name, "--vm", "vm0", "--json").want(t, 3).out
	var r check.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Host != "vm0" || r.Profile != check.Guest || !strings.Contains(r.CPU, "TCG") {
		t.Errorf("a report of %q as %q on %q", r.Host, r.Profile, r.CPU)
	}
	status := map[string]check.Status{}
	for _, row := range r.Rows {
		status[row.ID] = row.Status
		if row.Fixable {
			t.Errorf("%s: this host's --fix cannot fix a VM", row.ID)
		}
	}
	for id, want := range map[string]check.Status{"vm.accel": check.Fail, "vm.nested-paging": check.OK, "vm.tsc": check.OK, "limits.memlock": check.OK} {
		if status[id] != want {
			t.Errorf("%s is %q, want %q", id, status[id], want)
		}
	}
	if _, ok := status["kvm.nested-paging"]; !ok {
		t.Error("what only the host knows is missing")
	}
	nm(t, "exec", "-c", name, "--", "ls", "/run/nearmetal-check").want(t, 2)
	nm(t, "check", "-c", name, "--vm", "nobody").want(t, 125, "nobody")
}
