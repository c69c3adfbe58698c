// Package gate compares a run of benchmarks with an earlier one and reports regressions.
package gate

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/stats"
)

// Verdict of a row.
type Verdict string

// The verdicts. Worse and Missing close the gate.
const (
	Same     Verdict = "same"
	Better   Verdict = "better"
	Worse    Verdict = "worse"
	Missing  Verdict = "missing"  // the first run has a result, and the second has none
	New      Verdict = "new"      // only the second run has it
	Emulated Verdict = "emulated" // measured in emulated VMs: no ratio is computed
)

// Row is one point of a case and variant in both runs.
type Row struct {
	Case    string `json:"case"`
	Variant string `json:"variant"`
	Point   string `json:"point,omitempty"` // "size=8 ranks=2"
	Metric  string `json:"metric"`
	Unit    string `json:"unit"`
	// Before and After are medians, in Unit.
	Before float64 `json:"before,omitempty"`
	After  float64 `json:"after,omitempty"`
	// Change is how much better (above 0) or worse it is, as a fraction of Before, with the bounds of its 95 %
	// interval.
	Change  float64 `json:"change"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Verdict Verdict `json:"verdict"`
}

// Report is a comparison of two runs.
type Report struct {
	Before    string   `json:"before"` // IDs of the runs
	After     string   `json:"after"`
	Threshold float64  `json:"threshold"`
	Worse     int      `json:"worse"` // rows that close the gate
	Notes     []string `json:"notes,omitempty"`
	Rows      []Row    `json:"rows"`
}

// Run is a run's record with its samples.
type Run struct {
	Record  *record.Run
	Samples []record.Sample
}

// key of a point.
type key struct{ c, variant, point string }

// Compare compares run b with run a. A point is worse if its median is worse by more than threshold (0.05: 5 %) and
// the whole 95 % interval of the ratio is on the worse side.
func Compare(a, b Run, threshold float64) *Report {
	r := &Report{Before: a.Record.ID, After: b.Record.ID, Threshold: threshold, Rows: []Row{}}
	if a.Record.Host.CPU != b.Record.Host.CPU || a.Record.Host.Name != b.Record.Host.Name {
		r.Notes = append(r.Notes, fmt.Sprintf("the runs are of different machines: %s (%s) and %s (%s)",
			a.Record.Host.Name, a.Record.Host.CPU, b.Record.Host.Name, b.Record.Host.CPU))
	}
	before, after := values(a.Samples), values(b.Samples)
	emulated := map[string]bool{}
	cases := map[string]record.Case{}
	for _, run := range []*record.Run{b.Record, a.Record} {
		for _, v := range run.Variants {
			emulated[v.Label] = emulated[v.Label] || v.Emulated
		}
		for _, c := range run.Cases {
			cases[c.Name] = c
		}
	}
	for _, k := range keys(before, after) {
		c := cases[k.c]
		row := Row{Case: k.c, Variant: k.variant, Point: k.point, Metric: c.Metric, Unit: c.Unit}
		row.judge(before[k], after[k], c.Better == "up", emulated[k.variant], threshold)
		if row.Verdict == Worse || row.Verdict == Missing {
			r.Worse++
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func (r *Row) judge(before, after []float64, up, emulated bool, threshold float64) {
	if len(before) > 0 {
		r.Before = stats.Median(before)
	}
	if len(after) > 0 {
		r.After = stats.Median(after)
	}
	switch {
	case len(after) == 0:
		r.Verdict = Missing
		return
	case len(before) == 0:
		r.Verdict = New
		return
	case emulated:
		r.Verdict = Emulated
		return
	}
	ratio := stats.RatioCI(after, before, 0.95, 1)
	if math.IsNaN(ratio.Median) || math.IsInf(ratio.Median, 0) {
		r.Verdict = Same // with a median of 0 no ratio exists
		if r.Before != r.After {
			r.Verdict = New
		}
		return
	}
	r.Change, r.Low, r.High = ratio.Median-1, ratio.Low-1, ratio.High-1
	if !up { // less is better
		r.Change, r.Low, r.High = -r.Change, -r.High, -r.Low
	}
	switch {
	case r.Change < -threshold && r.High < 0:
		r.Verdict = Worse
	case r.Change > threshold && r.Low > 0:
		r.Verdict = Better
	default:
		r.Verdict = Same
	}
}

// values collects the good repetitions of each point, without warm-ups. A point without a good one is omitted.
func values(samples []record.Sample) map[key][]float64 {
	out := map[key][]float64{}
	for _, s := range samples {
		if s.OK && s.Rep >= 0 {
			k := key{s.Case, s.Variant, PointText(s.Point)}
			out[k] = append(out[k], s.Value)
		}
	}
	return out
}

// PointText returns a point's parameters as "ranks=2 size=8", in the order of their names.
func PointText(p map[string]string) string {
	words := make([]string, 0, len(p))
	for k, v := range p {
		words = append(words, k+"="+v)
	}
	sort.Strings(words)
	return strings.Join(words, " ")
}

// keys returns the points of both, in the order of their names, numbers by their value. The importer orders SPEC
// runs by other fields, although its code looks alike.
func keys(a, b map[key][]float64) []key {
	var out []key
	for k := range a {
		out = append(out, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		x, y := out[i], out[j]
		switch {
		case x.c != y.c:
			return x.c < y.c
		case x.variant != y.variant:
			return x.variant < y.variant
		case len(x.point) != len(y.point): // size=8 before size=16
			return len(x.point) < len(y.point)
		}
		return x.point < y.point
	})
	return out
}
