package report

import (
	"fmt"
	"time"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
)

// Options select the content of a report.
type Options struct {
	Tolerance Tolerance
	Paper     string // name of the paper to compare the runs with; "": none
	// Ways returns the commands that repeat an item of a paper; nil: none are shown.
	Ways func(paper.Key) []string
	Now  time.Time
}

// Build makes the report of runs. With a paper, runs may be empty: the report then lists what can be repeated.
func Build(runs []*Data, o Options) (*Report, error) {
	r := &Report{Made: o.Now}
	for _, d := range runs {
		r.Runs = append(r.Runs, Analyse(d, o.Tolerance))
	}
	if o.Paper != "" {
		p, err := paper.Open(o.Paper)
		if err != nil {
			return nil, err
		}
		r.Paper = besides(p, r.Runs, o.Ways)
	}
	return r, nil
}

// Figures returns all plots of the report as separate pictures; their names are unique.
func (r *Report) Figures() []*chart.Figure {
	var out []*chart.Figure
	for _, run := range r.Runs {
		for _, e := range run.Experiments {
			if e.Samples > 0 {
				out = append(out, e.figures()...)
			}
		}
	}
	if r.Paper != nil {
		for _, it := range r.Paper.Items {
			if it.measured() || len(r.Runs) == 0 {
				out = append(out, it.Plots...)
			}
		}
	}
	seen := map[string]int{}
	for _, f := range out {
		f.Legend, f.Small = true, false
		if n := seen[f.Name]; n > 0 {
			f.Name = fmt.Sprintf("%s-%d", f.Name, n+1)
		}
		seen[f.Name]++
	}
	return out
}
