package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
)

// claim answers one printed number by what the runs have in its place.
func (it *PaperItem) claim(c *paper.Claim) PaperClaim {
	out := PaperClaim{Printed: printed(c, it.Unit), Says: c.Says}
	if c.Measure == "none" {
		return out
	}
	for _, e := range it.Experiments {
		if c.Case != "" && !strings.Contains(strings.ToLower(e.Case.Name), c.Case) {
			continue
		}
		if len(c.Values) > 0 {
			out.Ours = append(out.Ours, e.values(c, it.Unit)...)
		} else {
			out.Ours = append(out.Ours, e.ours(c)...)
		}
	}
	return out
}

// printed writes the number of a claim.
func printed(c *paper.Claim, u string) string {
	number := func(list []float64, unit string, sign bool) string {
		var parts []string
		for _, v := range list {
			s := chart.Number(v)
			if sign && v > 0 {
				s = "+" + s
			}
			parts = append(parts, strings.Replace(s, "-", "−", 1))
		}
		return strings.Join(parts, " to ") + " " + unit
	}
	switch {
	case len(c.Percent) > 0:
		what := map[string]string{"time": " time", "performance": "", "gain": " gain"}[c.Of]
		return number(c.Percent, "%", true) + what
	case len(c.Values) > 0:
		return number(c.Values, unit(u), false)
	}
	return "—"
}

// ours returns what a run has for a claim, one line for each variant that it is about.
func (e *Experiment) ours(c *paper.Claim) []string {
	var out []string
	for _, v := range e.Sides {
		variant := e.variant(v)
		kind := c.Kind
		if kind == "" {
			kind = "vm"
		}
		if v == e.Base || variant.Kind != kind || c.Of == "gain" && len(variant.Ablated) > 0 {
			continue
		}
		if variant.Emulated {
			out = append(out, variant.Label+": "+Emulated)
			continue
		}
		if c.Of == "gain" {
			out = append(out, e.gain(c, v)...)
			continue
		}
		text := ""
		if q, row := e.ratioAt(c.Point, v); row != nil {
			text = percentOf(c.Of, q) + " at " + e.xText(row)
		}
		if q, row := e.ratioAt(nil, v); row != nil {
			if text != "" {
				text += ", "
			}
			text += percentOf(c.Of, q) + " at worst"
			if x := e.xText(row); x != "" {
				text += " (" + x + ")"
			}
		}
		if text != "" {
			out = append(out, variant.Label+": "+text)
		}
	}
	return out
}

// values returns what a run has for a claim of a value in a unit, one line for each variant
// that it is about.
func (e *Experiment) values(c *paper.Claim, u string) []string {
	factor, ok := paper.Factor(e.Case.Unit, u)
	if !ok {
		return nil
	}
	var out []string
	for _, v := range e.Sides {
		variant := e.variant(v)
		if variant.Kind != "vm" {
			continue
		}
		if variant.Emulated {
			out = append(out, variant.Label+": "+Emulated)
			continue
		}
		best, at := math.NaN(), (*Row)(nil)
		for _, p := range e.Panels {
			for _, row := range p.Rows {
				got := row.Cells[v].CI.Median
				if c.Measure == "difference" {
					if e.Base < 0 {
						continue
					}
					got -= row.Cells[e.Base].CI.Median
				}
				if row.Cells[v].N == 0 || math.IsNaN(got) {
					continue
				}
				if up := c.Measure == "" && e.Case.Better == "up"; at == nil || up && got > best || !up && got < best {
					best, at = got, row
				}
			}
		}
		if at == nil {
			continue
		}
		words := map[string]string{"up": " at most", "down": " at least"}[e.Case.Better]
		if c.Measure == "difference" {
			words = " more than " + e.variant(e.Base).Label + " at least"
		}
		text := strings.Replace(chart.Number(best*factor), "-", "−", 1) + " " + unit(u) + words
		if x := e.xText(at); x != "" {
			text += ", at " + x
		}
		out = append(out, variant.Label+": "+text)
	}
	return out
}

// percentOf writes a ratio of performances as a change of what a claim is about.
func percentOf(of string, q float64) string {
	if of == "time" {
		return Delta(1/q) + " time"
	}
	return Delta(q)
}

// ratioAt returns a variant's ratio at a point, at worst if the point is empty; nil: it was not measured.
func (e *Experiment) ratioAt(point map[string]string, v int) (float64, *Row) {
	worst, at := math.Inf(1), (*Row)(nil)
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			q := row.Cells[v].Ratio.Median
			if math.IsNaN(q) || !e.isAt(p, row, point) {
				continue
			}
			if q < worst {
				worst, at = q, row
			}
		}
	}
	return worst, at
}

// isAt reports whether a row lies at a point: of the parameters that it names.
func (e *Experiment) isAt(p *Panel, row *Row, point map[string]string) bool {
	if point == nil {
		return true
	}
	fields := strings.Fields(p.Label)
	for k, want := range point {
		if k == e.Case.X && row.X == want || slices.Contains(fields, k+"="+want) {
			continue
		}
		return false
	}
	return len(point) > 0
}

// gain compares a VM with the one that a switch is taken away from.
func (e *Experiment) gain(c *paper.Claim, v int) []string {
	var out []string
	for _, o := range e.Sides {
		w := e.variant(o)
		if len(w.Ablated) != 1 || w.Ablated[0] != c.Switch || w.Emulated {
			continue
		}
		best, at := math.Inf(-1), (*Row)(nil)
		for _, p := range e.Panels {
			for _, row := range p.Rows {
				a, b := row.Cells[v].CI.Median, row.Cells[o].CI.Median
				if !(a > 0) || !(b > 0) || len(c.Point) > 0 && !e.isAt(p, row, c.Point) {
					continue
				}
				q := a / b
				if e.Case.Better != "up" {
					q = b / a
				}
				if q > best {
					best, at = q, row
				}
			}
		}
		if at != nil {
			out = append(out, fmt.Sprintf("%s against %s: %s at most, at %s", e.variant(v).Label, w.Label, Delta(best), e.xText(at)))
		}
	}
	return out
}
