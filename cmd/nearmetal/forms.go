package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"nearmetal/internal/backend/openstack"
	"nearmetal/internal/backend/openstack/hook"
	"nearmetal/internal/backend/vsphere/esx"
	"nearmetal/internal/bench/gate"
	"nearmetal/internal/bench/install"
	"nearmetal/internal/cluster/state"
	"nearmetal/internal/explain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/host/device"
	"nearmetal/internal/host/fleet"
	"nearmetal/internal/jsonform"
	"nearmetal/internal/load"
	"nearmetal/internal/plan"
	reporting "nearmetal/internal/report"
	"nearmetal/internal/site"
	"nearmetal/internal/slurm"
	"nearmetal/internal/spec"
	"nearmetal/internal/terminal"
	"nearmetal/internal/topology"
	"nearmetal/internal/traffic"
	"nearmetal/internal/verify"
)

// forms are the types of the output of commands with --json.
var forms = []struct {
	command string
	of      reflect.Type
}{
	{"ps", reflect.TypeFor[[]state.Record]()},
	{"ps NAME", reflect.TypeFor[state.Record]()},
	{"up", reflect.TypeFor[state.Record]()},
	{"down", reflect.TypeFor[[]ended]()},
	{"host recover", reflect.TypeFor[recovered]()},
	{"top", reflect.TypeFor[[]load.VM]()},
	{"traffic", reflect.TypeFor[traffic.Matrix]()},
	{"verify", reflect.TypeFor[verify.Report]()},
	{"check", reflect.TypeFor[check.Report]()},
	{"explain", reflect.TypeFor[explain.Report]()},
	{"topology", reflect.TypeFor[topology.Host]()},
	{"plan", reflect.TypeFor[plan.Plan]()},
	{"plan --match", reflect.TypeFor[[]matched]()},
	{"plan --format openstack-json", reflect.TypeFor[openstack.Request]()},
	{"plan --format vsphere", reflect.TypeFor[esx.Translation]()},
	{"spec templates", reflect.TypeFor[[]site.Named]()},
	{"spec show", reflect.TypeFor[spec.Cluster]()},
	{"check --measure", reflect.TypeFor[checkMeasured]()},
	{"check --domain", reflect.TypeFor[[]explain.Report]()},
	{"check --fix --dry-run", reflect.TypeFor[[]plannedFix]()},
	{"check --fleet", reflect.TypeFor[fleet.Comparison]()},
	{"device list", reflect.TypeFor[[]*device.Function]()},
	{"device show", reflect.TypeFor[device.Details]()},
	{"bench list", reflect.TypeFor[[]listed]()},
	{"bench install", reflect.TypeFor[[]*install.Plan]()},
	{"bench compare", reflect.TypeFor[gate.Report]()},
	{"report", reflect.TypeFor[reporting.View]()},
	{"slurm gres", reflect.TypeFor[gresOffer]()},
	{"slurm doctor", reflect.TypeFor[[]slurm.Finding]()},
	{"vsphere passthru", reflect.TypeFor[[]esx.Function]()},
	{"vsphere sriov", reflect.TypeFor[[]esx.Function]()},
	{"host openstack-region status", reflect.TypeFor[hook.Status]()},
	{"version", reflect.TypeFor[versionFacts]()},
}

// formFile returns the file name of a command's schema.
func formFile(command string) string {
	return strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(command, " --", " "), " ", "-")) + ".schema.json"
}

// writeForms writes the schemas to dir. It refuses to break the promise of an existing schema: fields are added, and
// never removed or changed.
func writeForms(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range forms {
		path := filepath.Join(dir, formFile(f.command))
		s := jsonform.Of(f.of)
		s.Schema, s.Title = "https://json-schema.org/draft/2020-12/schema", "nearmetal "+f.command+" --json"
		s.Description = "Fields are added to it, and none is removed or changed before the next major version."
		old, err := readForm(path)
		if err == nil {
			if broken := old.Broken(s); len(broken) > 0 {
				return fmt.Errorf("nearmetal %s --json breaks what %s promises: %s", f.command, path, strings.Join(broken, "; "))
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var b bytes.Buffer
		if err := terminal.PrintJSON(&b, s); err != nil {
			return err
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readForm reads a schema.
func readForm(path string) (*jsonform.Schema, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &jsonform.Schema{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
