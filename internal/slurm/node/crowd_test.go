package node

import (
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

func TestCrowd(t *testing.T) {
	for _, c := range []struct {
		vms           []spec.Group
		cpus          int
		warning, fail string
	}{
		{[]spec.Group{{VCPUs: 1}}, 1, "", ""},
		{[]spec.Group{{Count: 2, VCPUs: 2}}, 4, "", ""},
		{[]spec.Group{{Count: 4}}, 1, "", ""}, // VMs share the job's CPUs
		{[]spec.Group{{VCPUs: 8}}, 1, "the job has 1 CPU on n1 for 8 vCPUs: vCPUs share them", ""},
		{[]spec.Group{{Count: 2, VCPUs: 2}, {VCPUs: 1}}, 4, "the job has 4 CPUs on n1 for 5 vCPUs", ""},
		{[]spec.Group{{VCPUs: 64}}, 1, "", "64 vCPUs on the job's 1 CPU of n1"},
		{[]spec.Group{{Count: 17, VCPUs: 1}}, 2, "", "17 vCPUs on the job's 2 CPUs of n1"},
	} {
		warning, err := crowd(&spec.Cluster{VMs: c.vms}, "n1", c.cpus)
		if !strings.HasPrefix(warning, c.warning) || (warning == "") != (c.warning == "") {
			t.Errorf("%+v on %d: warning %q, want %q", c.vms, c.cpus, warning, c.warning)
		}
		if (err == nil) != (c.fail == "") || err != nil && !strings.Contains(err.Error(), c.fail) {
			t.Errorf("%+v on %d: %v, want %q", c.vms, c.cpus, err, c.fail)
		}
	}
}
