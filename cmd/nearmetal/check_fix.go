package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/host/check"
	"nearmetal/internal/host/fix"
	"nearmetal/internal/terminal"
)

// runFix shows the writes, asks for confirmation, writes, and prints the remaining steps.
func (f *checkFlags) runFix(ctx context.Context, cmd *cobra.Command, p *terminal.Progress, o check.Options) error {
	r, err := check.Run(ctx, o)
	if err != nil {
		return checkError(err)
	}
	fixes, err := check.Fixes(ctx, o, &r)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if *f.json { // only with --dry-run
		return terminal.PrintJSON(out, plannedFixes(fixes))
	}
	var now []check.Fix
	for _, one := range fixes {
		if len(one.Writes) == 0 {
			continue
		}
		now = append(now, one)
		if len(now) == 1 {
			if f.dryRun {
				fmt.Fprintln(out, "Would be written:")
			} else {
				fmt.Fprintln(out, "To be written now:")
			}
		}
		fmt.Fprintf(out, "  %s (%s)\n", one.Row.ID, one.Row.Title)
		for _, line := range fix.Describe(one) {
			fmt.Fprintf(out, "    %s\n", line)
		}
		if one.Row.Conflict != "" {
			io.WriteString(out, f.text(cmd).Indented("but: "+one.Row.Conflict))
		}
	}
	if len(now) == 0 && !f.persist {
		fmt.Fprintln(out, "Nothing to write: no check that fails or warns can be fixed while the kernel runs.")
	}
	if f.dryRun {
		f.printRest(cmd, fixes)
		return nil
	}
	if len(now) > 0 || f.persist {
		if os.Geteuid() != 0 {
			return mustBeRoot("check --fix")
		}
		if ok, err := confirm(cmd, f.yes); err != nil || !ok {
			return err
		}
	}
	var failed []fix.Failure
	if len(now) > 0 {
		step := p.Start("writing")
		done, bad, err := fix.Apply(ctx, fix.Options{}, now)
		step.Done()
		if err != nil {
			return err
		}
		failed = bad
		fmt.Fprintf(out, "%s written; nearmetal check --undo puts them back.\n", counted(done, "value", "values"))
	}
	if f.persist {
		files, err := fix.Persist(fix.Options{}, fixes)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "Set at each boot by:")
		for _, file := range files {
			fmt.Fprintf(out, "  %s\n", file.Path)
		}
		fmt.Fprintln(out, "Where tuned runs, it has the last word: tuned-adm profile nearmetal")
	}
	f.printRest(cmd, fixes)
	if len(failed) > 0 {
		var list errorList
		for _, b := range failed {
			list = append(list, fmt.Errorf("%s: %w", b.ID, b.Err))
		}
		return list
	}
	return nil
}

// plannedFix is a fix as `nearmetal check --fix --dry-run --json` prints it.
type plannedFix struct {
	ID       string        `json:"id"` // of the check
	Title    string        `json:"title"`
	Writes   []check.Write `json:"writes"`             // empty: to be done by hand
	Conflict string        `json:"conflict,omitempty"` // advice that contradicts this fix
	Needs    string        `json:"needs,omitempty"`
	Fix      string        `json:"fix,omitempty"` // commands for people
}

// plannedFixes returns fixes in the form of --json.
func plannedFixes(fixes []check.Fix) []plannedFix {
	list := []plannedFix{}
	for _, f := range fixes {
		list = append(list, plannedFix{f.Row.ID, f.Row.Title, append([]check.Write{}, f.Writes...), f.Row.Conflict, string(f.Row.Needs), f.Row.Fix})
	}
	return list
}

// printRest prints the fixes that cannot be written now, as commands.
func (f *checkFlags) printRest(cmd *cobra.Command, fixes []check.Fix) {
	out, t := cmd.OutOrStdout(), f.text(cmd)
	first := true
	for _, one := range fixes {
		if len(one.Writes) > 0 {
			continue
		}
		if first {
			fmt.Fprintln(out, "\nLeft to do by hand:")
			first = false
		}
		fmt.Fprintf(out, "  %s (needs: %s)\n", one.Row.ID, one.Row.Needs)
		io.WriteString(out, t.Indented(one.Row.Fix))
	}
}

// confirm asks whether to continue. Without a terminal only --yes is accepted.
func confirm(cmd *cobra.Command, yes bool) (bool, error) {
	return confirmed(cmd, yes, "Write this?")
}

// confirmed is confirm with another question.
func confirmed(cmd *cobra.Command, yes bool, question string) (bool, error) {
	if yes {
		return true, nil
	}
	if !terminal.IsTerminal(cmd.InOrStdin()) {
		return false, errors.New("stdin is not a terminal: pass --yes")
	}
	fmt.Fprint(cmd.OutOrStdout(), question+" [y/N] ")
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 1024)).ReadString('\n')
	if err != nil && line == "" {
		return false, errors.New("no answer: nothing was done")
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true, nil
	}
	fmt.Fprintln(cmd.OutOrStdout(), "Nothing was done.")
	return false, nil
}

// runUndo undoes the changes of --fix and --persist.
func runUndo(cmd *cobra.Command) error {
	if os.Geteuid() != 0 {
		return mustBeRoot("check --undo")
	}
	did, err := fix.Undo(fix.Options{})
	out := cmd.OutOrStdout()
	for _, c := range did {
		fmt.Fprintf(out, "put back: %s\n", c)
	}
	if len(did) == 0 && err == nil {
		fmt.Fprintln(out, "Nothing to put back.")
	}
	return err
}

// counted returns a number with its noun.
func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
