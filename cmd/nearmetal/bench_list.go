package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/run"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/terminal"
)

// listed is an experiment as `nearmetal bench list --json` shows it.
type listed struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Metric  string `json:"metric"`
	Unit    string `json:"unit"`
	Repeats string `json:"repeats,omitempty"` // figures of papers
	Program string `json:"program,omitempty"` // a program that can run here, or ""
	Path    string `json:"path,omitempty"`
	Missing string `json:"missing,omitempty"` // how to install one
	How     string `json:"how,omitempty"`     // why bench install cannot: licensed, or to be built by the user
	File    string `json:"file,omitempty"`    // of a suite that the user added
}

func newBenchListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [SUITE...] [--json]",
		Short: "List the benchmarks, and what would run them here",
		Long: `Lists the experiments of all suites, or of those named, with the program that
each would run on this machine.`,
		Example:           "  nearmetal bench list\n  nearmetal bench list osu --json",
		ValidArgsFunction: completeSuites,
	}
	suites := addSuiteFlag(cmd)
	asJSON := addJSONFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := suites()
		if err != nil {
			return err
		}
		if len(args) > 0 {
			if list, err = suite.Select(list, args); err != nil {
				return &usageError{err}
			}
		}
		rows := []listed{}
		for _, s := range list {
			for i := range s.Experiments {
				rows = append(rows, describeExperiment(s, &s.Experiments[i]))
			}
		}
		if *asJSON {
			return terminal.PrintJSON(cmd.OutOrStdout(), rows)
		}
		missing := false
		t := terminal.NewTable("experiment", "measures", "unit", "repeats", "runs here")
		for _, r := range rows {
			runs := r.Program
			if runs == "" {
				runs = "(not installed)"
				if r.How != "" {
					runs = "(not installed, " + r.How + ")"
				}
				missing = true
			}
			t.Row(r.Name, r.Metric, r.Unit, r.Repeats, runs)
		}
		if err := t.Print(cmd.OutOrStdout()); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), "repeats: with --paper PAPER, on as many hosts (nearmetal report --paper PAPER)")
		if missing {
			fmt.Fprintln(cmd.OutOrStdout(), "not installed: nearmetal bench install SUITE, or nearmetal bench show SUITE for how to build it")
		}
		return nil
	}
	return cmd
}

func describeExperiment(s *suite.Suite, e *suite.Experiment) listed {
	o := e.Programs[0].Output[0]
	l := listed{Name: s.Name + "/" + e.Name, Title: e.Title, Metric: o.Metric, Unit: o.Unit, Repeats: e.Seed, File: s.File}
	var need run.Need
	for _, name := range []string{"openmpi", "mpich"} {
		f, err := mpi.Find(context.Background(), name, "", suite.ProgramsDir())
		if err != nil && e.Launch == "mpi" {
			need.Missing = err.Error()
			continue
		}
		if need = run.Look(e, f, run.KernelDirs()); need.Program != "" {
			break
		}
	}
	l.Program, l.Path, l.Missing = need.Program, need.Path, need.Missing
	if l.Program == "" {
		l.How = noWay(s)
	}
	return l
}

func newBenchShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show SUITE",
		Short: "Show a suite's file",
		Long: `Shows the file that a suite is read from: what is run, swept, read and checked.
Copied to ~/.config/nearmetal/suites and changed, it takes the place of the
shipped one. A suite that a run in ./nearmetal-bench had by --suite is found.`,
		Example:           "  nearmetal bench show osu\n  nearmetal bench show hpl >~/.config/nearmetal/suites/hpl.yaml",
		Args:              exactArgs("SUITE"),
		ValidArgsFunction: completeSuites,
	}
	suites := addSuiteFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := suites()
		if err != nil {
			return err
		}
		picked, err := suite.Select(list, args)
		if err != nil {
			if list, more := suite.All(run.SuitesOfRuns()); more == nil {
				picked, more = suite.Select(list, args)
				if more == nil {
					err = nil
				}
			}
		}
		if err != nil {
			return &usageError{fmt.Errorf("%w; --suite FILE names the file of another", err)}
		}
		text, err := picked[0].Source()
		if err != nil {
			return fmt.Errorf("cannot show the suite: %w", err)
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}
