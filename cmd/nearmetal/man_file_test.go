package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestClusterPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(filePage(string(text), "Nov 2026", "/opt/doc"))
	for _, want := range []string{`"NEARMETAL-CLUSTER" "5"`, ".SH NAME\nnearmetal-cluster", "/opt/doc/reference/cluster.schema.json", `\fBmemory\fP (size, 128MiB to`, ".SH SEE ALSO"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	for _, left := range []string{"Generated from", "\n.TS", "](", `\[la]#`, " docs/"} { // also links within the page, pages of the source tree
		if i := strings.Index(page, left); i >= 0 {
			t.Errorf("%q is left: %.60q", left, page[i:])
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("no groff")
	}
	cmd := exec.Command("groff", "-man", "-Tutf8", "-z")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %.2000s", err, out)
	}
}
