package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"nearmetal/test/hosttree"
)

const formsDir = "../../docs/reference/json"

// The schemas of --json match the types, and keep their earlier promises.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	for _, f := range forms {
		text, err := os.ReadFile(filepath.Join(formsDir, formFile(f.command)))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, formFile(f.command)), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := writeForms(dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range forms {
		want, err := os.ReadFile(filepath.Join(dir, formFile(f.command)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(formsDir, formFile(f.command))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is stale: run make docs (%v)", formFile(f.command), err)
		}
	}
	// A broken promise is an error.
	path := filepath.Join(dir, "top.schema.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(`"waitNs"`), []byte(`"wasNs"`), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeForms(dir); err == nil || !strings.Contains(err.Error(), "[].wasNs is gone") {
		t.Errorf("a field that is gone: %v", err)
	}
}

// Every command with --json has a schema.
func TestEveryFormIsPromised(t *testing.T) {
	known := map[string]bool{"bench report": true} // the same command as report
	for _, f := range forms {
		known[f.command] = true
	}
	seen := 0
	everyCommand(func(c *cobra.Command) {
		if c.Flags().Lookup("json") == nil {
			return
		}
		seen++
		if name := strings.TrimPrefix(c.CommandPath(), "nearmetal "); !known[name] {
			t.Errorf("nearmetal %s --json has no schema", name)
		}
	})
	if seen < 10 {
		t.Errorf("%d commands with --json", seen)
	}
}

// The output of commands matches their schemas. The commands about running clusters are covered by test/commands.
func TestOutputFitsForm(t *testing.T) {
	forms, err := filepath.Abs(formsDir)
	if err != nil {
		t.Fatal(err)
	}
	run, err := filepath.Abs("../../internal/bench/record/testdata/latency")
	if err != nil {
		t.Fatal(err)
	}
	domain, err := filepath.Abs("../../internal/explain/testdata/nasa-at5.xml")
	if err != nil {
		t.Fatal(err)
	}
	host := hosttree.Dir(t) // with a card
	if err := hosttree.Write(host, "../../test/topology/epyc-nps4.machine"); err != nil {
		t.Fatal(err)
	}
	conf := t.TempDir()
	var said bytes.Buffer
	if code := execute([]string{"slurm", "example", "--node", "n1", "--dir", conf}, strings.NewReader(""), &said, &said); code != 0 {
		t.Fatalf("%d: %s", code, said.String())
	}
	enter(t, "testdata/files")
	for _, c := range []struct{ form, command string }{
		{"ps", "ps --json"}, {"top", "top --json"}, {"check", "check --json"}, {"topology", "topology --json"},
		{"explain", "explain --json --host " + host + " " + domain},
		{"plan", "plan --format json"}, {"plan --match", "plan --host " + host + " --vms 2 --format json --match flavors.json"},
		{"plan --format openstack-json", "plan --host " + host + " --vms 2 --format openstack-json"}, {"spec show", "spec show --json"},
		{"spec templates", "spec templates --json"}, {"check --fix --dry-run", "check --fix --dry-run --json --for vm-host"},
		{"bench install", "bench install osu --dry-run --json"},
		{"device list", "device list --json"}, {"device list", "device list --all --json --root " + host},
		{"device show", "device show 21:00.0 --json --root " + host},
		{"bench list", "bench list --json"}, {"bench compare", "bench compare --json " + run + " " + run},
		{"report", "report --json " + run}, {"slurm gres", "slurm gres --json --node n1"}, {"slurm doctor", "slurm doctor --json --node n1 --conf " + conf + "/slurm.conf"},
		{"version", "version --json"}, {"check --fleet", "check --json --fleet " + fleetOf(t)},
	} {
		var out, errs bytes.Buffer
		execute(strings.Fields(c.command), strings.NewReader(""), &out, &errs)
		s, err := readForm(filepath.Join(forms, formFile(c.form)))
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(out.Bytes(), &v); err != nil {
			t.Errorf("%s: %v: %s%s", c.command, err, out.String(), errs.String())
		} else if err := s.Check(v); err != nil {
			t.Errorf("%s: %v", c.command, err)
		}
	}
}

// fleetOf creates a directory with two reports of this host and one file that is not a report.
func fleetOf(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	execute([]string{"check", "--json", "--only", "cpu"}, strings.NewReader(""), &out, &errs)
	for name, text := range map[string][]byte{"a.json": out.Bytes(), "b.json": out.Bytes(), "c.json": []byte("none")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
