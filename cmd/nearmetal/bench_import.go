package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"nearmetal/internal/bench/export"
	"nearmetal/internal/bench/importer"
	"nearmetal/internal/bench/record"
)

func newBenchImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import FILE... --out RUN --variant LABEL",
		Short: "Take over results that were measured otherwise",
		Long: `Reads outputs of the OSU micro-benchmarks and raw result files of SPEC MPI and
OMP (.rsf) into the folder of a run, as one variant. Called again with the same
--out and another --variant it adds that one; the first is the baseline.`,
		Example: `  nearmetal bench import native/*.rsf --out spec --variant native.32
  nearmetal bench import vm/*.rsf --out spec --variant VM.32.128 --kind vm`,
		Args: atLeastOne("FILE"),
	}
	out := cmd.Flags().String("out", "", "`DIR` of the run")
	label := cmd.Flags().String("variant", "", "`LABEL` of the variant, such as native.48 or VM.44.144")
	kind := cmd.Flags().String("kind", "native", "where it ran, `native|vm`")
	cores := cmd.Flags().Int("cores", 0, "`N` cores that it ran on, a host")
	kept := cmd.Flags().Int("kept-back", 0, "`N` cores of a host that were kept from it")
	emulated := cmd.Flags().Bool("emulated", false, "measured in emulated VMs: it enters no ratio")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *out == "":
			return usagef("import needs --out: the folder of the run")
		case *label == "":
			return usagef("import needs --variant: the label of what was measured")
		case *kind != "native" && *kind != "vm":
			return usagef("--kind: %q is neither native nor vm", *kind)
		case *cores < 0 || *kept < 0:
			return usagef("--cores and --kept-back: below 0")
		}
		v := record.Variant{Label: *label, Kind: *kind, Cores: *cores, KeptBack: *kept, Emulated: *emulated, Description: "imported"}
		var all []*importer.Result
		for _, path := range args {
			text, err := readFile(path)
			if err != nil {
				return err
			}
			r, err := importer.Read(path, text)
			if err != nil {
				return err
			}
			all = append(all, r)
		}
		n, err := addImported(*out, v, all)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s\n", *out, count(n, "value"), *label)
		}
		return err
	}
	return cmd
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the result: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, importer.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return text, nil
}

// addImported adds a variant with its values to the run in dir, which it makes if it is not there.
func addImported(dir string, v record.Variant, results []*importer.Result) (int, error) {
	run := &record.Run{Version: record.Version, ID: filepath.Base(dir), Nearmetal: versionText(), Command: append([]string{"nearmetal"}, os.Args[1:]...), Host: record.Host{Name: "imported"}}
	if exists(filepath.Join(dir, record.RunFile)) {
		var err error
		if run, err = record.LoadRun(dir); err != nil {
			return 0, err
		}
		for _, have := range run.Variants {
			if have.Label == v.Label {
				return 0, fmt.Errorf("%s has a variant %s already: give another --variant or --out", dir, v.Label)
			}
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("cannot make the run's folder: %w", err)
	}
	now := time.Now().UTC()
	if run.Started.IsZero() {
		run.Started = now
	}
	run.Ended = now
	run.Variants = append(run.Variants, v)
	var samples []record.Sample
	reps := map[string]int{} // of each case, over all files
	for _, r := range results {
		most := map[string]int{}
		for _, s := range r.Samples {
			most[s.Case] = max(most[s.Case], s.Rep+1)
			s.Variant, s.Rep, s.At = v.Label, s.Rep+reps[s.Case], now
			samples = append(samples, s)
		}
		for c, n := range most {
			reps[c] += n
		}
		for _, c := range r.Cases {
			addCase(run, c)
		}
	}
	lines, err := record.Lines(samples)
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(filepath.Join(dir, record.SamplesFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.Write(lines)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return 0, fmt.Errorf("cannot write the results: %w", err)
	}
	return len(samples), record.SaveRun(dir, run)
}

func addCase(run *record.Run, c record.Case) {
	for _, have := range run.Cases {
		if have.Name == c.Name {
			return
		}
	}
	run.Cases = append(run.Cases, c)
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
