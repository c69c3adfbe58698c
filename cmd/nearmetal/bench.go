package main

import (
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/suite"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench",
		GroupID: groupProve,
		Short:   "Measure programs natively and in VMs, alternating",
		Long: `Runs benchmarks natively and in VMs in turns, checks every result, and keeps
what was measured with everything needed to judge it. See docs/bench.md.`,
		Example: `  nearmetal bench list
  nearmetal bench run osu stream
  nearmetal bench run osu/latency --ablate region
  nearmetal bench compare nearmetal-bench/before nearmetal-bench/after`,
	}
	cmd.AddCommand(newBenchListCommand(), newBenchShowCommand(), newBenchInstallCommand(), newBenchRunCommand(), newBenchReportCommand(),
		newBenchCompareCommand(), newBenchImportCommand(), newBenchExportCommand())
	return cmd
}

// addSuiteFlag adds --suite. The returned function reads all suites.
func addSuiteFlag(cmd *cobra.Command) func() ([]*suite.Suite, error) {
	files := cmd.Flags().StringArray("suite", nil, "a suite `FILE` besides nearmetal's own and those in ~/.config/nearmetal/suites; repeatable")
	if err := cmd.RegisterFlagCompletionFunc("suite", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}); err != nil {
		panic(err)
	}
	return func() ([]*suite.Suite, error) { return suite.All(*files) }
}

// completeSuites completes SUITE and, after a slash, SUITE/EXPERIMENT.
func completeSuites(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	list, err := suite.All(nil)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range list {
		if !strings.Contains(typed, "/") {
			names = append(names, s.Name)
			continue
		}
		for _, e := range s.Experiments {
			names = append(names, s.Name+"/"+e.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeRuns completes directories of runs.
func completeRuns(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}
