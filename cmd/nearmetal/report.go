package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	reporting "nearmetal/internal/report"
	"nearmetal/internal/report/paper"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/wholefile"
)

func newReportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "report [RUN...] [flags]",
		GroupID: groupProve,
		Short:   "Make the report of a run of benchmarks: a page, pictures, text",
		Long: `Reads the directories of nearmetal bench run and writes a page with the verdict
(is the VM within the tolerance?), the plots and the tables of each experiment.
The page is one file that needs no network; pictures are the same plots, each in
a file. The tolerance is the accepted loss: the share of the cores that the run
kept back for the host, or the value of --tolerance. Without -o the page is
report.html in the directory of the first run, and a summary is printed. With
--paper and no run it lists what the paper prints and how to measure it. Times
of emulated VMs are marked and enter no verdict.`,
		Example: `  nearmetal report nearmetal-bench/demo
  nearmetal report nearmetal-bench/demo -o vms.html --tolerance 5%
  nearmetal report nearmetal-bench/demo -o figures --format svg,png
  nearmetal report nearmetal-bench/demo --paper 002
  nearmetal report --paper 002`,
	}
	addReportFlags(cmd)
	return cmd
}

// newBenchReportCommand returns nearmetal bench report, which is nearmetal report.
func newBenchReportCommand() *cobra.Command {
	cmd := newReportCommand()
	cmd.GroupID = ""
	cmd.Short = "The same as nearmetal report"
	cmd.Example = strings.ReplaceAll(cmd.Example, "nearmetal report", "nearmetal bench report")
	return cmd
}

// addReportFlags makes cmd write reports: its arguments are directories of runs.
func addReportFlags(cmd *cobra.Command) {
	output := cmd.Flags().StringP("output", "o", "", "the page's `FILE.html`, or a directory for all that is written")
	formats := cmd.Flags().StringSlice("format", []string{"html", "text"}, "the `FORMATS` that are written: "+strings.Join(reporting.Formats, ", ")+"; or json alone, the same as --json")
	tolerance := cmd.Flags().String("tolerance", "", "`LOSS` of performance that is accepted, like 5%, 0.05 or 4/48 (default: computed)")
	cmd.Flags().StringVar(tolerance, "gauge", "", "the old name of --tolerance")
	if err := cmd.Flags().MarkDeprecated("gauge", "it is called --tolerance"); err != nil { // name until 0.2.0
		panic(err)
	}
	name := cmd.Flags().String("paper", "", "lay the run beside what a `PAPER` prints: "+strings.Join(paper.Names(), ", "))
	asJSON := addJSONFlag(cmd)
	suites := addSuiteFlag(cmd)
	complete(cmd, "format", append(slices.Clone(reporting.Formats), "json"))
	complete(cmd, "paper", paper.Names())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(*formats) == 1 && (*formats)[0] == "json" {
			*asJSON, *formats = true, nil
		}
		for _, f := range *formats {
			if !slices.Contains(reporting.Formats, f) {
				return usagef("--format %q is none of %s", f, strings.Join(reporting.Formats, ", "))
			}
		}
		g, err := reporting.ParseTolerance(*tolerance)
		if err != nil {
			return usagef("--tolerance: %v", err)
		}
		if *name != "" && !slices.Contains(paper.Names(), *name) {
			return usagef("--paper %q is none of %s", *name, strings.Join(paper.Names(), ", "))
		}
		if len(args) == 0 && *name == "" {
			return usagef("report needs at least one RUN, or --paper")
		}
		o := reporting.Options{Tolerance: g, Paper: *name, Now: time.Now()}
		if *name != "" {
			if o.Ways, err = waysOf(suites, *name); err != nil {
				return err
			}
		}
		p := progress(cmd)
		defer p.Close()
		for i := range args {
			args[i] = record.Find(args[i])
		}
		r, err := readReport(p, args, o)
		if err != nil {
			return err
		}
		switch {
		case *asJSON && *output != "" && *output != "-":
			return wholefile.Write(*output, func(w io.Writer) error { return terminal.PrintJSON(w, r.View()) })
		case *asJSON:
			return terminal.PrintJSON(cmd.OutOrStdout(), r.View())
		}
		if len(args) == 0 {
			if args = []string{"."}; *output == "" {
				*formats = []string{"text"} // a page is written to the directory of a run
			}
		}
		return writeReport(cmd, p, r, args[0], *output, *formats)
	}
}

// waysOf returns how the available suites measure a paper's items.
func waysOf(suites func() ([]*suite.Suite, error), name string) (func(paper.Key) []string, error) {
	list, err := suites()
	if err != nil {
		return nil, err
	}
	p, err := paper.Open(name)
	if err != nil {
		return nil, err
	}
	return reporting.Ways(list, p), nil
}

// complete offers values for a flag.
func complete(cmd *cobra.Command, flag string, values []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

func readReport(p *terminal.Progress, folders []string, o reporting.Options) (*reporting.Report, error) {
	step := p.Start("reading the results")
	var runs []*reporting.Data
	for _, folder := range folders {
		step.Detail("%s", folder)
		d, err := reporting.Read(folder)
		if err != nil {
			step.Fail()
			return nil, err
		}
		runs = append(runs, d)
	}
	r, err := reporting.Build(runs, o)
	if err != nil {
		step.Fail()
		return nil, err
	}
	step.Done()
	return r, nil
}

// writeReport writes the named formats. output is the file of a page or a directory; if it is empty, the page is
// written to the run's directory, and pictures to plots in it.
func writeReport(cmd *cobra.Command, p *terminal.Progress, r *reporting.Report, run, output string, formats []string) error {
	page, folder := output, output
	info, err := os.Stat(output)
	switch {
	case output == "":
		page, folder = filepath.Join(run, "report.html"), filepath.Join(run, "plots")
	case err == nil && info.IsDir() || strings.HasSuffix(output, "/") || filepath.Ext(output) == "":
		if err := os.MkdirAll(output, 0o755); err != nil {
			return err
		}
		page = filepath.Join(output, "report.html")
	case !slices.Contains([]string{".html", ".htm"}, strings.ToLower(filepath.Ext(output))):
		return usagef("-o %s: the page is HTML, so name it FILE.html; a directory that is to be made ends with /", output)
	default:
		if !slices.Contains(formats, "html") {
			return usagef("-o %s is a file, and of %s there are several: name a directory", output, strings.Join(formats, " and "))
		}
		folder = strings.TrimSuffix(output, filepath.Ext(output)) + "-plots"
	}
	var written []string
	for _, f := range formats {
		switch f {
		case "html":
			step := p.Start("writing the page")
			if err := wholefile.Write(page, func(w io.Writer) error { return r.HTML(w, version) }); err != nil {
				step.Fail()
				return err
			}
			step.Done()
			written = append(written, page)
		case "svg", "png":
			step := p.Start("drawing " + strings.ToUpper(f))
			n, err := r.WritePlots(folder, f, func(name string) { step.Detail("%s", name) })
			if err != nil {
				step.Fail()
				return err
			}
			step.Done()
			written = append(written, fmt.Sprintf("%s (%d %s)", folder, n, strings.ToUpper(f)))
		}
	}
	p.Close()
	if slices.Contains(formats, "text") {
		if err := r.Text(cmd.OutOrStdout(), terminal.Coloured(cmd.OutOrStdout())); err != nil {
			return err
		}
		if len(written) > 0 {
			fmt.Fprintln(cmd.OutOrStdout())
		}
	}
	for _, w := range written {
		fmt.Fprintln(cmd.OutOrStdout(), "report: "+text.Clean(w))
	}
	return nil
}
