package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/words"
)

// tableBudget is the total size of all tables of a page, in bytes, so that a page is smaller than 10 MB. A hundred
// thousand points need about half of it.
const tableBudget = 8 << 20

// table returns the name and the HTML of an experiment's table. Rows that exceed budget are omitted, which the name
// states. Cells have no closing tags, as HTML allows, which halves the size of a large page.
func (e *Experiment) table(budget *int) (string, template.HTML) {
	if e.Samples+e.Failed == 0 {
		return "", ""
	}
	var b strings.Builder
	b.WriteString(`<table class="n"><thead><tr><th>` + html.EscapeString(e.xHeading()))
	for _, v := range e.Sides {
		b.WriteString("<th>" + html.EscapeString(e.variant(v).Label+", "+unit(e.Case.Unit)))
		if e.variant(v).Emulated {
			b.WriteString("<br>(emulated)")
		}
		if e.hasRatio(v) {
			b.WriteString("<th>ratio<th>delta")
		}
		if e.Case.Kind == "scaling" && !e.variant(v).Emulated {
			b.WriteString("<th>efficiency")
		}
	}
	b.WriteString("</thead><tbody>")
	rows, left := 0, 0
	for _, p := range e.Panels {
		for i, row := range p.Rows {
			if b.Len() > *budget {
				left++
				continue
			}
			rows++
			first := e.xText(row)
			if p.Label != "" {
				first = strings.TrimSpace(first + " " + p.Label)
			}
			b.WriteString("<tr><td>" + html.EscapeString(first))
			for _, v := range e.Sides {
				e.cells(&b, p, i, v)
			}
		}
	}
	b.WriteString("</tbody></table>")
	*budget -= b.Len()
	name := "Table of " + words.Count(rows, "point", "points") + ", medians with their 95 % intervals"
	if left > 0 {
		name = fmt.Sprintf("Table of the first %d of %d points, medians with their 95 %% intervals (all are in %s/samples.jsonl)", rows, rows+left, e.Run.Run.ID)
	}
	return name, template.HTML(b.String())
}

func (e *Experiment) xHeading() string {
	if e.Case.X == "" {
		return "point"
	}
	return strings.ReplaceAll(e.Case.X, "_", " ")
}

// hasRatio reports whether a variant is compared with the baseline.
func (e *Experiment) hasRatio(v int) bool {
	return e.Base >= 0 && v != e.Base && !e.variant(v).Emulated
}

func (e *Experiment) cells(b *strings.Builder, p *Panel, i, v int) {
	c := &p.Rows[i].Cells[v]
	switch {
	case c.N > 0:
		if e.variant(v).Emulated {
			b.WriteString("<td class=e>")
		} else {
			b.WriteString("<td>")
		}
		b.WriteString(chart.Number(c.CI.Median))
		if c.CI.Low != c.CI.High {
			b.WriteString(" <span class=i>" + chart.Number(c.CI.Low) + "–" + chart.Number(c.CI.High) + "</span>")
		}
		if c.Failed > 0 {
			fmt.Fprintf(b, " <span class=i>%d failed</span>", c.Failed)
		}
	case c.Failed > 0:
		b.WriteString("<td class=e>failed")
	default:
		b.WriteString("<td>")
	}
	if e.hasRatio(v) {
		if math.IsNaN(c.Ratio.Median) {
			b.WriteString("<td><td>")
		} else {
			b.WriteString("<td>" + trim3(c.Ratio.Median) + "<td>" + Delta(c.Ratio.Median))
		}
	}
	if e.Case.Kind == "scaling" && !e.variant(v).Emulated {
		b.WriteString("<td>")
		if eff := e.efficiency(p, i, v); !math.IsNaN(eff) {
			fmt.Fprintf(b, "%.1f %%", eff*100)
		}
	}
}
