package report

import (
	"html"
	"html/template"
	"slices"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/words"
)

type paperView struct {
	Name, Title, By, On string
	MissingTitle        string
	Items               []paperItemView
	Missing             []*PaperItem
	MissingPlots        []paperPlotView // printed values over a parameter
}

type paperItemView struct {
	What, Where, Repeats, TableName string
	Drawn                           string
	Unlike                          []string
	Table                           template.HTML
	Columns                         []columnView
	Plots                           []paperPlotView
	Claims                          []PaperClaim
}

// columnView is the table of a further column of a listing.
type columnView struct {
	Name  string
	Table template.HTML
}

// paperPlotView is one picture with its legend.
type paperPlotView struct {
	Caption string
	Legend  []keyView
	SVG     template.HTML
}

func (r *PaperReport) view() (*paperView, error) {
	title := "Not measured by this run"
	if !slices.ContainsFunc(r.Items, (*PaperItem).measured) {
		title = "What there is to repeat"
	}
	v := &paperView{MissingTitle: title, Name: r.Paper.Name, Title: r.Paper.Title, By: r.Paper.By, On: r.Paper.On}
	for _, it := range r.Items {
		if !it.measured() {
			v.Missing = append(v.Missing, it)
			plots, err := paperPlots(it.Plots)
			if err != nil {
				return nil, err
			}
			for i := range plots {
				where, _, _ := strings.Cut(it.Where, " (") // without the remark, which is in the table
				plots[i].Caption = heading(it.What) + ", " + where
			}
			v.MissingPlots = append(v.MissingPlots, plots...)
			continue
		}
		item := paperItemView{What: heading(it.What), Where: it.Where, Drawn: it.Drawn, Unlike: it.Unlike, Claims: it.Claims}
		var names []string
		for _, e := range it.Experiments {
			names = append(names, e.Case.Name)
		}
		item.Repeats = strings.Join(names, ", ")
		var err error
		if item.Plots, err = paperPlots(it.Plots); err != nil {
			return nil, err
		}
		if it.Figure != nil {
			item.TableName = "Table of " + words.Count(len(it.Lines), "printed point", "printed points") + ", in " + unit(it.Unit)
			item.Table = it.table()
		}
		for _, c := range it.Columns {
			item.Columns = append(item.Columns, columnView{capital(c.Metric) + ", in " + unit(c.Unit), c.table()})
		}
		v.Items = append(v.Items, item)
	}
	return v, nil
}

// paperPlots draws pictures for the page; several have captions.
func paperPlots(list []*chart.Figure) ([]paperPlotView, error) {
	var out []paperPlotView
	for _, f := range list {
		plot := paperPlotView{}
		var err error
		if plot.SVG, err = inline(f.Scene()); err != nil {
			return nil, err
		}
		if len(list) > 1 {
			plot.Caption = f.Title
		}
		for _, s := range f.Series {
			key, err := inline(chart.Key(s.Style, s.Faint, f.Bars))
			if err != nil {
				return nil, err
			}
			plot.Legend = append(plot.Legend, keyView{key, s.Name})
		}
		out = append(out, plot)
	}
	return out, nil
}

func (it *PaperItem) table() template.HTML {
	var b strings.Builder
	b.WriteString(`<table class="n"><thead><tr><th>` + html.EscapeString(it.X))
	names := it.ourNames()
	for _, s := range it.Series {
		b.WriteString("<th>" + html.EscapeString(s.Label))
	}
	for _, n := range names {
		b.WriteString("<th>" + html.EscapeString(n))
	}
	b.WriteString("</thead><tbody>")
	for _, l := range it.Lines {
		x := chart.Number(l.X)
		if it.X == "size" {
			x = chart.Bytes(l.X)
		}
		b.WriteString("<tr><td>" + x)
		for _, s := range it.Series {
			b.WriteString("<td>" + numberOf(l.Printed, s.Label))
		}
		for _, n := range names {
			b.WriteString("<td>" + numberOf(l.Ours, n))
		}
	}
	b.WriteString("</tbody></table>")
	return template.HTML(b.String())
}

// heading capitalizes the first letter, except in the name of a program such as ib_send_bw.
func heading(s string) string {
	if first, _, _ := strings.Cut(s, " "); strings.Contains(first, "_") {
		return s
	}
	return capital(s)
}
