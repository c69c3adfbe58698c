package report

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
	"nearmetal/internal/stats"
	"nearmetal/internal/words"
)

// claim compares one printed number with the corresponding results of the runs.
func (it *PaperItem) claim(c *paper.Claim) PaperClaim {
	u := it.claimUnit(c)
	out := PaperClaim{Printed: printed(c, u), Says: c.Says}
	if c.Measure == "none" || c.Measure == "peak" {
		return out
	}
	if c.Measure == "mean" {
		out.Ours = it.meanGain(c)
		return out
	}
	for _, e := range it.Experiments {
		if !about(e.Case.Name, c.Case) {
			continue
		}
		var ours []string
		switch {
		case len(c.Values) > 0:
			ours = e.values(c, u)
		case len(c.Times) > 0:
			ours = e.times(c)
		case len(c.Percent) > 0:
			ours = e.resultsFor(c)
		}
		for _, line := range ours {
			if len(it.Experiments) > 1 {
				line = e.Case.Name + ", " + line
			}
			out.Ours = append(out.Ours, line)
		}
	}
	return out
}

// about reports whether a claim is about a case: whether word is a separate word in the case's name.
func about(name, word string) bool {
	letter := func(b byte) bool { return 'a' <= b && b <= 'z' }
	name = strings.ToLower(name)
	for i := 0; i+len(word) <= len(name); i++ {
		end := i + len(word)
		if name[i:end] == word && (i == 0 || !letter(name[i-1])) && (end == len(name) || !letter(name[end])) {
			return true
		}
	}
	return word == ""
}

// printed formats the number of a claim.
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
	case len(c.Times) > 0:
		return number(c.Times, "×", false)
	}
	return "—"
}

// resultsFor returns a run's results for a claim, one line for each variant that the claim is about.
func (e *Experiment) resultsFor(c *paper.Claim) []string {
	var out []string
	for _, v := range e.Sides {
		variant := e.variant(v)
		kind := c.Kind
		if kind == "" {
			kind = "vm"
		}
		if v == e.Base || variant.Kind != kind || variant.Foreign || c.Of == "gain" && len(variant.Ablated) > 0 {
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

// values returns a run's results for a claim of a value in a unit, one line for each variant that the claim is about.
func (e *Experiment) values(c *paper.Claim, u string) []string {
	factor, ok := paper.Factor(e.Case.Unit, u)
	if !ok {
		return nil
	}
	var out []string
	for _, v := range e.Sides {
		variant := e.variant(v)
		if variant.Kind != "vm" || variant.Foreign {
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

// percentOf formats a ratio of performances as a change of a claim's quantity.
func percentOf(of string, q float64) string {
	if of == "time" {
		return Delta(1/q) + " time"
	}
	return Delta(q)
}

// ratioAt returns a variant's ratio at a point, or the worst ratio if the point is empty; the row is nil if it was
// not measured.
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

// isAt reports whether a row is at a point, by the parameters that the point names.
func (e *Experiment) isAt(p *Panel, row *Row, point map[string]string) bool {
	if point == nil {
		return true
	}
	for k, want := range point {
		if !among(e.parameter(p, row, k), want) {
			return false
		}
	}
	return len(point) > 0
}

// parameter returns the value of a parameter at a row; "": none. For a run on a single number of hosts, that number
// is the value of nodes.
func (e *Experiment) parameter(p *Panel, row *Row, name string) string {
	if name == e.Case.X {
		return row.X
	}
	for _, f := range strings.Fields(p.Label) {
		if v, ok := strings.CutPrefix(f, name+"="); ok {
			return v
		}
	}
	if name == "nodes" {
		return strconv.Itoa(max(1, e.Case.Hosts))
	}
	return ""
}

// among reports whether a value equals that of a claim's point, or is in its range, such as "8 to 64".
func among(value, want string) bool {
	from, to, isRange := strings.Cut(want, " to ")
	if !isRange {
		return value == want
	}
	v, err := strconv.ParseFloat(value, 64)
	low, err1 := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	return errors.Join(err, err1, err2) == nil && low <= v && v <= high
}

// better returns the highest ratio of one variant's performance to another's at a claim's point, and its row.
func (e *Experiment) better(point map[string]string, v, o int) (float64, *Row) {
	best, at := math.Inf(-1), (*Row)(nil)
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			a, b := row.Cells[v].CI.Median, row.Cells[o].CI.Median
			if !(a > 0) || !(b > 0) || len(point) > 0 && !e.isAt(p, row, point) {
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
	return best, at
}

// without lists the variants that lack only the switch name, with which v is compared.
func (e *Experiment) without(name string) []int {
	var out []int
	for _, o := range e.Sides {
		if w := e.variant(o); len(w.Ablated) == 1 && w.Ablated[0] == name && !w.Emulated {
			out = append(out, o)
		}
	}
	return out
}

// gain compares a VM with the VM that lacks a switch.
func (e *Experiment) gain(c *paper.Claim, v int) []string {
	var out []string
	for _, o := range e.without(c.Switch) {
		if best, at := e.better(c.Point, v, o); at != nil {
			out = append(out, fmt.Sprintf("%s against %s: %s at most%s", e.variant(v).Label, e.variant(o).Label, Delta(best), e.where(at)))
		}
	}
	return out
}

// where formats a row's position after a number; "": the row has none.
func (e *Experiment) where(row *Row) string {
	if x := e.xText(row); x != "" {
		return ", at " + x
	}
	return ""
}

// times compares nearmetal's VMs with those of a cloud.
func (e *Experiment) times(c *paper.Claim) []string {
	var out []string
	for _, v := range e.Sides {
		ours := e.variant(v)
		if ours.Kind != "vm" || ours.Foreign || len(ours.Ablated) > 0 {
			continue
		}
		for _, o := range e.Sides {
			theirs := e.variant(o)
			if !theirs.Foreign || ours.Emulated || theirs.Emulated {
				continue
			}
			if best, at := e.better(c.Point, v, o); at != nil {
				out = append(out, fmt.Sprintf("%s against %s: %s × at most%s", ours.Label, theirs.Label, chart.Number(best), e.where(at)))
			}
		}
	}
	return out
}

// meanGain returns the geometric mean of a switch's gain at a claim's point, over the programs of a figure.
func (it *PaperItem) meanGain(c *paper.Claim) []string {
	gains := map[string][]float64{}
	var pairs []string
	for _, e := range it.Experiments {
		for _, v := range e.Sides {
			if w := e.variant(v); w.Kind != "vm" || w.Foreign || w.Emulated || len(w.Ablated) > 0 {
				continue
			}
			for _, o := range e.without(c.Switch) {
				best, at := e.better(c.Point, v, o)
				if at == nil {
					continue
				}
				pair := e.variant(v).Label + " against " + e.variant(o).Label
				if gains[pair] == nil {
					pairs = append(pairs, pair)
				}
				gains[pair] = append(gains[pair], best)
			}
		}
	}
	var out []string
	for _, pair := range pairs {
		out = append(out, fmt.Sprintf("%s: %s on the geometric mean of %s", pair, Delta(stats.GeoMean(gains[pair])), words.Count(len(gains[pair]), "program", "programs")))
	}
	return out
}
