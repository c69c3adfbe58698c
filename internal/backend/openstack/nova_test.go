//go:build nova

package openstack

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// check validates the extra specs of a flavor with Nova's own code, as its API does.
const check = `
import json, sys
from nova.api.validation.extra_specs import validators
for line in sys.stdin:
    for key, value in json.loads(line).items():
        try:
            validators.validate(key, value)
        except Exception as e:
            print("%s=%s: %s" % (key, value, e))
print("checked")
`

// TestNova: Nova accepts every extra spec of a request, and rejects those reported as lost.
func TestNova(t *testing.T) {
	nova := func(specs ...map[string]string) string {
		t.Helper()
		var in, errs bytes.Buffer
		for _, s := range specs {
			line, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			in.Write(append(line, '\n'))
		}
		cmd := exec.Command("../../../build/venv/nova/bin/python", "-W", "ignore", "-c", check)
		cmd.Stdin, cmd.Stderr = &in, &errs
		out, err := cmd.Output()
		text, ok := strings.CutSuffix(string(out), "checked\n")
		if err != nil || !ok {
			t.Fatalf("%v: %s%s", err, out, errs.String())
		}
		return text
	}
	var all []map[string]string
	for _, m := range requests(t) {
		for _, f := range m.request.Flavors {
			all = append(all, f.Specs)
		}
	}
	if bad := nova(all...); bad != "" {
		t.Errorf("Nova refuses:\n%s", bad)
	}
	t.Logf("%d flavors", len(all))
	for _, s := range []map[string]string{{"hw:cpu_dies": "2"}, {"hw:numa_cpus.0": ""}} {
		if nova(s) == "" {
			t.Errorf("Nova takes %v: loss.go says that it does not", s)
		}
	}
}
