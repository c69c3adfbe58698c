package importer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
)

// TestAddRuns: a run of a VM that nearmetal did not make is added to another run, once; a run without such a VM is
// rejected.
func TestAddRuns(t *testing.T) {
	write := func(name string, v record.Variant) string {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		run := &record.Run{Version: record.Version, ID: name, Variants: []record.Variant{v}, Cases: []record.Case{{Name: "osu/bw", Unit: "MB/s", X: "size"}}}
		if err := appendSamples(dir, []record.Sample{{Case: "osu/bw", Variant: v.Label, Value: 3, OK: true}}); err != nil {
			t.Fatal(err)
		}
		if err := record.SaveRun(dir, run); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ours := write("ours", record.Variant{Label: "native.2", Kind: "native"})
	cloud := write("cloud", record.Variant{Label: "EC2", Kind: "vm", Foreign: true, Host: &record.Host{Name: "there"}})
	taken, err := AddRuns(ours, []string{cloud})
	if err != nil || len(taken) != 1 || taken[0].Values != 1 || strings.Join(taken[0].Variants, " ") != "EC2" {
		t.Fatalf("%v, %+v", err, taken)
	}
	run, samples, _, err := record.Load(ours)
	if err != nil || len(run.Variants) != 2 || run.Variants[1].Host.Name != "there" || len(samples) != 2 {
		t.Fatalf("%+v %v %v", run, samples, err)
	}
	if _, err := AddRuns(ours, []string{cloud}); err == nil || !strings.Contains(err.Error(), "a variant EC2 already") {
		t.Errorf("twice: %v", err)
	}
	if _, err := AddRuns(cloud, []string{ours}); err == nil || !strings.Contains(err.Error(), "--kind vm") && !strings.Contains(err.Error(), "already") {
		t.Errorf("a native run: %v", err)
	}
}
