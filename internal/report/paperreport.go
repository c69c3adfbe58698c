package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
	"nearmetal/internal/words"
)

// PaperReport compares a paper with the measurements.
type PaperReport struct {
	Paper *paper.Paper
	Items []*PaperItem
}

// PaperItem is one figure of the paper with the experiments that repeat it.
type PaperItem struct {
	*paper.Item
	Experiments []*Experiment
	Columns     []*PaperItem // further columns of a listing, each with its measurements
	Unlike      []string     // differences of the runs from the paper, one line per experiment that has any
	Ways        []string     // commands that measure it; empty: nearmetal does not measure it
	Claims      []PaperClaim
	Lines       []PaperLine
	Figure      *chart.Figure // the paper's values and the run's; nil: there are none
	Plots       []*chart.Figure
}

// PaperClaim is a printed number with the corresponding results of the runs.
type PaperClaim struct {
	Printed string   `json:"printed"`
	Says    string   `json:"says"`
	Ours    []string `json:"ours,omitempty"` // one per variant; empty: not measured
}

// PaperLine is a point of a printed series with the run's values.
type PaperLine struct {
	X       float64
	Printed map[string]float64 // by the series' label
	Ours    map[string]float64 // by the variant's name, in the paper's unit
}

// besides compares runs with a paper. way returns the commands that repeat an item; nil: none is known.
func besides(p *paper.Paper, runs []*RunReport, way func(paper.Key) []string) *PaperReport {
	r := &PaperReport{Paper: p}
	for i := range p.Items {
		own, more := p.Items[i].Columns()
		item := &PaperItem{Item: &own}
		for c := range more {
			item.Columns = append(item.Columns, &PaperItem{Item: &more[c]})
		}
		key := paper.Key{Paper: p.Name, Item: item.Key}
		if way != nil {
			item.Ways = way(key)
		}
		for _, run := range runs {
			for _, e := range run.Experiments {
				if e = e.on(item.Hosts); e == nil || !repeats(e, p.Name, item.Item) {
					continue
				}
				if at := slices.IndexFunc(item.Columns, func(c *PaperItem) bool { return c.Metric == e.Case.Metric }); at >= 0 {
					item.Columns[at].Experiments = append(item.Columns[at].Experiments, e)
					continue
				}
				if item.secondary(e, run) {
					continue
				}
				item.Experiments = append(item.Experiments, e)
				if text := e.unlike(p.Name, item.Hosts); text != "" {
					item.Unlike = append(item.Unlike, e.Case.Name+": "+text)
				}
			}
		}
		for j := range item.Item.Claims {
			item.Claims = append(item.Claims, item.claim(&item.Item.Claims[j]))
		}
		item.series()
		for _, c := range item.Columns {
			c.series()
		}
		item.Plots = item.plots()
		r.Items = append(r.Items, item)
	}
	return r
}

// secondary reports whether an experiment is a further output of a program whose main output is the item's metric.
func (it *PaperItem) secondary(e *Experiment, run *RunReport) bool {
	if it.Metric == "" || e.Case.Metric == it.Metric {
		return false
	}
	return slices.ContainsFunc(run.Experiments, func(o *Experiment) bool {
		return o.Case.Metric == it.Metric && strings.HasPrefix(e.Case.Name, o.Case.Name+".")
	})
}

// repeats reports whether an experiment repeats an item: its case names the item or is named by it.
func repeats(e *Experiment, name string, it *paper.Item) bool {
	if slices.Contains(paper.Keys(e.Case.Seed), paper.Key{Paper: name, Item: it.Key}) {
		return true
	}
	return slices.Contains(it.Cases, e.Case.Name)
}

// on returns the experiment with only the rows that are comparable with a figure of these numbers of hosts: results
// between hosts are never compared with results on one host. nil: there are none.
func (e *Experiment) on(hosts []int) *Experiment {
	if len(hosts) == 0 {
		return e
	}
	one, several := slices.Contains(hosts, 1), slices.Max(hosts) > 1
	out := *e
	out.Panels = nil
	for _, p := range e.Panels {
		kept := Panel{Label: p.Label}
		for _, row := range p.Rows {
			if n, err := strconv.Atoi(e.parameter(p, row, "nodes")); err == nil && (n == 1 && one || n > 1 && several) {
				kept.Rows = append(kept.Rows, row)
			}
		}
		if kept.Rows != nil {
			out.Panels = append(out.Panels, &kept)
		}
	}
	if out.Panels == nil {
		return nil
	}
	return &out
}

// unlike returns the differences of an experiment from a paper: hosts, and parameters of its suite.
func (e *Experiment) unlike(name string, hosts []int) string {
	var list, found []string
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			n := e.parameter(p, row, "nodes")
			if v, err := strconv.Atoi(n); err == nil && !slices.Contains(hosts, v) && !slices.Contains(found, n) {
				found = append(found, n)
			}
		}
	}
	if len(hosts) > 0 && len(found) > 0 {
		var theirs []string
		for _, n := range hosts {
			theirs = append(theirs, strconv.Itoa(n))
		}
		list = append(list, fmt.Sprintf("hosts %s instead of %s", strings.Join(found, ", "), strings.Join(theirs, ", ")))
	}
	if d := e.Case.Differs[name]; d != "" {
		list = append(list, d)
	}
	return strings.Join(list, "; ")
}

// series combines the run's values with the printed ones and draws both.
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
	var missing []*PaperItem
	for _, it := range r.Items {
		if !it.measured() {
			missing = append(missing, it)
			continue
		}
		fmt.Fprintf(out, "\n%s (%s)\n", it.What, it.Where)
		for _, line := range it.Unlike {
			fmt.Fprintln(out, "  unlike the paper: "+text.Clean(line))
		}
		if it.Drawn != "" {
			fmt.Fprintln(out, "  drawn there, and not read off: "+it.Drawn)
		}
		it.textClaims(out)
		if len(it.Lines) > 0 {
			it.textLines(out)
		}
		if len(it.Columns) > 0 {
			fmt.Fprintf(out, "  printed too, and in the page: %s\n", it.columnNames())
		}
	}
	switch {
	case len(missing) == len(r.Items):
		fmt.Fprintln(out, "\nwhat there is to repeat:")
	case len(missing) > 0:
		fmt.Fprintf(out, "\nof this paper %s not measured by the run:\n", words.Count(len(missing), "figure or table is", "figures and tables are"))
	}
	for _, it := range missing {
		it.textMissing(out)
	}
}

// textClaims writes the printed numbers with the runs' results.
func (it *PaperItem) textClaims(out *strings.Builder) {
	t := terminal.NewTable("paper", "says", "this run")
	for _, c := range it.Claims {
		ours := c.Ours
		if len(ours) == 0 {
			ours = []string{"-"}
		}
		for i, o := range ours {
			if i == 0 {
				t.Row(c.Printed, c.Says, text.Clean(o))
			} else {
				t.Row(" ", " ", text.Clean(o))
			}
		}
	}
	printTable(out, t)
}

// textMissing writes an item that no run repeats: its printed numbers, and how to measure it.
func (it *PaperItem) textMissing(out *strings.Builder) {
	fmt.Fprintf(out, "  %s: %s\n", it.Where, it.What)
	for _, c := range it.Claims {
		text := c.Says
		if c.Printed != "—" {
			text = c.Printed + ": " + text
		}
		fmt.Fprintln(out, "    prints: "+text)
	}
	for _, s := range it.Series {
		fmt.Fprintf(out, "    prints: %s, %s in %s\n", s.Label, words.Count(len(s.Points), "value", "values"), unit(it.Unit))
	}
	if len(it.Columns) > 0 {
		fmt.Fprintln(out, "    prints: "+it.columnNames())
	}
	if it.Drawn != "" {
		fmt.Fprintln(out, "    draws: "+it.Drawn)
	}
	for _, w := range it.Ways {
		fmt.Fprintln(out, "    "+w)
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
		columns = append(columns, text.Clean(n))
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

// columnNames lists the further columns of a listing.
func (it *PaperItem) columnNames() string {
	var list []string
	for _, c := range it.Columns {
		list = append(list, c.Metric)
	}
	return strings.Join(list, ", ")
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
