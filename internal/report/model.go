package report

import (
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/stats"
)

// Report is all that is shown.
type Report struct {
	Made time.Time
	Runs []*RunReport
	// Paper is what a paper prints beside what was measured, nil without --paper.
	Paper *PaperReport
}

// RunReport is one run.
type RunReport struct {
	*Data
	Experiments []*Experiment
	Traffic     []*record.Traffic // what ranks sent to each other, where the run counted it
}

// Experiment is one case with all that was measured of it.
type Experiment struct {
	ID                  string // of its section in the page
	Case                record.Case
	Run                 *Data
	Base                int   // index of the baseline's variant, -1: none that is comparable
	Sides               []int // indices of the variants that were measured
	Panels              []*Panel
	Verdicts            []*Verdict
	Noise               float64 // typical half width of an interval over its median; NaN: not known
	Drift               float64 // typical change from the first to the second half of the repetitions; NaN: not known
	Outliers            int     // values beyond 1.5 interquartile ranges; they are kept
	Samples             int
	Failed              int
	LeastReps, MostReps int
}

// Panel is the part of an experiment in which one parameter is swept.
type Panel struct {
	Label string // the other parameters, like "grid=2x2"; empty: there are none
	Rows  []*Row
}

// Row is one point of a panel.
type Row struct {
	X     string  // value of the parameter on the x axis
	Value float64 // X as a number; NaN if it is none
	Cells []Cell  // by variant (index in Run.Variants)
}

// Cell is one variant's result at one point.
type Cell struct {
	N, Failed int
	Errors    []string
	CI        stats.Interval // of the metric, in the case's unit
	// Ratio is this variant's performance over the baseline's: above 1 it is better than the
	// baseline, whichever way the metric goes. NaN: there is nothing to compare.
	Ratio stats.Interval
	// Equal is the same against the native variant with as many cores, if there is one.
	Equal stats.Interval
	// Paired is the median of the ratios of single repetitions to the baseline's, made one after the other in one state of the
	// cores, with its interval, and Word what follows from it (package verdict); "": there is nothing to compare.
	Paired stats.Interval
	Word   verdict.Word
}

// State is a verdict in one word.
type State string

// The states of a verdict.
const (
	Within  State = "within"  // the median is no worse than the tolerance allows
	Outside State = "outside" // worse, with its whole interval
	Unclear State = "unclear" // worse, but the interval lies across the tolerance
	None    State = "none"    // there is nothing to judge
)

// Verdict judges one variant in one experiment.
type Verdict struct {
	Variant   int // index in Run.Variants
	State     State
	Tolerance Tolerance
	Points    int // that were compared
	Within    int
	Outside   int
	Across    int     // points whose interval lies across the tolerance
	Worst     *Row    // the point with the smallest ratio, nil: none
	Mean      float64 // geometric mean of the ratios
	Equal     float64 // the same against the native variant with as many cores; NaN: there is none
	EqualTo   string
	Words     map[verdict.Word]int // points by what they were found to be
	Why       string               // why there is no verdict
}
