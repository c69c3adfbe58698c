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
OMP (.rsf) into the folder of a run, as one variant. Titles of OSU tests are
compared whole: an unknown title or column is refused, and nothing is imported.
Prefixes of mpirun --tag-output and srun -l are read over. Values that their
program reports as wrong are stored as failed. Called again with the same
--out and another --variant it adds that one; the first is the baseline. Called
again with a variant that is there it adds values, such as those of more ranks.
Ranks and threads are those that the .rsf names, or those of --ranks, --threads.

A folder of a run is taken over, too: its variants of VMs that nearmetal did not
make (bench run --kind vm), with the machine and its checks.`,
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
	hosts := cmd.Flags().Int("hosts", 1, "it ran on `N` hosts")
	emulated := cmd.Flags().Bool("emulated", false, "measured in emulated VMs: it enters no ratio")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *out != "" && *label == "" && !slices.ContainsFunc(args, func(a string) bool { return !exists(filepath.Join(runFolder(a), record.RunFile)) }) {
			return importRuns(cmd, runFolder(*out), args)
		}
		switch {
		case *out == "":
			return usagef("import needs --out: the folder of the run")
		case *label == "":
			return usagef("import needs --variant: the label of what was measured")
		case *kind != "native" && *kind != "vm":
			return usagef("--kind: %q is neither native nor vm", *kind)
		case *cores < 0 || *kept < 0 || *ranks < 0 || *threads < 0 || *hosts < 1:
			return usagef("--cores, --kept-back, --ranks, --threads, --hosts: below 0, or on no host")
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
			text, err := readFile(path)
			if err != nil {
				return err
			}
			r, err := importer.Read(path, text)
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
		n, err := addImported(*out, v, all)
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

// importRuns adds the foreign variants of runs to the run in dir, which is there.
func importRuns(cmd *cobra.Command, dir string, folders []string) error {
	into, err := record.LoadRun(dir)
	if err != nil {
		return err
	}
	var all []record.Sample
	for _, folder := range folders {
		from, samples, _, err := record.Load(runFolder(folder))
		if err != nil {
			return err
		}
		taken := map[string]bool{}
		for _, v := range from.Variants {
			if !v.Foreign {
				continue
			}
			if slices.ContainsFunc(into.Variants, func(have record.Variant) bool { return have.Label == v.Label }) {
				return fmt.Errorf("%s has a variant %s already", dir, v.Label)
			}
			v.Baseline = ""
			into.Variants = append(into.Variants, v)
			taken[v.Label] = true
		}
		if len(taken) == 0 {
			return fmt.Errorf("%s has no variant of a VM that nearmetal did not make (bench run --variant LABEL --kind vm)", folder)
		}
		for _, c := range from.Cases {
			at := slices.IndexFunc(into.Cases, func(have record.Case) bool { return have.Name == c.Name })
			switch {
			case at < 0:
				into.Cases = append(into.Cases, c)
			case into.Cases[at].Unit != c.Unit || into.Cases[at].X != c.X:
				return fmt.Errorf("%s: %s is in %s over %s, and in %s in %s over %s", folder, c.Name, c.Unit, c.X, dir, into.Cases[at].Unit, into.Cases[at].X)
			}
		}
		n := 0
		for _, s := range samples {
			if taken[s.Variant] {
				s.Log = "" // it is in the other folder
				all = append(all, s)
				n++
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s of %s\n", dir, count(n, "value"), strings.Join(sortedNames(taken), ", "))
	}
	if err := appendSamples(dir, all); err != nil {
		return err
	}
	return record.SaveRun(dir, into)
}

// appendSamples writes lines behind those of a run.
func appendSamples(dir string, samples []record.Sample) error {
	lines, err := record.Lines(samples)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, record.SamplesFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = f.Write(lines)
		if e := f.Close(); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write the results: %w", err)
	}
	return nil
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
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("cannot make the run's folder: %w", err)
	}
	now := time.Now().UTC()
	if run.Started.IsZero() {
		run.Started = now
	}
	run.Ended = now
	reps := map[string]int{} // of each case and point, over all files
	if at := slices.IndexFunc(run.Variants, func(have record.Variant) bool { return have.Label == v.Label }); at < 0 {
		run.Variants = append(run.Variants, v)
	} else if err := addsTo(dir, &run.Variants[at], &v, reps); err != nil {
		return 0, err
	}
	var samples []record.Sample
	for _, r := range results {
		most := map[string]int{}
		for _, s := range r.Samples {
			key := repKey(&s)
			most[key] = max(most[key], s.Rep+1)
			s.Variant, s.Rep, s.At = v.Label, s.Rep+reps[key], now
			samples = append(samples, s)
		}
		for c, n := range most {
			reps[c] += n
		}
		for _, c := range r.Cases {
			addCase(run, c)
		}
	}
	if err := appendSamples(dir, samples); err != nil {
		return 0, err
	}
	return len(samples), record.SaveRun(dir, run)
}

// repKey is what repetitions are counted of.
func repKey(s *record.Sample) string { return s.Case + fmt.Sprint(s.Point) }

// addsTo checks that values may be added to a variant that is there, and counts its repetitions.
func addsTo(dir string, have, v *record.Variant, reps map[string]int) error {
	if have.Kind != v.Kind || have.Cores != v.Cores || have.KeptBack != v.KeptBack || have.Emulated != v.Emulated || !slices.Equal(have.Ablated, v.Ablated) {
		return fmt.Errorf("%s has a variant %s already, of another kind, cores or switches: give another --variant or --out", dir, v.Label)
	}
	_, samples, _, err := record.Load(dir)
	if err != nil {
		return err
	}
	for i := range samples {
		if s := &samples[i]; s.Variant == v.Label {
			reps[repKey(s)] = max(reps[repKey(s)], s.Rep+1)
		}
	}
	return nil
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

func sortedNames(set map[string]bool) []string {
	var out []string
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
