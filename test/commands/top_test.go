package commands

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"nearmetal/internal/load"
)

// top reads the VMs' processes: each of the two has run, and one that is busy uses a CPU.
func TestTop(t *testing.T) {
	lab(t)
	up(t, "busy", 2)
	out, errs, code := answer(t, "top", "busy", "--json")
	var vms []load.VM
	if err := json.Unmarshal([]byte(out), &vms); code != 0 || err != nil || len(vms) != 2 {
		t.Fatalf("%d, %v, %q, %q", code, err, out, errs)
	}
	for i, v := range vms {
		if v.Cluster != "busy" || v.Name != []string{"vm0", "vm1"}[i] || v.State != "ready" || v.VCPUs != 1 || v.Other <= 0 || v.ResidentBytes == 0 {
			t.Errorf("%+v", v)
		}
	}
	if v := vms[0]; v.ReadBytes == nil || v.WrittenBytes == nil || v.Nodes != nil {
		t.Errorf("%+v", v)
	}
	out, errs, code = answer(t, "top", "busy", "--inside", "--json")
	if err := json.Unmarshal([]byte(out), &vms); code != 0 || err != nil || len(vms[1].Interfaces) == 0 {
		t.Errorf("%d, %v, %q, %q", code, err, out, errs)
	}
	out, errs, code = answer(t, "top", "busy", "--nodes", "--json")
	if err := json.Unmarshal([]byte(out), &vms); code != 0 || err != nil {
		t.Fatalf("%d, %v, %q, %q", code, err, out, errs)
	}
	if _, err := os.Stat("/proc/self/numa_maps"); err == nil && (len(vms[0].Nodes) == 0 || vms[0].Nodes[0].Bytes == 0 || vms[0].RegionBytes == nil) {
		t.Errorf("%+v", vms[0])
	}
	if out, errs, code := answer(t, "top", "--openmetrics"); code != 0 || !strings.Contains(out, `nearmetal_vm_up{cluster="busy",vm="vm1"} 1`) {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	if out, errs, code := answer(t, "top", "--count", "2", "--interval", "50ms"); code != 0 || strings.Count(out, "busy/vm1  ready") != 2 || strings.Count(out, "USED") != 2 || strings.Contains(out, "NET-IN") {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	for _, args := range [][]string{{"top", "none"}, {"top", "--count", "-1"}, {"top", "busy/vm0"}, {"top", "--json", "--openmetrics"}, {"ps", "--watch", "--json"}} {
		if out, errs, code := answer(t, args...); code == 0 || errs == "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: %d, %q, %q", args, code, out, errs)
		}
	}
}
