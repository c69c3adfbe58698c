package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
	"nearmetal/internal/terminal"
	"nearmetal/internal/words"
)

// PaperReport is a paper beside what was measured.
type PaperReport struct {
	Paper *paper.Paper
	Items []*PaperItem
}

// PaperItem is one figure of the paper with the experiments that repeat it.
type PaperItem struct {
	*paper.Item
	Experiments []*Experiment
	Claims      []PaperClaim
	Lines       []PaperLine
	Figure      *chart.Figure // the paper's values and the run's, nil: there are none
}

// PaperClaim is a printed number with what the runs have in its place.
type PaperClaim struct {
	Printed string
	Says    string
	Ours    []string // one a variant; empty: not measured
}

// PaperLine is a point of a printed series with the run's values there.
type PaperLine struct {
	X       float64
	Printed map[string]float64 // by the series' label
	Ours    map[string]float64 // by the variant's name, in the paper's unit
}

// besides lays runs beside a paper.
func besides(p *paper.Paper, runs []*RunReport) *PaperReport {
	r := &PaperReport{Paper: p}
	for i := range p.Items {
		item := &PaperItem{Item: &p.Items[i]}
		for _, run := range runs {
			for _, e := range run.Experiments {
				if repeats(e, p.Name, item.Item) {
					item.Experiments = append(item.Experiments, e)
				}
			}
		}
		for j := range item.Item.Claims {
			item.Claims = append(item.Claims, item.claim(&item.Item.Claims[j]))
		}
		item.series()
		r.Items = append(r.Items, item)
	}
	return r
}

// repeats reports whether an experiment repeats an item: its case names the item or is named by it. perftest with
// both sides on one host, as runs before version 0.1.0 have it, repeats nothing: papers print what goes between two.
func repeats(e *Experiment, name string, it *paper.Item) bool {
	if e.Case.Suite == "perftest" && e.Case.Hosts < 2 {
		return false
	}
	if slices.Contains(paper.Keys(e.Case.Seed), paper.Key{Paper: name, Item: it.Key}) {
		return true
	}
	return slices.Contains(it.Cases, e.Case.Name)
}

// series puts the run's values beside the printed ones and draws both.
func (it *PaperItem) series() {
	if len(it.Series) == 0 {
		return
	}
	lines := map[float64]*PaperLine{}
	at := func(x float64) *PaperLine {
		if lines[x] == nil {
			lines[x] = &PaperLine{X: x, Printed: map[string]float64{}, Ours: map[string]float64{}}
		}
		return lines[x]
	}
	f := &chart.Figure{Name: fileStem("paper-" + it.Key), Title: it.What, X: chart.Axis{Label: capital(it.X), Scale: chart.Log2},
		Y: chart.Axis{Label: capital(it.Metric) + " (" + unit(it.Unit) + "), " + better(it.Better), Scale: chart.Log}}
	if it.X == "size" {
		f.X.Label, f.X.Bytes = "Message size (bytes)", true
	}
	for i, s := range it.Series {
		series := chart.Series{Name: s.Label, Style: 5 + i}
		for _, p := range s.Points {
			at(p[0]).Printed[s.Label] = p[1]
			series.Points = append(series.Points, chart.Point{X: p[0], Y: p[1], Low: p[1], High: p[1],
				Tip: fmt.Sprintf("%s: %s %s", s.Label, chart.Number(p[1]), unit(it.Unit))})
		}
		f.Series = append(f.Series, series)
	}
	style := 0
	for _, e := range it.Experiments {
		factor, ok := paper.Factor(e.Case.Unit, it.Unit)
		if !ok || e.Case.X != it.X || len(e.Panels) == 0 {
			continue
		}
		for _, v := range e.Sides {
			name := e.Case.Name + " " + e.sideName(v)
			series := chart.Series{Name: name, Style: style % 5, Faint: e.variant(v).Emulated}
			for _, row := range e.Panels[0].Rows {
				c := &row.Cells[v]
				if c.N == 0 || math.IsNaN(row.Value) {
					continue
				}
				if l := lines[row.Value]; l != nil {
					l.Ours[name] = c.CI.Median * factor
				}
				series.Points = append(series.Points, chart.Point{X: row.Value, Y: c.CI.Median * factor, Low: c.CI.Low * factor, High: c.CI.High * factor, Tip: e.tip(row, v)})
			}
			if len(series.Points) > 0 {
				f.Series = append(f.Series, series)
				style++
			}
		}
	}
	for _, l := range lines {
		it.Lines = append(it.Lines, *l)
	}
	slices.SortFunc(it.Lines, func(a, b PaperLine) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	it.Figure = f
}

// ourNames returns the names of the variants that a series was measured with.
func (it *PaperItem) ourNames() []string {
	var out []string
	if it.Figure != nil {
		for _, s := range it.Figure.Series[len(it.Series):] {
			out = append(out, s.Name)
		}
	}
	return out
}

// measured reports whether any run repeats the item.
func (it *PaperItem) measured() bool { return len(it.Experiments) > 0 }

func (r *PaperReport) text(out *strings.Builder) {
	fmt.Fprintf(out, "\nbeside paper %s: %s\n", r.Paper.Name, r.Paper.Title)
	missing := 0
	for _, it := range r.Items {
		if !it.measured() {
			missing++
			continue
		}
		fmt.Fprintf(out, "\n%s (%s)\n", it.What, it.Where)
		t := terminal.NewTable("paper", "says", "this run")
		for _, c := range it.Claims {
			ours := c.Ours
			if len(ours) == 0 {
				ours = []string{"-"}
			}
			for i, o := range ours {
				if i == 0 {
					t.Row(c.Printed, c.Says, o)
				} else {
					t.Row(" ", " ", o)
				}
			}
		}
		printTable(out, t)
		if len(it.Lines) > 0 {
			it.textLines(out)
		}
	}
	if missing > 0 {
		fmt.Fprintf(out, "\n%s of this paper not measured by the run\n", words.Count(missing, "figure", "figures"))
	}
}

func (it *PaperItem) textLines(out *strings.Builder) {
	columns := []string{it.X}
	for _, s := range it.Series {
		columns = append(columns, s.Label)
	}
	names := it.ourNames()
	for _, n := range names {
		n = strings.TrimSuffix(strings.Replace(n, "("+Emulated+")", "(emulated)", 1), " (baseline)")
		columns = append(columns, terminal.Clean(n))
	}
	fmt.Fprintf(out, "  %s (%s), %s\n", capital(it.Metric), unit(it.Unit), better(it.Better))
	t := terminal.NewTable(columns...)
	for _, l := range it.Lines {
		cells := []any{chart.Bytes(l.X)}
		if it.X != "size" {
			cells[0] = chart.Number(l.X)
		}
		for _, s := range it.Series {
			cells = append(cells, numberOf(l.Printed, s.Label))
		}
		for _, n := range names {
			cells = append(cells, numberOf(l.Ours, n))
		}
		t.Row(cells...)
	}
	printTable(out, t)
}

func numberOf(m map[string]float64, key string) string {
	if v, ok := m[key]; ok {
		return chart.Number(v)
	}
	return "-"
}

// printTable writes a table, indented.
func printTable(out *strings.Builder, t *terminal.Table) {
	var b strings.Builder
	t.Print(&b)
	for _, line := range strings.Split(strings.TrimRight(b.String(), "\n"), "\n") {
		out.WriteString("  " + strings.TrimRight(line, " ") + "\n")
	}
}
