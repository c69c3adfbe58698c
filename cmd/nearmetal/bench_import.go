package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/export"
	"nearmetal/internal/bench/importer"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/run"
	"nearmetal/internal/text"
)

func newBenchImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE|RUN... --out RUN [--variant LABEL]",
		Short: "Take over results that were measured otherwise",
		Long: `Reads outputs of the OSU micro-benchmarks and raw result files of SPEC MPI and
OMP (.rsf) into the directory of a run, as one variant. Titles of OSU tests are
compared whole: an unknown title or column is refused, and nothing is imported.
Prefixes of mpirun --tag-output and srun -l are skipped. Values that their
program reports as wrong are stored as failed. Called again with the same --out
and another --variant, it adds that variant; the first is the baseline. Called
again with an existing variant, it adds values, such as those of more ranks.
Ranks and threads come from the .rsf, or from --ranks and --threads.

From the directory of another run it imports the variants of VMs that nearmetal
did not make (bench run --kind vm), with the machine and its checks.`,
		Example: `  nearmetal bench import native/*.rsf --out spec --variant native.32
  nearmetal bench import vm/*.rsf --out spec --variant VM.32.128 --kind vm
  nearmetal bench import nearmetal-bench/ec2 --out nearmetal-bench/mine
  nearmetal bench import vnuma-off/*.rsf --out spec --variant VM.32.no-vnuma \
    --kind vm --without vnuma`,
		Args: atLeastOne("FILE"),
	}
	out := cmd.Flags().String("out", "", "`DIR` of the run")
	label := cmd.Flags().String("variant", "", "`LABEL` of the variant, such as native.48 or VM.44.144")
	kind := cmd.Flags().String("kind", "native", "where it ran, `native|vm`")
	cores := cmd.Flags().Int("cores", 0, "`N` cores that it ran on, a host")
	kept := cmd.Flags().Int("kept-back", 0, "`N` cores of a host that were kept from it")
	without := cmd.Flags().StringSlice("without", nil, "the `SWITCHES` that its VMs lacked: "+strings.Join(run.Switches, ", "))
	complete(cmd, "without", run.Switches)
	ranks := cmd.Flags().Int("ranks", 0, "it ran with `N` MPI ranks, for files of SPEC's that do not say it")
	threads := cmd.Flags().Int("threads", 0, "it ran with `N` threads, for files of SPEC's that do not say it")
	renamed(cmd, "hosts", "nodes")
	hosts := cmd.Flags().Int("nodes", 1, "it ran on `N` hosts")
	emulated := cmd.Flags().Bool("emulated", false, "measured in emulated VMs: it enters no ratio")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *out != "" && *label == "" && !slices.ContainsFunc(args, func(a string) bool { return !record.IsRun(record.Find(a)) }) {
			for i := range args {
				args[i] = record.Find(args[i])
			}
			taken, err := importer.AddRuns(record.Find(*out), args)
			for _, t := range taken {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s\n", record.Find(*out), count(t.Values, "value"), strings.Join(t.Variants, ", "))
			}
			return err
		}
		switch {
		case *out == "":
			return usagef("import needs --out: the directory of the run")
		case *label == "":
			return usagef("import needs --variant: the label of what was measured")
		case *kind != "native" && *kind != "vm":
			return usagef("--kind: %q is neither native nor vm", *kind)
		case *cores < 0 || *kept < 0 || *ranks < 0 || *threads < 0 || *hosts < 1:
			return usagef("--cores, --kept-back, --ranks, --threads, --nodes: below 0, or on no host")
		case *ranks > 0 && *threads > 0:
			return usagef("--ranks and --threads: one of them is on the x axis")
		case len(*without) > 0 && *kind != "vm":
			return usagef("--without is for --kind vm: it says what VMs lacked")
		}
		for _, name := range *without {
			if !slices.Contains(run.Switches, name) {
				return usagef("--without: there is no switch %q: there are %s", name, strings.Join(run.Switches, ", "))
			}
		}
		v := record.Variant{Ablated: *without, Label: *label, Kind: *kind, Cores: *cores, KeptBack: *kept, Emulated: *emulated, Description: "imported"}
		var all []*importer.Result
		for _, path := range args {
			r, err := importer.ReadFile(path)
			if err != nil {
				return err
			}
			switch spec := strings.HasPrefix(r.Cases[0].Program, "SPEC"); {
			case *ranks > 0 && spec:
				r.SetSize("ranks", *ranks)
			case *threads > 0 && spec:
				r.SetSize("threads", *threads)
			case *ranks > 0 || *threads > 0:
				return usagef("--ranks and --threads are for SPEC's files, and %s is none", path)
			}
			for i := range r.Cases {
				if *hosts > 1 {
					r.Cases[i].Hosts = *hosts
				}
			}
			all = append(all, r)
		}
		n, err := importer.Add(*out, v, all, versionText(), append([]string{"nearmetal"}, os.Args[1:]...))
		if err != nil {
			return err
		}
		told, failures := map[string]bool{}, 0
		for _, r := range all {
			for _, note := range r.Notes {
				if !told[note] {
					fmt.Fprintf(cmd.ErrOrStderr(), "nearmetal: %s\n", text.Clean(note))
				}
				told[note] = true
			}
			for i := range r.Samples {
				if !r.Samples[i].OK {
					failures++
				}
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s", *out, count(n, "value"), *label)
		if failures > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), ", %d of them failed", failures)
		}
		fmt.Fprintln(cmd.OutOrStdout())
		return nil
	}
	return cmd
}

func newBenchExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "export RUN [FILE]",
		Short:             "Write a run's values as CSV",
		Long:              "Writes every value of a run as a line of CSV, to FILE or standard output.",
		Example:           "  nearmetal bench export nearmetal-bench/20261122-004500-osu results.csv",
		Args:              rangeArgs(1, "RUN", "FILE"),
		ValidArgsFunction: completeRuns,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := loadRun(cmd, args[0])
		if err != nil {
			return err
		}
		if len(args) == 1 {
			return export.CSV(cmd.OutOrStdout(), r.Record, r.Samples)
		}
		f, err := os.Create(args[1])
		if err != nil {
			return fmt.Errorf("cannot write the table: %w", err)
		}
		err = export.CSV(f, r.Record, r.Samples)
		if e := f.Close(); err == nil {
			err = e
		}
		return err
	}
	return cmd
}
