package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"

	"nearmetal/internal/verify"
)

func TestVerifyText(t *testing.T) {
	row := func(vm, what string, s verify.Status) verify.Row {
		return verify.Row{VM: vm, What: what, Planned: "1", Found: "2", Status: s}
	}
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	r := &verify.Report{Cluster: "demo", Rows: []verify.Row{row("vm0", "vCPUs", verify.OK), row("vm0", "caches", verify.Note),
		row("vm1", "vCPUs", verify.Differs)}}
	if err := printReport(cmd, r); err != nil {
		t.Fatal(err)
	}
	want := `vm0: as planned (2 points), 1 note
WHAT    PLANNED  FOUND  STATUS
vCPUs   1        2      ok
caches  1        2      note

vm1: 1 of 1 point differ
WHAT   PLANNED  FOUND  STATUS
vCPUs  1        2      differs

demo, 2 VMs: 1 of 3 points differ, 1 note
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
