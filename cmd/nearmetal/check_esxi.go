package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/host/fleet"
	"nearmetal/internal/remote"
	"nearmetal/internal/terminal"
)

// validateESXi refuses flags that --esxi does not support.
func (f *checkFlags) validateESXi(cmd *cobra.Command) error {
	if f.esxi == "" {
		return usagef("--bundle goes with --esxi")
	}
	if err := remote.CheckHost(f.esxi); err != nil {
		return usagef("--esxi: %v", err)
	}
	for _, name := range []string{"explain", "undo", "vm", "domain", "domains", "fleet", "from", "measure", "persist", "huge-pages", "for"} {
		if cmd.Flags().Changed(name) {
			return usagef("--esxi and --%s cannot be given together", name)
		}
	}
	for _, name := range []string{"yes", "dry-run", "bundle"} {
		if cmd.Flags().Changed(name) && !f.fix {
			return usagef("--%s goes with --fix", name)
		}
	}
	if f.fix && *f.json {
		return usagef("--esxi --fix and --json cannot be given together")
	}
	for _, b := range f.bundles {
		if err := check.CheckBundle(b); err != nil {
			return usagef("--bundle: %v", err)
		}
	}
	named := cmd.Flags().Args()
	if len(f.bundles) > 0 && (len(named) != 1 || !slices.Contains(check.BundleRows, named[0])) {
		return usagef("--bundle goes with --fix and one of %s", strings.Join(check.BundleRows, ", "))
	}
	return nil
}

// runESXi checks an ESXi host and, with --fix, runs the commands there that fix its rows.
func (f *checkFlags) runESXi(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, named []string) error {
	sh := fleet.Shell{Host: f.esxi}
	o := check.Options{Profile: check.ESXi, ESXi: f.esxi, Only: append(f.only, named...), Command: remembered(sh.Command)}
	step := p.Start("asking " + f.esxi)
	defer step.Done()
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	for i := range r.Rows {
		if r.Rows[i].Group != check.OnESXi {
			return usagef("%s is not a check of ESXi hosts", r.Rows[i].ID)
		}
	}
	if !f.fix {
		step.Done()
		return f.show(cmd, &r)
	}
	fixes, err := check.HostFixes(ctx, o, &r, f.bundles)
	if err != nil {
		return err
	}
	step.Done()
	return f.fixESXi(ctx, cmd, p, sh, fixes, named)
}

// remembered returns a function that calls f only once for each command.
func remembered(f func(context.Context, string, ...string) ([]byte, error)) func(context.Context, string, ...string) ([]byte, error) {
	type answer struct {
		out []byte
		err error
	}
	var mu sync.Mutex
	had := map[string]answer{}
	return func(ctx context.Context, name string, args ...string) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		key := name + " " + strings.Join(args, " ")
		a, ok := had[key]
		if !ok {
			a.out, a.err = f(ctx, name, args...)
			had[key] = a
		}
		return a.out, a.err
	}
}

// fixESXi shows the commands for the host, asks for confirmation, and runs them.
func (f *checkFlags) fixESXi(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, sh fleet.Shell, fixes []check.HostFix, named []string) error {
	out := cmd.OutOrStdout()
	var run []check.Command
	var rest []check.Fix
	for _, one := range fixes {
		var now []check.Command
		for _, c := range one.Commands {
			if !c.Named || slices.Contains(named, one.Row.ID) {
				now = append(now, c)
			}
		}
		if len(now) == 0 {
			rest = append(rest, check.Fix{Row: one.Row})
			continue
		}
		if one.Why != nil {
			return fmt.Errorf("host %s: %s: %w", sh.Host, one.Row.ID, one.Why)
		}
		if len(run) == 0 {
			fmt.Fprintf(out, "%s on %s:\n", map[bool]string{true: "Would be run", false: "To be run now"}[f.dryRun], sh.Host)
		}
		fmt.Fprintf(out, "  %s (%s)\n", one.Row.ID, one.Row.Title)
		for _, c := range now {
			fmt.Fprintf(out, "    %s\n", c.Run)
		}
		run = append(run, now...)
	}
	if len(run) == 0 {
		fmt.Fprintln(out, "Nothing to run.")
	}
	if len(run) > 0 && !f.dryRun {
		if ok, err := confirmed(cmd, f.yes, "Run this on "+sh.Host+"?"); err != nil || !ok {
			return err
		}
		for _, c := range run {
			step := p.Start(c.Run)
			_, err := sh.Run(ctx, c.Run)
			step.Done()
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			if err != nil {
				return fmt.Errorf("host %s: %s: %w", sh.Host, c.Run, err)
			}
			if c.Undo != "" {
				fmt.Fprintf(out, "run; undone by: ssh %s '%s'\n", sh.Host, c.Undo)
			}
		}
		fmt.Fprintln(out, "Settings and packages are in force after a boot.")
	}
	f.printRest(cmd, rest)
	return nil
}
