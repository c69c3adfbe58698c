package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend"
	"nearmetal/internal/host"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// Set by the linker (see the Makefile).
var (
	version = "devel"
	commit  = ""
)

// fact is one line of `nearmetal version`.
type fact struct{ name, value string }

// versionFacts is the output of `nearmetal version --json`: these facts, and each backend's under the name of the
// backend.
type versionFacts struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Backends string `json:"backends"`
	Accel    string `json:"accel"`
	list     []fact
}

// MarshalJSON writes an object of all facts.
func (v versionFacts) MarshalJSON() ([]byte, error) {
	object := map[string]string{}
	for _, f := range v.list {
		object[f.name] = f.value
	}
	return json.Marshal(object)
}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version [--json]",
		GroupID: groupSelf,
		Short:   "Show the version of nearmetal and of what it uses",
		Long: `Shows the version of nearmetal, the commit and the Go that it was built from
and with, the backends that --on chooses from and what each finds here, and
whether VMs run on KVM.`,
		Example: "  nearmetal version\n  nearmetal version --json",
		Args:    noArgs,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		facts := []fact{{"version", version}, {"commit", builtFrom()}, {"go", runtime.Version()}, {"platform", runtime.GOOS + "/" + runtime.GOARCH}}
		facts = append(facts, fact{"backends", strings.Join(backend.Names(), ", ")})
		for _, name := range backend.Names() {
			if f, ok := backendFact(ctx, name); ok {
				facts = append(facts, f)
			}
		}
		facts = append(facts, accelFact())
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), versionFacts{list: facts})
		}
		fmt.Fprintf(cmd.OutOrStdout(), "nearmetal %s\n", version)
		for _, f := range facts[1:] {
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s%s\n", f.name, text.Clean(f.value))
		}
		return nil
	}
	return cmd
}

// builtFrom returns the commit that the program was built from, recorded by the linker or by Go.
func builtFrom() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	return "unknown"
}

// backendFact returns what a backend finds on this machine; false if it reports nothing.
func backendFact(ctx context.Context, name string) (fact, bool) {
	d, err := backend.Open(name)
	if err != nil {
		return fact{}, false
	}
	defer d.Close()
	v, ok := d.(backend.Versioner)
	if !ok {
		return fact{}, false
	}
	text, err := v.Version(ctx)
	if err != nil {
		text = "none: " + err.Error()
	}
	return fact{name, text}, true
}

// accelFact reports whether VMs run under KVM here, or why not.
func accelFact() fact {
	if _, _, err := host.DetectAccel("kvm"); err != nil {
		return fact{"accel", "tcg (" + strings.TrimPrefix(err.Error(), "accel kvm: ") + ")"}
	}
	return fact{"accel", "kvm"}
}
