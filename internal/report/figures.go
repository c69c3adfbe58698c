package report

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/report/chart"
)

// mostPanels is the maximum number of panels of an experiment that are drawn; the tables contain all.
const mostPanels = 24

// mostBars is the maximum number of bars of a plot; more values are drawn as points.
const mostBars = 48

// figures returns the plots of an experiment: first those of the metric, then those derived from it.
func (e *Experiment) figures() []*chart.Figure {
	var metric, derived []*chart.Figure
	for i, p := range e.Panels {
		if i == mostPanels {
			break
		}
		f := e.metricFigure(p)
		metric = append(metric, f)
		if e.Case.Kind == "scaling" {
			if f := e.efficiencyFigure(p); f != nil {
				derived = append(derived, f)
			}
		} else if f := e.ratioFigure(p); f != nil {
			derived = append(derived, f)
		}
	}
	all := append(metric, derived...)
	stem := fileStem(e.Run.Run.ID + "-" + e.Case.Name)
	for i, f := range all {
		f.Name = fmt.Sprintf("%s-%d", stem, i+1)
		f.Small = len(e.Panels) > 1
	}
	return all
}

var notInName = lazyregexp.New(`[^A-Za-z0-9._-]+`)

// fileStem makes a file name of a name in a data file.
func fileStem(s string) string {
	s = strings.Trim(notInName().ReplaceAllString(s, "-"), "-.")
	if len(s) > 100 {
		s = s[:100]
	}
	if s == "" {
		s = "plot"
	}
	return s
}

func (e *Experiment) panelTitle(p *Panel, what string) string {
	title := e.title()
	if what != "" {
		title += ", " + what
	}
	if p.Label != "" {
		title += ": " + p.Label
	}
	return title
}

func (e *Experiment) title() string {
	if e.Case.Title != "" {
		return e.Case.Title
	}
	return e.Case.Name
}

// unit formats a unit for a reader.
func unit(u string) string {
	switch u {
	case "us":
		return "µs"
	case "":
		return "1"
	}
	return u
}

func better(b string) string {
	if b == "up" {
		return "higher is better"
	}
	return "lower is better"
}

// yLabel returns the title of the metric's axis.
func (e *Experiment) yLabel() string {
	m := e.Case.Metric
	if m == "" {
		m = "value"
	}
	return capital(m) + " (" + unit(e.Case.Unit) + "), " + better(e.Case.Better)
}

func capital(s string) string {
	if s == "" || s[0] >= utf8.RuneSelf { // a minus or a micro sign
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// xAxis returns the axis of a panel's parameter and the positions of the rows on it.
func (e *Experiment) xAxis(p *Panel, categories bool) (chart.Axis, []float64) {
	at := make([]float64, len(p.Rows))
	numbers := len(p.Rows) > 0 && !categories
	low, high := math.Inf(1), 0.0
	for i, r := range p.Rows {
		at[i] = r.Value
		numbers = numbers && !math.IsNaN(r.Value)
		low, high = math.Min(low, r.Value), math.Max(high, r.Value)
	}
	axis := chart.Axis{Label: e.xLabel(), Whole: true}
	switch {
	case !numbers:
		for i, r := range p.Rows {
			at[i] = float64(i)
			name := r.X
			if name == "" {
				name = p.Label
			}
			if name == "" {
				name = e.Case.Program
			}
			axis.Names = append(axis.Names, name)
		}
	case e.Case.Kind == "size":
		axis.Scale, axis.Bytes, axis.Whole, axis.Zero = chart.Log2, true, false, low == 0
	case low > 0 && high/low >= 8 && e.Case.Kind == "scaling":
		axis.Scale = chart.Log2
	case low > 0 && high/low >= 50:
		axis.Scale = chart.Log
	}
	return axis, at
}

func (e *Experiment) xLabel() string {
	switch x := e.Case.X; {
	case e.Case.Kind == "size":
		return "Message size (bytes)"
	case x == "":
		return ""
	default:
		return capital(strings.ReplaceAll(x, "_", " "))
	}
}

func (e *Experiment) metricFigure(p *Panel) *chart.Figure {
	bars := (e.Case.Kind == "bar" || e.Case.Kind == "scaling") && len(p.Rows)*len(e.Sides) <= mostBars
	f := &chart.Figure{Title: e.panelTitle(p, ""), Bars: bars, Y: chart.Axis{Label: e.yLabel()}}
	var at []float64
	f.X, at = e.xAxis(p, bars)
	low, high := math.Inf(1), 0.0
	for i, v := range e.Sides {
		s := chart.Series{Name: e.sideName(v), Style: i, Faint: e.variant(v).Emulated}
		for j, r := range p.Rows {
			c := &r.Cells[v]
			if c.N == 0 {
				continue
			}
			low, high = math.Min(low, c.CI.Median), math.Max(high, c.CI.Median)
			pt := chart.Point{X: at[j], Y: c.CI.Median, Low: c.CI.Low, High: c.CI.High, Tip: e.tip(r, v)}
			if bars && !math.IsNaN(c.Ratio.Median) {
				pt.Top = Delta(c.Ratio.Median)
			}
			s.Points = append(s.Points, pt)
		}
		f.Series = append(f.Series, s)
	}
	if !bars && low > 0 && (e.Case.Kind == "size" || high/low >= 50) {
		f.Y.Scale = chart.Log
	} else if !bars && low >= 0 {
		f.Y.Show = []float64{0}
	}
	return f
}

// sideName returns a variant's name in legends.
func (e *Experiment) sideName(v int) string {
	name := e.variant(v).Label
	switch {
	case e.variant(v).Emulated:
		name += " (" + Emulated + ")"
	case v == e.Base:
		name += " (baseline)"
	}
	return name
}

// tip returns the text that is shown under the pointer.
func (e *Experiment) tip(r *Row, v int) string {
	c := &r.Cells[v]
	text := e.variant(v).Label
	if x := e.xText(r); x != "" {
		text += " at " + x
	}
	text += ": " + chart.Number(c.CI.Median) + " " + unit(e.Case.Unit)
	if c.CI.Low != c.CI.High {
		text += fmt.Sprintf(" (95 %% of medians: %s to %s, %d values)", chart.Number(c.CI.Low), chart.Number(c.CI.High), c.N)
	}
	if e.variant(v).Emulated {
		text += "; " + Emulated
	}
	if !math.IsNaN(c.Ratio.Median) {
		text += "; " + Delta(c.Ratio.Median) + " against " + e.variant(e.Base).Label
	}
	return text
}

// xText formats a row's value on the x axis.
func (e *Experiment) xText(r *Row) string {
	if e.Case.Kind == "size" && r.Value >= 0 {
		return chart.Bytes(r.Value)
	}
	if math.IsNaN(r.Value) || e.Case.X == "" {
		return r.X
	}
	return strings.ReplaceAll(e.Case.X, "_", " ") + " = " + r.X
}

// Delta formats a ratio of performances as the gain (+) or loss (−) in per cent.
func Delta(ratio float64) string {
	d := (ratio - 1) * 100
	switch {
	case math.IsNaN(d) || math.IsInf(d, 0):
		return "—"
	case math.Abs(d) < 0.05:
		return "±0.0 %"
	case math.Abs(d) >= 1000:
		return fmt.Sprintf("%+.0f %%", d)
	}
	return strings.Replace(fmt.Sprintf("%+.1f %%", d), "-", "−", 1)
}

// ratioFigure shows performance relative to the baseline's, with the line at 1.0 and the tolerance.
func (e *Experiment) ratioFigure(p *Panel) *chart.Figure {
	f := &chart.Figure{Title: e.panelTitle(p, "ratio to "+e.baseLabel()), Y: chart.Axis{Label: "Performance ÷ " + e.baseLabel() + " (1), higher is better", Show: []float64{0.95, 1.05}}}
	var at []float64
	f.X, at = e.xAxis(p, false)
	found := false
	for i, v := range e.Sides {
		if v == e.Base {
			continue
		}
		s := chart.Series{Name: e.sideName(v), Style: i}
		for j, r := range p.Rows {
			if c := &r.Cells[v]; !math.IsNaN(c.Ratio.Median) {
				found = true
				s.Points = append(s.Points, chart.Point{X: at[j], Y: c.Ratio.Median, Low: c.Ratio.Low, High: c.Ratio.High,
					Tip: fmt.Sprintf("%s at %s: %s of %s (%s)", e.variant(v).Label, e.xText(r), trim3(c.Ratio.Median), e.baseLabel(), Delta(c.Ratio.Median))})
			}
		}
		if len(s.Points) > 0 {
			f.Series = append(f.Series, s)
		}
	}
	if !found || len(p.Rows) < 2 && e.Case.Kind == "bar" {
		return nil
	}
	if g := e.toleranceShown(); g.Share > 0 {
		f.Rules = append(f.Rules, chart.Rule{Low: 1 - g.Share, High: 1, Label: "tolerance: " + g.Percent() + ", " + g.Reason})
	}
	f.Rules = append(f.Rules, chart.Rule{Low: 1, High: 1, Label: "as fast as " + e.baseLabel()})
	return f
}

func (e *Experiment) baseLabel() string {
	if e.Base < 0 {
		return "nothing"
	}
	return e.variant(e.Base).Label
}

// toleranceShown returns the tolerance that a plot shows as a band: that of the first VM with a verdict.
func (e *Experiment) toleranceShown() Tolerance {
	for _, v := range e.Verdicts {
		if v.State != None && e.variant(v.Variant).Kind == "vm" {
			return v.Tolerance
		}
	}
	for _, v := range e.Verdicts {
		if v.State != None {
			return v.Tolerance
		}
	}
	return Tolerance{}
}

// efficiencyFigure shows the scaling of a fixed problem: speed per node relative to that of the first point.
func (e *Experiment) efficiencyFigure(p *Panel) *chart.Figure {
	f := &chart.Figure{Title: e.panelTitle(p, "strong scaling"), Y: chart.Axis{Label: "Efficiency of strong scaling (%), higher is better", Percent: true}}
	var at []float64
	f.X, at = e.xAxis(p, false)
	if len(f.X.Names) > 0 || len(p.Rows) < 2 {
		return nil
	}
	for i, v := range e.Sides {
		if e.variant(v).Emulated {
			continue
		}
		s := chart.Series{Name: e.sideName(v), Style: i}
		for j, r := range p.Rows {
			if eff := e.efficiency(p, j, v); !math.IsNaN(eff) {
				s.Points = append(s.Points, chart.Point{X: at[j], Y: eff, Low: eff, High: eff,
					Tip: fmt.Sprintf("%s at %s: efficiency %.1f %%", e.variant(v).Label, e.xText(r), eff*100)})
			}
		}
		if len(s.Points) > 1 {
			f.Series = append(f.Series, s)
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	f.Rules = []chart.Rule{{Low: 1, High: 1, Label: "perfect scaling"}}
	return f
}

// efficiency returns the efficiency of a row: the speed-up over the smallest measured point, divided by the ratio of
// their sizes; NaN if it is unknown.
func (e *Experiment) efficiency(p *Panel, row, v int) float64 {
	for _, first := range p.Rows {
		if a := &first.Cells[v]; a.N > 0 {
			r := p.Rows[row]
			c := &r.Cells[v]
			if c.N == 0 || !(first.Value > 0) || !(c.CI.Median > 0) || !(a.CI.Median > 0) {
				return math.NaN()
			}
			speedup := a.CI.Median / c.CI.Median
			if e.Case.Better == "up" {
				speedup = 1 / speedup
			}
			return speedup / (r.Value / first.Value)
		}
	}
	return math.NaN()
}

// trim3 formats a ratio with three decimals.
func trim3(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "—"
	}
	return fmt.Sprintf("%.3f", v)
}
