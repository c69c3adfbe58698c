package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// Flags also work under their earlier names.
func TestRenamedFlags(t *testing.T) {
	for name, c := range map[string]struct {
		cmd          *cobra.Command
		old, renamed string
	}{
		"check":       {newCheckCommand(), "root", "from"},
		"device list": {subcommand(t, newDeviceCommand(), "list"), "root", "from"},
		"topology":    {newTopologyCommand(), "root", "from"},
		"plan":        {newPlanCommand(), "host", "from"},
		"explain":     {newExplainCommand(), "host", "from"},
		"verify":      {newVerifyCommand(), "root", "from"},
		"gres":        {newSlurmGresCommand(), "root", "from"},
		"doctor":      {newSlurmDoctorCommand(), "root", "from"},
		"import":      {newBenchImportCommand(), "hosts", "nodes"},
	} {
		if err := c.cmd.ParseFlags([]string{"--" + c.old, "1"}); err != nil || !c.cmd.Flags().Changed(c.renamed) {
			t.Errorf("%s --%s: %v", name, c.old, err)
		}
	}
}

// subcommand returns a subcommand of cmd.
func subcommand(t *testing.T, cmd *cobra.Command, name string) *cobra.Command {
	t.Helper()
	sub, _, err := cmd.Find([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return sub
}
