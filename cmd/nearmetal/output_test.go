package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/record"
)

// plan, topology, traffic and report accept the same flags for the format and the place of their output; the older
// --svg still works.
func TestOutputFlags(t *testing.T) {
	counts := t.TempDir()
	if err := os.WriteFile(filepath.Join(counts, "vm0"), []byte("nearmetal-traffic 1\nself 0 7 vm0 slot:aa:0:1\nend\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run, err := filepath.Abs("../../internal/bench/record/testdata/latency")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make func() *cobra.Command
		args []string
	}{
		"plan":     {newPlanCommand, []string{"--host", aMachine, "--vms", "1", "--vcpus", "2", "--memory", "1GiB"}},
		"topology": {newTopologyCommand, []string{"--root", aMachine}},
		"traffic":  {newTrafficCommand, []string{counts}},
		"report":   {newReportCommand, []string{run}},
	} {
		dir := t.TempDir()
		at := func(file string) string { return filepath.Join(dir, file) }
		do := func(args ...string) string {
			t.Helper()
			out, err := command(t, c.make, append(append([]string{}, c.args...), args...)...)
			if err != nil {
				t.Errorf("%s %q: %v", name, args, err)
			}
			return out
		}
		text := do("--json")
		if !json.Valid([]byte(text)) {
			t.Errorf("%s --json: %.200s", name, text)
		}
		if again := do("--format", "json"); !json.Valid([]byte(again)) {
			t.Errorf("%s --format json: %.200s", name, again)
		}
		for _, args := range [][]string{{"--json", "-o", at("a")}, {"--format", "json", "--output", at("a")}} {
			os.Remove(at("a"))
			do(args...)
			if b, err := os.ReadFile(at("a")); err != nil || !json.Valid(b) {
				t.Errorf("%s %q: %v, %.200s", name, args, err, b)
			}
		}
		if name == "report" { // it writes many pictures, and -o is their directory
			continue
		}
		if out := do("--format", "svg"); !strings.HasPrefix(out, "<svg ") {
			t.Errorf("%s --format svg: %.100s", name, out)
		}
		for _, args := range [][]string{{"-o", at("b.svg")}, {"--format", "svg", "-o", at("b.svg")}, {"--svg", at("b.svg")}} {
			os.Remove(at("b.svg"))
			do(args...)
			if b, err := os.ReadFile(at("b.svg")); err != nil || !bytes.HasPrefix(b, []byte("<svg ")) {
				t.Errorf("%s %q: %v, %.100s", name, args, err, b)
			}
		}
		do("-o", at("c.json"))
		if b, err := os.ReadFile(at("c.json")); err != nil || !json.Valid(b) {
			t.Errorf("%s -o c.json: %v, %.100s", name, err, b)
		}
		do("-o", at("d"))
		if b, err := os.ReadFile(at("d")); err != nil || len(b) == 0 || b[0] == '{' {
			t.Errorf("%s -o d: %v, %.100s", name, err, b)
		}
		for _, args := range [][]string{{"--json", "--format", "svg"}, {"--format", "gif"}} {
			if _, err := command(t, c.make, append(append([]string{}, c.args...), args...)...); err == nil {
				t.Errorf("%s %q is taken", name, args)
			}
		}
	}
}

// A suite that a run used by --suite is shown by its name, like installed ones.
func TestShowSuiteOfRun(t *testing.T) {
	dir := t.TempDir()
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chdir(before) })
	t.Setenv("XDG_CONFIG_HOME", dir)
	if _, err := command(t, newBenchShowCommand, "mine"); err == nil || !strings.Contains(err.Error(), "--suite FILE") {
		t.Errorf("without a run: %v", err)
	}
	const text = "version: 1\nsuite: mine\ntitle: Mine\nexperiments:\n  - name: a\n    title: A\n    programs: [{name: echo, find: [echo]}]\n    command: [\"{program}\"]\n    output: [{metric: m, unit: s, better: down, kind: bar, wall: true}]\n"
	if err := os.WriteFile("own.yaml", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, words := range [][]string{{"nearmetal", "bench", "run", "mine", "--suite", "own.yaml"}, {"nearmetal", "bench", "run", "mine", "--suite=own.yaml"}} {
		os.RemoveAll(record.RunsDir)
		folder := filepath.Join(record.RunsDir, "one")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := record.SaveRun(folder, &record.Run{Version: record.Version, ID: "one", Command: words}); err != nil {
			t.Fatal(err)
		}
		if out, err := command(t, newBenchShowCommand, "mine"); err != nil || out != text {
			t.Errorf("%d: %q, %v", i, out, err)
		}
	}
}

// The output of down and host recover matches their schemas. Neither is run here: it would end clusters and change this
// host.
func TestRecoveredForm(t *testing.T) {
	for form, v := range map[string]any{
		"host recover": recovered{Undone: []string{"a"}, Removed: []string{}},
		"down":         []ended{{Name: "a", Lost: []string{}}, {Name: "b", Lost: []string{"x"}, Error: "y"}},
	} {
		s, err := readForm(filepath.Join(formsDir, formFile(form)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var back any
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(back); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
}
