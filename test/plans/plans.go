// Package plans makes the plans that package plan keeps golden files of, for tests of what is made of plans.
package plans

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/plan"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
)

// Files returns the cluster files of the golden plans, below package plan's folder at dir.
func Files(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "testdata/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no plans in %s: %v", dir, err)
	}
	return files
}

// Name is what a cluster file's plan is called.
func Name(file string) string { return strings.TrimSuffix(filepath.Base(file), ".yaml") }

// Make makes the plan of a cluster file for the machine of test/topology that its name begins with, as on KVM.
func Make(t *testing.T, file string) (*plan.Plan, *spec.Cluster) {
	t.Helper()
	c, h := Read(t, file)
	p, err := plan.Make(c, []topology.Host{*h}, plan.Ledger{})
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

// Read returns a cluster file, and its machine.
func Read(t *testing.T, file string) (*spec.Cluster, *topology.Host) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := spec.Parse(filepath.Base(file), text)
	if err != nil {
		t.Fatal(err)
	}
	spec.Defaults(c)
	c.Accel = "kvm"
	machines := filepath.Join(filepath.Dir(file), "../../../test/topology")
	for machine := Name(file); ; {
		path := filepath.Join(machines, machine+".machine")
		if _, err := os.Stat(path); err == nil {
			h, err := topology.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			return c, h
		}
		i := strings.LastIndexByte(machine, '-')
		if i < 0 {
			t.Fatalf("%s: its name begins with no machine's", file)
		}
		machine = machine[:i]
	}
}
