package job

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/cluster/state"
)

// The first word of exec is a cluster, a VM or the command, as the clusters that run and "--" say.
func TestSplitExec(t *testing.T) {
	t.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(t.TempDir(), "run"))
	t.Setenv("NEARMETAL_CLUSTER", "")
	o, err := state.Create(state.Record{Name: "demo", State: state.Ready, VMs: []state.VMRecord{{Name: "vm0"}, {Name: "vm1"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Remove() })
	for _, c := range []struct {
		line    string
		dash    int
		named   bool
		want    Target
		command string
		wrong   string // part of the error
		usage   bool
	}{
		{line: "hostname -f", dash: -1, command: "hostname -f"},
		{line: "demo hostname", dash: -1, want: Target{Cluster: "demo"}, command: "hostname"},
		{line: "demo/vm1 -- ls -l", dash: -1, want: Target{"demo", "vm1"}, command: "ls -l"},
		{line: "/vm1 ls", dash: -1, want: Target{VM: "vm1"}, command: "ls"},
		{line: "demo hostname", dash: 0, command: "demo hostname"},
		{line: "demo hostname", dash: -1, named: true, command: "demo hostname"},
		{line: "/bin/sh -c true", dash: -1, command: "/bin/sh -c true"},
		{line: "nobodys -- true", dash: -1, wrong: "nobodys"},
		{line: "demo/vm7 true", dash: -1, wrong: "vm7"},
		{line: "demo", dash: -1, wrong: "demo is a cluster: exec needs a COMMAND", usage: true},
		{line: "demo/vm0", dash: -1, wrong: "demo/vm0 is a VM: exec needs a COMMAND", usage: true},
		{line: "demo vm1 -- true", dash: -1, wrong: "write exec demo/vm1 -- COMMAND", usage: true},
	} {
		got, command, err := SplitExec(strings.Fields(c.line), c.dash, c.named)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) || errors.As(err, new(*UsageError)) != c.usage {
				t.Errorf("%s: %v, want %q", c.line, err, c.wrong)
			}
		} else if err != nil || got != c.want || strings.Join(command, " ") != c.command {
			t.Errorf("%s: %v, %q, %v", c.line, got, command, err)
		}
	}
}
