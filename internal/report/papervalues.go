package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
)

// claimUnit returns the unit of a claim's values.
func (it *PaperItem) claimUnit(c *paper.Claim) string {
	if c.In != "" {
		return c.In
	}
	return it.Unit
}

// figureName returns the position of an item without the section: "Figure 1".
func (it *PaperItem) figureName() string {
	name, _, _ := strings.Cut(it.Where, ",")
	return name
}

// levels draws the paper's printed values in a unit along the axis of a figure; at are positions on the axis.
func (it *PaperItem) levels(f *chart.Figure, at []float64, name, unit string) {
	if len(at) == 0 {
		return
	}
	style := paperStyle + len(it.Series)
	for i := range it.Item.Claims {
		c := &it.Item.Claims[i]
		factor, ok := paper.Factor(it.claimUnit(c), unit)
		if !ok || len(c.Values) == 0 || c.Measure != "" && c.Measure != "peak" || !about(name, c.Case) {
			continue
		}
		low, high := slices.Min(c.Values)*factor, slices.Max(c.Values)*factor
		words := ""
		if c.Measure == "peak" {
			words = ", calculated peak"
		}
		s := chart.Series{Name: "the paper: " + printed(c, it.claimUnit(c)) + words, Style: style}
		for _, x := range []float64{slices.Min(at), slices.Max(at)} {
			s.Points = append(s.Points, chart.Point{X: x, Y: (low + high) / 2, Low: low, High: high, Tip: "the paper: " + c.Says})
		}
		f.Series = append(f.Series, s)
		style++
	}
}

// withLevels returns the figure of printed series with the values of levels.
func (it *PaperItem) withLevels() *chart.Figure {
	f := *it.Figure
	f.Series = slices.Clone(f.Series)
	var at []float64
	for _, s := range f.Series {
		for _, p := range s.Points {
			at = append(at, p.X)
		}
	}
	it.levels(&f, at, "", it.Unit)
	return &f
}

// differences draws the paper's and the run's differences of a value from native.
func (it *PaperItem) differences(e *Experiment, p *Panel) []*chart.Figure {
	var claims []*paper.Claim
	unitOf := ""
	for i := range it.Item.Claims {
		if c := &it.Item.Claims[i]; c.Measure == "difference" && about(e.Case.Name, c.Case) && e.mayBeIn(p, c.Point) {
			claims, unitOf = append(claims, c), it.claimUnit(c)
		}
	}
	factor, ok := paper.Factor(e.Case.Unit, unitOf)
	if len(claims) == 0 || !ok || e.Base < 0 {
		return nil
	}
	base := e.variant(e.Base).Label
	f := &chart.Figure{Title: e.panelTitle(p, "beside "+it.figureName()), Y: chart.Axis{Label: "More than " + base + " (" + unit(unitOf) + "), " + better(e.Case.Better), Show: []float64{0}},
		Rules: []chart.Rule{{Label: "as " + base}}}
	var at []float64
	f.X, at = e.xAxis(p, false)
	for i, v := range e.Sides {
		if v == e.Base || e.variant(v).Emulated || e.variant(v).Foreign {
			continue
		}
		s := chart.Series{Name: e.sideName(v), Style: i % paperStyle}
		for j, r := range p.Rows {
			if r.Cells[v].N == 0 || r.Cells[e.Base].N == 0 {
				continue
			}
			d := (r.Cells[v].CI.Median - r.Cells[e.Base].CI.Median) * factor
			s.Points = append(s.Points, chart.Point{X: at[j], Y: d, Low: d, High: d, Tip: e.tip(r, v)})
		}
		if s.Points != nil {
			f.Series = append(f.Series, s)
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	e.addClaims(f, at, claims, unitOf, func(c *paper.Claim) (low, high float64) { return slices.Min(c.Values), slices.Max(c.Values) })
	return []*chart.Figure{f}
}

// clouds draws the paper's and the run's ratios of the performance of VMs to that of a cloud's VMs.
func (it *PaperItem) clouds(e *Experiment, p *Panel) []*chart.Figure {
	var claims []*paper.Claim
	for i := range it.Item.Claims {
		if c := &it.Item.Claims[i]; len(c.Times) > 0 && about(e.Case.Name, c.Case) && e.mayBeIn(p, c.Point) {
			claims = append(claims, c)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	f := &chart.Figure{Title: e.panelTitle(p, "beside "+it.figureName()), Y: chart.Axis{Label: "Times the cloud's performance (1), higher is better", Scale: chart.Log, Show: []float64{1}},
		Rules: []chart.Rule{{Low: 1, High: 1, Label: "as the cloud"}}}
	var at []float64
	f.X, at = e.xAxis(p, false)
	one := *e
	for _, v := range e.Sides {
		ours := e.variant(v)
		if ours.Kind != "vm" || ours.Foreign || ours.Emulated || len(ours.Ablated) > 0 {
			continue
		}
		for _, o := range e.Sides {
			if theirs := e.variant(o); !theirs.Foreign || theirs.Emulated {
				continue
			}
			s := chart.Series{Name: ours.Label + " against " + e.variant(o).Label, Style: len(f.Series) % paperStyle}
			for j, r := range p.Rows {
				one.Panels = []*Panel{{Label: p.Label, Rows: []*Row{r}}}
				if q, row := one.better(nil, v, o); row != nil {
					s.Points = append(s.Points, chart.Point{X: at[j], Y: q, Low: q, High: q, Tip: s.Name + e.where(r) + ": " + chart.Number(q) + " ×"})
				}
			}
			if s.Points != nil {
				f.Series = append(f.Series, s)
			}
		}
	}
	if len(f.Series) == 0 {
		return nil
	}
	e.addClaims(f, at, claims, "", func(c *paper.Claim) (low, high float64) { return c.Times[0], c.Times[0] })
	return []*chart.Figure{f}
}

// leastPrograms is the minimum number of an item's programs that are drawn in one picture of bars.
const leastPrograms = 3

// programs draws the changes of a figure that has one bar per program: one picture per quantity and point. nil: the
// item has few programs, or its claims name none.
func (it *PaperItem) programs() []*chart.Figure {
	if len(it.Experiments) < leastPrograms {
		return nil
	}
	type place struct{ of, at string }
	var places []place
	claims := map[place][]*paper.Claim{}
	for i := range it.Item.Claims {
		c := &it.Item.Claims[i]
		if len(c.Percent) == 0 || c.Case == "" || c.Measure != "" {
			continue
		}
		p := place{c.Of, pointText(c.Point)}
		if claims[p] == nil {
			places = append(places, p)
		}
		claims[p] = append(claims[p], c)
	}
	var out []*chart.Figure
	for _, p := range places {
		title := "beside " + it.figureName()
		if p.at != "" {
			title = p.at + ", " + title
		}
		f := &chart.Figure{Title: capital(title), Bars: true,
			Y: chart.Axis{Label: changeLabel(p.of, claims[p]), Percent: true, Show: []float64{0}}, Rules: []chart.Rule{{}}}
		theirs := chart.Series{Name: "the paper", Style: paperStyle}
		ours := map[string]*chart.Series{}
		var names []string
		for _, e := range it.Experiments {
			for _, c := range claims[p] {
				bars := e.changeAt(c)
				if !about(e.Case.Name, c.Case) || len(bars) == 0 {
					continue
				}
				x := float64(len(f.X.Names))
				low, high := slices.Min(c.Percent)/100, slices.Max(c.Percent)/100
				theirs.Points = append(theirs.Points, chart.Point{X: x, Y: (low + high) / 2, Low: low, High: high, Tip: "the paper: " + c.Says})
				f.X.Names = append(f.X.Names, shortName(e.Case.Name))
				for _, b := range bars {
					if ours[b.name] == nil {
						names = append(names, b.name)
						ours[b.name] = &chart.Series{Name: b.name, Style: len(names) - 1}
					}
					ours[b.name].Points = append(ours[b.name].Points, chart.Point{X: x, Y: b.change, Low: b.change, High: b.change, Tip: b.name + ", " + e.Case.Name + b.where})
				}
			}
		}
		if len(f.X.Names) == 0 {
			continue
		}
		for _, n := range names {
			f.Series = append(f.Series, *ours[n])
		}
		f.Series = append(f.Series, theirs)
		out = append(out, f)
	}
	return out
}

// pointText formats a claim's point: "threads = 16".
func pointText(point map[string]string) string {
	var list []string
	for k, v := range point {
		list = append(list, k+" = "+v)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// shortName returns a case's name without its suite, and without the number that SPEC puts before it.
func shortName(name string) string {
	name = name[strings.LastIndexByte(name, '/')+1:]
	return strings.TrimLeft(name, "0123456789.-")
}

// bar is one change of a run at a claim's point.
type bar struct {
	name, where string
	change      float64
}

// changeAt returns a run's results for a claim of a change: one for each variant, or pair of variants, that the claim
// is about.
func (e *Experiment) changeAt(c *paper.Claim) []bar {
	var out []bar
	for _, v := range e.Sides {
		w := e.variant(v)
		if w.Kind != "vm" || w.Foreign || w.Emulated || v == e.Base {
			continue
		}
		if c.Of != "gain" {
			if q, row := e.ratioAt(c.Point, v); row != nil && !math.IsInf(q, 0) && q > 0 {
				if c.Of == "time" {
					q = 1 / q
				}
				out = append(out, bar{w.Label, fmt.Sprintf("%s: %s", e.where(row), Delta(q)), q - 1})
			}
			continue
		}
		if len(w.Ablated) > 0 {
			continue
		}
		for _, o := range e.without(c.Switch) {
			if q, row := e.better(c.Point, v, o); row != nil && q < mostChange {
				out = append(out, bar{w.Label + " against " + e.variant(o).Label, fmt.Sprintf("%s: %s", e.where(row), Delta(q)), q - 1})
			}
		}
	}
	return out
}

// speedUpFigure shows the speed relative to that of the first point.
func (e *Experiment) speedUpFigure(p *Panel) *chart.Figure {
	f := e.efficiencyFigure(p)
	if f == nil {
		return nil
	}
	first := math.Inf(1)
	for _, r := range p.Rows {
		first = math.Min(first, r.Value)
	}
	f.Title = e.panelTitle(p, "speed-up")
	f.Y = chart.Axis{Label: "Speed-up over the smallest point (1), higher is better", Show: []float64{1}}
	perfect := chart.Series{Name: "perfect", Style: paperStyle + 1}
	for i := range f.Series {
		for j := range f.Series[i].Points {
			pt := &f.Series[i].Points[j]
			pt.Y *= pt.X / first
			pt.Low, pt.High = pt.Y, pt.Y
		}
	}
	for _, r := range p.Rows {
		perfect.Points = append(perfect.Points, chart.Point{X: r.Value, Y: r.Value / first, Low: r.Value / first, High: r.Value / first})
	}
	f.Rules, f.Series = nil, append(f.Series, perfect)
	return f
}
