package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/backend/qemu"
	"nearmetal/internal/host"
	"nearmetal/internal/terminal"
)

// Set by the linker (see the Makefile).
var (
	version = "devel"
	commit  = ""
)

// fact is one line of `nearmetal version`.
type fact struct{ name, value string }

// versionFacts are lines about what nearmetal finds on this host.
var versionFacts = []func(context.Context) fact{qemuFact, accelFact}

func newVersionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version [--json]",
		GroupID: groupSelf,
		Short:   "Show the version of nearmetal and of what it uses",
		Long: `Shows the version of nearmetal, the commit and the Go that it was built from
and with, the QEMU that it finds on this host, and whether VMs run on KVM here.`,
		Example: "  nearmetal version\n  nearmetal version --json",
		Args:    noArgs,
	}
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		facts := []fact{{"version", version}, {"commit", builtFrom()}, {"go", runtime.Version()}, {"platform", runtime.GOOS + "/" + runtime.GOARCH}}
		for _, f := range versionFacts {
			facts = append(facts, f(ctx))
		}
		if *asJSON {
			object := map[string]string{}
			for _, f := range facts {
				object[f.name] = f.value
			}
			return terminal.PrintJSON(cmd.OutOrStdout(), object)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "nearmetal %s\n", version)
		for _, f := range facts[1:] {
			fmt.Fprintf(cmd.OutOrStdout(), "%-10s%s\n", f.name, terminal.Clean(f.value))
		}
		return nil
	}
	return cmd
}

// builtFrom gives the commit that the program was built from, by the linker or by Go.
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

var qemuVersion = regexp.MustCompile(`version (\S+)`)

// qemuFact gives the version and the path of the QEMU that VMs would run with.
func qemuFact(ctx context.Context) fact {
	path, err := qemu.Find("")
	if err != nil {
		return fact{"qemu", "none: " + err.Error()}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return fact{"qemu", path + ": " + err.Error()}
	}
	if m := qemuVersion.FindSubmatch(out); m != nil {
		return fact{"qemu", fmt.Sprintf("%s (%s)", m[1], path)}
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return fact{"qemu", fmt.Sprintf("%s (%s)", line, path)}
}

// accelFact says whether VMs run on KVM here, and why not where they do not.
func accelFact(context.Context) fact {
	if _, _, err := host.DetectAccel("kvm"); err != nil {
		return fact{"accel", "tcg (" + strings.TrimPrefix(err.Error(), "accel kvm: ") + ")"}
	}
	return fact{"accel", "kvm"}
}
