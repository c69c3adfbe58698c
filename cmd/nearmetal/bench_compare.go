package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/gate"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

func newBenchCompareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare A B [flags]",
		Short: "Compare a run with an earlier one, as a gate",
		Long: `Compares run B with run A, point by point. A point is worse if its median is
worse by more than the threshold and the 95 % interval of the ratio lies on the
worse side altogether; a result that A has and B lacks is missing. Either makes
the exit status 3. What was measured in emulated VMs is left out.`,
		Example: `  nearmetal bench compare nearmetal-bench/before nearmetal-bench/after
  nearmetal bench compare baseline today --threshold 3 --junit gate.xml`,
		Args:              exactArgs("A", "B"),
		ValidArgsFunction: completeRuns,
	}
	threshold := cmd.Flags().Float64("threshold", 5, "`PERCENT` by which a median may be worse")
	junit := cmd.Flags().String("junit", "", "also write JUnit's XML to this `FILE` (- is standard output)")
	all := cmd.Flags().Bool("all", false, "show unchanged points as well")
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !(*threshold >= 0 && *threshold < 1000) {
			return usagef("--threshold: %g is not between 0 and 1000 per cent", *threshold)
		}
		a, err := loadRun(cmd, args[0])
		if err != nil {
			return err
		}
		b, err := loadRun(cmd, args[1])
		if err != nil {
			return err
		}
		r := gate.Compare(a, b, *threshold/100)
		if *junit != "" {
			if err := writeJUnit(cmd, *junit, r); err != nil {
				return err
			}
		}
		switch {
		case *asJSON:
			err = terminal.PrintJSON(cmd.OutOrStdout(), r)
		case *junit != "-":
			err = printGate(cmd, r, *all)
		}
		if err == nil && r.Worse > 0 {
			err = findings(fmt.Errorf("%s of %d got worse by more than %g %% or have no result any more", count(r.Worse, "point"), len(r.Rows), *threshold))
		}
		return err
	}
	return cmd
}

// loadRun reads a run and reports the parts that were left out.
func loadRun(cmd *cobra.Command, name string) (gate.Run, error) {
	r, samples, notes, err := record.Load(record.Find(name))
	for _, n := range notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %s\n", text.Clean(n))
	}
	return gate.Run{Record: r, Samples: samples}, err
}

func writeJUnit(cmd *cobra.Command, path string, r *gate.Report) error {
	if path == "-" {
		return r.JUnit(cmd.OutOrStdout())
	}
	var b strings.Builder
	if err := r.JUnit(&b); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("cannot write the verdicts: %w", err)
	}
	return nil
}

func printGate(cmd *cobra.Command, r *gate.Report, all bool) error {
	for _, n := range r.Notes {
		fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %s\n", text.Clean(n))
	}
	t := terminal.NewTable("case", "variant", "point", "before", "after", "unit", "change", "verdict")
	same := 0
	for _, row := range r.Rows {
		if row.Verdict == gate.Same && !all {
			same++
			continue
		}
		change := ""
		if row.Verdict != gate.Missing && row.Verdict != gate.New && row.Verdict != gate.Emulated {
			change = fmt.Sprintf("%+.1f %%", 100*row.Change)
		}
		t.Row(row.Case, row.Variant, row.Point, fmt.Sprintf("%.4g", row.Before), fmt.Sprintf("%.4g", row.After), row.Unit, change, row.Verdict)
	}
	if same < len(r.Rows) {
		if err := t.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	if same > 0 {
		fmt.Fprintf(cmd.OutOrStdout(), "%s the same (--all shows them)\n", count(same, "point"))
	}
	return nil
}
