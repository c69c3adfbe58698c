package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
)

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// table formats rows as `nearmetal verify` shows them.
func table(rows []Row) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.VM, r.What, r.Planned, r.Found, r.Status)
	}
	w.Flush()
	return b.String()
}

// differing returns the rows that are not ok.
func differing(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.Status != OK {
			fmt.Fprintln(&b, r.Status, r)
		}
	}
	return b.String()
}
