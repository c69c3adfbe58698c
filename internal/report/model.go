package report

import (
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/stats"
)

// Report is the content of a report.
type Report struct {
	Made time.Time
	Runs []*RunReport
	// Paper compares a paper's numbers with the measurements; nil without --paper.
	Paper *PaperReport
}

// RunReport is one run.
type RunReport struct {
	*Data
	Experiments []*Experiment
	Traffic     []*record.Traffic // traffic between ranks, if the run counted it
}

// Experiment is one case with all its measurements.
type Experiment struct {
	ID                  string // of its section in the page
	Case                record.Case
	Run                 *Data
	Base                int   // index of the baseline's variant; -1: none is comparable
	Sides               []int // indices of the measured variants
	Panels              []*Panel
	Verdicts            []*Verdict
	Noise               float64 // typical half width of an interval over its median; NaN: unknown
	Drift               float64 // typical change from the first to the second half of the repetitions; NaN: unknown
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
	Value float64 // X as a number; NaN if it is not a number
	Cells []Cell  // by variant (index in Run.Variants)
}

// Cell is one variant's result at one point.
type Cell struct {
	N, Failed int
	Errors    []string
	CI        stats.Interval // of the metric, in the case's unit
	// Ratio is this variant's performance relative to the baseline's: above 1 it is better than the baseline,
	// regardless of the direction of the metric. NaN: there is no comparison.
	Ratio stats.Interval
	// Equal is the ratio to the native variant with as many cores, if there is one.
	Equal stats.Interval
	// Paired is the median of the ratios of single repetitions to the baseline's, made one after the other in one state of the
	// cores, with its interval, and Word what follows from it (package verdict); "": there is nothing to compare.
	Paired stats.Interval
	Word   verdict.Word
}

// State is a verdict in one word.
type State string

// States of a verdict.
const (
	Within  State = "within"  // the median is no worse than the tolerance allows
	Outside State = "outside" // the whole interval is worse
	Unclear State = "unclear" // the median is worse, but the interval includes the tolerance
	None    State = "none"    // no comparison
)

// Verdict is the verdict on one variant in one experiment.
type Verdict struct {
	Variant   int // index in Run.Variants
	State     State
	Tolerance Tolerance
	Points    int // number of compared points
	Within    int
	Outside   int
	Across    int     // points whose interval includes the tolerance
	Worst     *Row    // the point with the smallest ratio; nil: none
	Mean      float64 // geometric mean of the ratios
	Equal     float64 // geometric mean relative to the native variant with as many cores; NaN: there is none
	EqualTo   string
	Words     map[verdict.Word]int // points by what they were found to be
	Why       string               // why there is no verdict
}
