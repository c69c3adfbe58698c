package report

import (
	"math"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/stats"
)

// View is the report as data, the output of --json. Times and rates are in each experiment's unit.
type View struct {
	Runs  []RunView  `json:"runs"`
	Paper *PaperData `json:"paper,omitempty"` // with --paper
}

// PaperData is a paper with the corresponding results of the runs.
type PaperData struct {
	Name  string          `json:"name"`
	Title string          `json:"title"`
	Items []PaperItemData `json:"items"`
}

// PaperItemData is one figure, table or page.
type PaperItemData struct {
	Key        string         `json:"key"` // as in suites: "fig 17"
	Where      string         `json:"where"`
	What       string         `json:"what"`
	Hosts      []int          `json:"hosts,omitempty"`       // number of hosts of the paper's measurement
	Drawn      string         `json:"drawn,omitempty"`       // content of a plot without numbers, which are not extracted
	RepeatedBy []string       `json:"repeated_by,omitempty"` // cases of the runs; none: not measured
	Unlike     []string       `json:"unlike,omitempty"`      // differences of those cases from the paper
	Ways       []string       `json:"ways,omitempty"`        // commands that measure it
	Claims     []PaperClaim   `json:"claims"`
	Series     []PaperSeries  `json:"series,omitempty"`
	Points     []PaperPointAt `json:"points,omitempty"`  // of the series, with the runs' values
	Columns    []PaperColumn  `json:"columns,omitempty"` // further columns of the same listing
}

// PaperColumn is a further column of a printed listing.
type PaperColumn struct {
	Metric string         `json:"metric"`
	Unit   string         `json:"unit"`
	Points []PaperPointAt `json:"points"`
}

// PaperSeries describes printed values over a parameter, in a unit.
type PaperSeries struct {
	Label string `json:"label"`
	X     string `json:"x"`
	Unit  string `json:"unit"`
}

// PaperPointAt is a point of the series of an item.
type PaperPointAt struct {
	X       float64            `json:"x"`
	Printed map[string]float64 `json:"printed"`
	Ours    map[string]float64 `json:"ours,omitempty"` // by case and variant, in the paper's unit
}

// data returns the paper as data.
func (r *PaperReport) data() *PaperData {
	d := &PaperData{Name: r.Paper.Name, Title: r.Paper.Title, Items: []PaperItemData{}}
	for _, it := range r.Items {
		item := PaperItemData{Key: it.Key, Where: it.Where, What: it.What, Hosts: it.Hosts, Drawn: it.Drawn, Unlike: it.Unlike, Ways: it.Ways, Claims: it.Claims}
		for _, e := range it.Experiments {
			item.RepeatedBy = append(item.RepeatedBy, e.Case.Name)
		}
		for _, s := range it.Series {
			item.Series = append(item.Series, PaperSeries{s.Label, it.X, it.Unit})
		}
		item.Points = it.points()
		for _, c := range it.Columns {
			item.Columns = append(item.Columns, PaperColumn{c.Metric, c.Unit, c.points()})
		}
		d.Items = append(d.Items, item)
	}
	return d
}

func (it *PaperItem) points() []PaperPointAt {
	var out []PaperPointAt
	for _, l := range it.Lines {
		out = append(out, PaperPointAt(l))
	}
	return out
}

// RunView is one run.
type RunView struct {
	ID          string            `json:"id"`
	Overall     []string          `json:"overall"` // for each variant that was compared, what it was found to be, in words
	Notes       []string          `json:"notes,omitempty"`
	Experiments []ExperimentView  `json:"experiments"`
	Traffic     []*record.Traffic `json:"traffic,omitempty"` // traffic between ranks, with bench run --traffic
}

// ExperimentView is one experiment.
type ExperimentView struct {
	Case     string        `json:"case"`
	Title    string        `json:"title"`
	Program  string        `json:"program"`
	Metric   string        `json:"metric"`
	Unit     string        `json:"unit"`
	Better   string        `json:"better"`
	Baseline string        `json:"baseline,omitempty"`
	Noise    *float64      `json:"noise,omitempty"` // half width of an interval over its median
	Drift    *float64      `json:"drift,omitempty"` // change from the first to the second half of the repetitions
	Outliers int           `json:"outliers"`
	Failed   int           `json:"failed"`
	Verdicts []VerdictView `json:"verdicts"`
	Points   []PointView   `json:"points"`
}

// VerdictView is a verdict. Ratios are of performance: below 1 is a loss.
type VerdictView struct {
	Variant   string    `json:"variant"`
	State     State     `json:"state"`
	Tolerance Tolerance `json:"tolerance"`
	Gauge     Tolerance `json:"gauge" jsonform:"until 0.2.0"` // Tolerance under its old name, until 0.2.0
	Words     string    `json:"words"`
	Points    int       `json:"points"`
	Within    int       `json:"within"`
	Outside   int       `json:"outside"`
	Faster    int       `json:"faster"` // points at which repetitions in turn found the variant faster than the baseline
	Slower    int       `json:"slower"`
	EqualAt   int       `json:"equal"` // within 2 %
	Undecided int       `json:"undecided"`
	Worst     *float64  `json:"worst,omitempty"`
	Mean      *float64  `json:"mean,omitempty"`
	Equal     *float64  `json:"equal_cores,omitempty"`
}

// PointView has the variants' results at one point.
type PointView struct {
	X      string              `json:"x,omitempty"`
	Others string              `json:"others,omitempty"` // the other parameters
	Values map[string]CellView `json:"values"`           // by variant
}

// CellView is a median with its interval, and the ratio to the baseline with its interval.
type CellView struct {
	N        int         `json:"n"`
	Failed   int         `json:"failed,omitempty"`
	Emulated bool        `json:"emulated,omitempty"`
	Median   *float64    `json:"median,omitempty"`
	Interval *[2]float64 `json:"interval,omitempty"`
	Ratio    *float64    `json:"ratio,omitempty"`
	RatioOf  *[2]float64 `json:"ratio_interval,omitempty"`
	// Paired is the median of the ratios of repetitions in turn, with its interval, and Word what follows from that.
	Paired   *float64     `json:"paired,omitempty"`
	PairedOf *[2]float64  `json:"paired_interval,omitempty"`
	Word     verdict.Word `json:"word,omitempty"`
}

// View returns the report as data.
func (r *Report) View() View {
	v := View{Runs: []RunView{}}
	for _, run := range r.Runs {
		rv := RunView{ID: run.Run.ID, Overall: append([]string{}, run.Overall()...), Notes: run.Notes, Experiments: []ExperimentView{}, Traffic: run.Traffic}
		for _, e := range run.Experiments {
			rv.Experiments = append(rv.Experiments, e.view())
		}
		v.Runs = append(v.Runs, rv)
	}
	if r.Paper != nil {
		v.Paper = r.Paper.data()
	}
	return v
}

func (e *Experiment) view() ExperimentView {
	v := ExperimentView{Case: e.Case.Name, Title: e.title(), Program: e.Case.Program, Metric: e.Case.Metric, Unit: e.Case.Unit, Better: e.Case.Better,
		Noise: number(e.Noise), Drift: number(e.Drift), Outliers: e.Outliers, Failed: e.Failed, Verdicts: []VerdictView{}, Points: []PointView{}}
	if e.Base >= 0 {
		v.Baseline = e.baseLabel()
	}
	for _, d := range e.Verdicts {
		w := VerdictView{Variant: e.variant(d.Variant).Label, State: d.State, Tolerance: d.Tolerance, Gauge: d.Tolerance, Words: e.Words(d), Points: d.Points, Within: d.Within, Outside: d.Outside,
			Faster: d.Words[verdict.Faster], Slower: d.Words[verdict.Slower], EqualAt: d.Words[verdict.Equal], Undecided: d.Words[verdict.Undecided],
			Mean: number(d.Mean), Equal: number(d.Equal)}
		if d.Worst != nil {
			w.Worst = number(d.Worst.Cells[d.Variant].Ratio.Median)
		}
		v.Verdicts = append(v.Verdicts, w)
	}
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			pt := PointView{X: row.X, Others: p.Label, Values: map[string]CellView{}}
			for _, i := range e.Sides {
				c := &row.Cells[i]
				cell := CellView{N: c.N, Failed: c.Failed, Emulated: e.variant(i).Emulated}
				cell.Median, cell.Interval = numbers(c.CI)
				cell.Ratio, cell.RatioOf = numbers(c.Ratio)
				cell.Paired, cell.PairedOf = numbers(c.Paired)
				cell.Word = c.Word
				pt.Values[e.variant(i).Label] = cell
			}
			v.Points = append(v.Points, pt)
		}
	}
	return v
}

// number returns a pointer to v, or nil if JSON cannot represent v.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func numbers(i stats.Interval) (*float64, *[2]float64) {
	m := number(i.Median)
	if m == nil || number(i.Low) == nil || number(i.High) == nil {
		return m, nil
	}
	return m, &[2]float64{i.Low, i.High}
}
