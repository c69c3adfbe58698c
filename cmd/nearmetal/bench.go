package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/suite"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bench",
		GroupID: groupProve,
		Short:   "Measure programs natively and in VMs, in turns",
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

// benchFolder is the folder in the working directory in which runs are kept.
const benchFolder = "nearmetal-bench"

// addSuiteFlag adds --suite. The function that it returns reads all suites.
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

// completeRuns completes folders of runs.
func completeRuns(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// runFolder returns the folder of the run that a user names: a path, or the name of a run in benchFolder.
func runFolder(name string) string {
	if _, err := os.Stat(name); err != nil && !strings.Contains(name, "/") {
		if in := filepath.Join(benchFolder, name); exists(in) {
			return in
		}
	}
	return name
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// besideProgram returns the folders that hold a part of nearmetal: in the build tree and where
// `make install` puts it.
func besideProgram(parts ...string) []string {
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if exe, err = filepath.EvalSymlinks(exe); err != nil {
		return nil
	}
	var out []string
	for _, p := range parts {
		if dir := filepath.Join(filepath.Dir(exe), p); exists(dir) {
			out = append(out, dir)
		}
	}
	return out
}

// kernelFolders are those with nearmetal's own programs, one for each MPI that they are built for.
func kernelFolders() []string {
	var out []string
	for _, dir := range besideProgram("c/kernels", "kernels", "../libexec/nearmetal") {
		out = append(out, dir)
		more, _ := filepath.Glob(filepath.Join(dir, "*", "nm_latency"))
		for _, path := range more {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}

// providerFolder is the one with nearmetal's libfabric provider, "" if there is none.
func providerFolder() string {
	for _, dir := range besideProgram("c/fabric", "../lib/nearmetal/libfabric") {
		if exists(filepath.Join(dir, "libivshmem-fi.so")) {
			return dir
		}
	}
	return ""
}
