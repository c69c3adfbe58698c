package importer

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"nearmetal/internal/bench/record"
)

// ReadFile reads the result in a file, as Read does.
func ReadFile(path string) (*Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the result: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return Read(path, text)
}

// Add adds a variant with the values of results to the run in dir, and returns the number of values. A run that does
// not exist is created with nearmetal's version and the command in its record.
func Add(dir string, v record.Variant, results []*Result, version string, command []string) (int, error) {
	run := &record.Run{Version: record.Version, ID: filepath.Base(dir), Nearmetal: version, Command: command, Host: record.Host{Name: "imported"}}
	if _, err := os.Stat(filepath.Join(dir, record.RunFile)); err == nil {
		if run, err = record.LoadRun(dir); err != nil {
			return 0, err
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, fmt.Errorf("cannot make the run's directory: %w", err)
	}
	now := time.Now().UTC()
	if run.Started.IsZero() {
		run.Started = now
	}
	run.Ended = now
	reps := map[string]int{} // by case and point, over all files
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

// repKey is the key by which repetitions are counted.
func repKey(s *record.Sample) string { return s.Case + fmt.Sprint(s.Point) }

// addsTo checks that values may be added to an existing variant, and counts its repetitions.
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

// Taken lists the values that AddRuns copied from one run.
type Taken struct {
	Variants []string // labels, sorted
	Values   int
}

// AddRuns adds the variants of VMs that nearmetal did not make, from the runs in folders, to the existing run in dir.
// It returns what it copied from each. Errors are detected before anything is written.
func AddRuns(dir string, folders []string) ([]Taken, error) {
	into, err := record.LoadRun(dir)
	if err != nil {
		return nil, err
	}
	var list []Taken
	var all []record.Sample
	for _, folder := range folders {
		from, samples, _, err := record.Load(folder)
		if err != nil {
			return nil, err
		}
		var taken []string
		for _, v := range from.Variants {
			if !v.Foreign {
				continue
			}
			if slices.ContainsFunc(into.Variants, func(have record.Variant) bool { return have.Label == v.Label }) {
				return nil, fmt.Errorf("%s has a variant %s already", dir, v.Label)
			}
			v.Baseline = ""
			into.Variants = append(into.Variants, v)
			taken = append(taken, v.Label)
		}
		if len(taken) == 0 {
			return nil, fmt.Errorf("%s has no variant of a VM that nearmetal did not make (bench run --variant LABEL --kind vm)", folder)
		}
		for _, c := range from.Cases {
			at := slices.IndexFunc(into.Cases, func(have record.Case) bool { return have.Name == c.Name })
			switch {
			case at < 0:
				into.Cases = append(into.Cases, c)
			case into.Cases[at].Unit != c.Unit || into.Cases[at].X != c.X:
				return nil, fmt.Errorf("%s: %s is in %s over %s, and in %s in %s over %s", folder, c.Name, c.Unit, c.X, dir, into.Cases[at].Unit, into.Cases[at].X)
			}
		}
		slices.Sort(taken)
		t := Taken{Variants: taken}
		for _, s := range samples {
			if slices.Contains(taken, s.Variant) {
				s.Log = "" // the log is in the other directory
				all = append(all, s)
				t.Values++
			}
		}
		list = append(list, t)
	}
	if err := appendSamples(dir, all); err != nil {
		return nil, err
	}
	if err := record.SaveRun(dir, into); err != nil {
		return nil, err
	}
	return list, nil
}

// appendSamples appends lines to those of a run.
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
