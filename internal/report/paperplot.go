package report

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
)

// mostPaperPanels is the maximum number of panels of an experiment that are drawn with a figure; tables contain all.
const mostPaperPanels = 6

// mostChange is the maximum ratio that is drawn as a change in per cent.
const mostChange = 1000

// paperStyle is the style of a paper's numbers, which differs from those of a run in colour and marker.
const paperStyle = 5

// plots returns the pictures of an item: the run's results with the paper's numbers in one frame, or, if the paper
// prints none, the quantity of its figure for the run only.
func (it *PaperItem) plots() []*chart.Figure {
	var out []*chart.Figure
	if it.Figure != nil {
		out = append(out, it.withLevels())
	}
	programs := it.programs()
	out = append(out, programs...)
	for _, e := range it.Experiments {
		for i, p := range e.Panels {
			if i == mostPaperPanels {
				break
			}
			var drawn []*chart.Figure
			if programs == nil {
				drawn = it.changes(e, p)
			}
			drawn = append(append(drawn, it.differences(e, p)...), it.clouds(e, p)...)
			if drawn == nil && it.Figure == nil && programs == nil {
				drawn = it.alone(e, p)
			}
			out = append(out, drawn...)
		}
	}
	for i, f := range out {
		f.Name = fileStem("paper-" + it.Key)
		if i > 0 {
			f.Name += "-" + strconv.Itoa(i+1)
		}
	}
	return out
}

// alone returns the figure's quantity for the run only: efficiency, speed-up, or the metric itself with the paper's
// printed values along the axis.
func (it *PaperItem) alone(e *Experiment, p *Panel) []*chart.Figure {
	switch it.Plot {
	case "efficiency":
		if f := e.efficiencyFigure(p); f != nil {
			return []*chart.Figure{f}
		}
	case "speed-up":
		if f := e.speedUpFigure(p); f != nil {
			return []*chart.Figure{f}
		}
	}
	f := e.metricFigure(p)
	if !f.Bars {
		_, at := e.xAxis(p, false)
		it.levels(f, at, e.Case.Name, e.Case.Unit)
	}
	return []*chart.Figure{f}
}

// changes draws the paper's and the run's changes in per cent: one figure per quantity that changes.
func (it *PaperItem) changes(e *Experiment, p *Panel) []*chart.Figure {
	var out []*chart.Figure
	for _, of := range []string{"performance", "time", "gain"} {
		var claims []*paper.Claim
		for i := range it.Item.Claims {
			c := &it.Item.Claims[i]
			if c.Of == of && len(c.Percent) > 0 && (c.Measure == "" || c.Measure == "mean") && about(e.Case.Name, c.Case) && e.mayBeIn(p, c.Point) {
				claims = append(claims, c)
			}
		}
		if len(claims) == 0 {
			continue
		}
		f := &chart.Figure{Title: e.panelTitle(p, "beside "+it.figureName()), Y: chart.Axis{Label: changeLabel(of, claims), Percent: true, Show: []float64{0}}}
		var at []float64
		f.X, at = e.xAxis(p, false)
		if of == "gain" {
			f.Series = e.gainSeries(p, at, claims)
		} else {
			f.Series = e.changeSeries(p, at, of)
		}
		if len(f.Series) == 0 {
			continue
		}
		f.Rules = append(f.Rules, chart.Rule{Low: 0, High: 0})
		e.addClaims(f, at, claims, "", func(c *paper.Claim) (low, high float64) {
			return slices.Min(c.Percent) / 100, slices.Max(c.Percent) / 100
		})
		out = append(out, f)
	}
	return out
}

// addClaims adds the printed numbers of claims to a figure: at their points, or along the axis if they apply to all
// of it or a part. value returns the lowest and highest number of a claim, in the figure's unit.
func (e *Experiment) addClaims(f *chart.Figure, at []float64, claims []*paper.Claim, unit string, value func(*paper.Claim) (low, high float64)) {
	theirs := chart.Series{Name: "the paper", Style: paperStyle}
	var throughout []chart.Series
	for _, c := range claims {
		low, high := value(c)
		pt := chart.Point{Y: (low + high) / 2, Low: low, High: high, Tip: "the paper: " + c.Says}
		if x, ok := e.placeOf(f, c.Point); ok {
			pt.X = x
			theirs.Points = append(theirs.Points, pt)
			continue
		}
		if low < high {
			f.Rules = append(f.Rules, chart.Rule{Low: low, High: high})
		}
		s := chart.Series{Name: "the paper: " + printed(c, unit), Style: paperStyle + 1 + len(throughout)}
		for _, x := range []float64{slices.Min(at), slices.Max(at)} {
			pt.X = x
			s.Points = append(s.Points, pt)
		}
		throughout = append(throughout, s)
	}
	if theirs.Points != nil {
		slices.SortFunc(theirs.Points, func(a, b chart.Point) int { return int(math.Copysign(1, a.X-b.X)) })
		f.Series = append(f.Series, theirs)
	}
	f.Series = append(f.Series, throughout...)
}

func changeLabel(of string, claims []*paper.Claim) string {
	switch of {
	case "time":
		return "Change of time (%), lower is better"
	case "gain":
		return "Gain by " + claims[0].Switch + " (%), higher is better"
	}
	return "Change of performance (%), higher is better"
}

// mayBeIn reports whether a claim's point can be in a panel, by the parameters that are constant in the panel.
func (e *Experiment) mayBeIn(p *Panel, point map[string]string) bool {
	for k, want := range point {
		for _, f := range strings.Fields(p.Label) {
			if v, ok := strings.CutPrefix(f, k+"="); ok && !among(v, want) {
				return false
			}
		}
	}
	return true
}

// placeOf returns the position of a claim's point on a figure's x axis; false: it has no single position there.
func (e *Experiment) placeOf(f *chart.Figure, point map[string]string) (float64, bool) {
	want, ok := point[e.Case.X]
	if !ok {
		return 0, false
	}
	if len(f.X.Names) > 0 {
		i := slices.Index(f.X.Names, want)
		return float64(i), i >= 0
	}
	v, err := strconv.ParseFloat(want, 64)
	return v, err == nil
}

// changeSeries returns the changes of each variant against the baseline.
func (e *Experiment) changeSeries(p *Panel, at []float64, of string) []chart.Series {
	var out []chart.Series
	for i, v := range e.Sides {
		if v == e.Base || e.variant(v).Emulated || e.variant(v).Foreign {
			continue
		}
		s := chart.Series{Name: e.sideName(v), Style: i % paperStyle}
		for j, r := range p.Rows {
			c := r.Cells[v].Ratio
			if math.IsNaN(c.Median) || c.Low < 1/mostChange || c.High > mostChange {
				continue
			}
			pt := chart.Point{X: at[j], Y: c.Median - 1, Low: c.Low - 1, High: c.High - 1}
			if of == "time" {
				pt.Y, pt.Low, pt.High = 1/c.Median-1, 1/c.High-1, 1/c.Low-1
			}
			pt.Tip = e.tip(r, v)
			s.Points = append(s.Points, pt)
		}
		if s.Points != nil {
			out = append(out, s)
		}
	}
	return out
}

// gainSeries returns the gains of VMs over those without a claim's switch, each point without an interval.
func (e *Experiment) gainSeries(p *Panel, at []float64, claims []*paper.Claim) []chart.Series {
	var out []chart.Series
	one := *e
	for _, v := range e.Sides {
		if w := e.variant(v); w.Kind != "vm" || w.Foreign || w.Emulated || len(w.Ablated) > 0 {
			continue
		}
		for _, o := range e.without(claims[0].Switch) {
			s := chart.Series{Name: e.variant(v).Label + " against " + e.variant(o).Label, Style: len(out) % paperStyle}
			for j, r := range p.Rows {
				one.Panels = []*Panel{{Label: p.Label, Rows: []*Row{r}}}
				if q, row := one.better(nil, v, o); row != nil && q < mostChange {
					s.Points = append(s.Points, chart.Point{X: at[j], Y: q - 1, Low: q - 1, High: q - 1, Tip: s.Name + e.where(r) + ": " + Delta(q)})
				}
			}
			if s.Points != nil {
				out = append(out, s)
			}
		}
	}
	return out
}
