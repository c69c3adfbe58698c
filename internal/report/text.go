package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/terminal"
	"nearmetal/internal/text"
)

// mostTextRows is the maximum number of points of a table in the terminal; longer tables are thinned evenly.
const mostTextRows = 24

// Text writes the report for a terminal: for each experiment the verdict, a table and a line of ratios. colour
// decorates verdicts.
func (r *Report) Text(w io.Writer, colour bool) error {
	out := &strings.Builder{}
	for i, run := range r.Runs {
		if i > 0 {
			out.WriteByte('\n')
		}
		run.text(out, colour)
		if err := run.textTraffic(out, colour); err != nil {
			return err
		}
	}
	if r.Paper != nil {
		r.Paper.text(out)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (r *RunReport) text(out *strings.Builder, colour bool) {
	run := &r.Run
	head := "run " + run.ID
	if run.Host.Name != "" {
		head += " on " + run.Host.Name
	}
	if run.Host.CPU != "" {
		head += ", " + run.Host.CPU
	}
	fmt.Fprintln(out, terminal.Paint(text.Clean(head), terminal.Bold, colour))
	for _, line := range r.Overall() {
		fmt.Fprintln(out, terminal.Paint(text.Clean(line), terminal.Bold, colour))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(out, "  "+terminal.Paint("note: "+text.Clean(note), terminal.Yellow, colour))
	}
	for _, t := range r.terms() {
		fmt.Fprintln(out, "  "+text.Clean(t.Name+": "+t.Means))
	}
	for _, e := range r.Experiments {
		out.WriteByte('\n')
		e.text(out, colour)
	}
}

func (e *Experiment) text(out *strings.Builder, colour bool) {
	title := e.title()
	if e.Case.Program != "" {
		title += " (" + e.Case.Program + ")"
	}
	fmt.Fprintln(out, terminal.Paint(text.Clean(title), terminal.Bold, colour))
	for _, v := range e.Verdicts {
		c := map[State]terminal.Colour{Within: terminal.Green, Outside: terminal.Red, Unclear: terminal.Yellow, None: terminal.Dim}[v.State]
		found, detail := e.words(v)
		fmt.Fprintln(out, "  "+terminal.Paint(text.Clean(found), c, colour))
		for _, line := range strings.Split(detail, "; ") {
			if line != "" {
				fmt.Fprintln(out, "    "+text.Clean(line))
			}
		}
	}
	if e.Samples > 0 {
		fmt.Fprintln(out, "  "+text.Clean(e.yLabel()))
	}
	for _, p := range e.Panels {
		if p.Label != "" {
			fmt.Fprintln(out, "  "+text.Clean(p.Label))
		}
		e.textTable(out, p)
	}
	fmt.Fprintln(out, "  "+terminal.Paint(text.Clean(e.Method()), terminal.Dim, colour))
}

func (e *Experiment) textTable(out *strings.Builder, p *Panel) {
	x := e.Case.X
	if x == "" {
		x = "point"
	}
	columns := []string{text.Clean(x)}
	for _, v := range e.Sides {
		name := text.Clean(e.variant(v).Label)
		columns = append(columns, name)
		if v != e.Base && !e.variant(v).Emulated && e.Base >= 0 {
			columns = append(columns, "ratio")
		}
		if e.variant(v).Emulated {
			columns[len(columns)-1] += " (emulated)"
		}
	}
	t := terminal.NewTable(columns...)
	step := (len(p.Rows) + mostTextRows - 1) / mostTextRows
	for i := 0; i < len(p.Rows); i += max(step, 1) {
		r := p.Rows[i]
		cells := []any{e.xText(r)}
		for _, v := range e.Sides {
			c := &r.Cells[v]
			value := chart.Number(c.CI.Median)
			if c.N == 0 {
				value = "-"
				if c.Failed > 0 {
					value = "failed"
				}
			}
			cells = append(cells, value)
			if v != e.Base && !e.variant(v).Emulated && e.Base >= 0 {
				cells = append(cells, strings.ReplaceAll(trim3(c.Ratio.Median), "—", "-"))
			}
		}
		t.Row(cells...)
	}
	printTable(out, t)
	if step > 1 {
		fmt.Fprintf(out, "  every %s of %d points; the page and --json have all\n", ordinal(step), len(p.Rows))
	}
	for _, v := range e.Sides {
		if line := spark(p, v); line != "" {
			fmt.Fprintf(out, "  ratio of %s  %s\n", text.Clean(e.variant(v).Label), line)
		}
	}
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

// spark draws the ratios of a panel as a line of blocks, from its smallest to its largest.
func spark(p *Panel, v int) string {
	const blocks = "▁▂▃▄▅▆▇█"
	const most = 60
	var list []float64
	for _, r := range p.Rows {
		if q := r.Cells[v].Ratio.Median; !math.IsNaN(q) {
			list = append(list, q)
		}
	}
	if len(list) < 3 {
		return ""
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, q := range list {
		low, high = math.Min(low, q), math.Max(high, q)
	}
	var b strings.Builder
	step := (len(list) + most - 1) / most
	for i := 0; i < len(list); i += step {
		n := 3
		if high > low {
			n = int((list[i] - low) / (high - low) * 7.999)
		}
		b.WriteRune([]rune(blocks)[n])
	}
	return fmt.Sprintf("%s  %s to %s", b.String(), trim3(low), trim3(high))
}
