package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/stats"
)

// level is the level of the confidence intervals.
const level = 0.95

var noInterval = stats.Interval{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}

// Analyse computes the results of a run for the report.
func Analyse(d *Data, tolerance Tolerance) *RunReport {
	r := &RunReport{Data: d}
	for i := range d.Run.Cases {
		e := experiment(d, i)
		e.ID = fmt.Sprintf("x%d", i+1)
		e.judge(tolerance)
		r.Experiments = append(r.Experiments, e)
	}
	var notes []string
	r.Traffic, notes = sound(d.Run.Traffic)
	d.Notes = append(d.Notes, notes...)
	return r
}

func experiment(d *Data, index int) *Experiment {
	e := &Experiment{Case: d.Run.Cases[index], Run: d, Base: -1, Noise: math.NaN(), Drift: math.NaN()}
	values := d.Values[index]
	measured := make([]bool, len(d.Run.Variants))
	for _, p := range values.Points {
		for v := range p.Sides {
			measured[v] = measured[v] || len(p.Sides[v].Values)+p.Sides[v].Failed > 0
		}
	}
	for v, ok := range measured {
		if ok {
			e.Sides = append(e.Sides, v)
			if e.Base < 0 && !d.Run.Variants[v].Emulated && !d.Run.Variants[v].Foreign {
				e.Base = v
			}
		}
	}
	x := e.Case.X
	if x == "" {
		x = onlyParameter(values.Points)
	}
	panels := map[string]*Panel{}
	var noise, drift []float64
	for i, p := range values.Points {
		label := others(p.Point, x)
		panel := panels[label]
		if panel == nil {
			panel = &Panel{Label: label}
			panels[label] = panel
			e.Panels = append(e.Panels, panel)
		}
		row := e.row(p, p.Point[x], int64(i), &noise, &drift)
		panel.Rows = append(panel.Rows, row)
	}
	for _, panel := range e.Panels {
		sort.SliceStable(panel.Rows, func(i, j int) bool { return panel.Rows[i].Value < panel.Rows[j].Value })
	}
	if len(noise) > 0 {
		e.Noise = stats.Median(noise)
	}
	if len(drift) > 0 {
		e.Drift = stats.Median(drift)
	}
	return e
}

// onlyParameter returns the swept parameter if there is exactly one, else "".
func onlyParameter(points []*PointValues) string {
	name := ""
	for _, p := range points {
		for k := range p.Point {
			if name != "" && k != name {
				return ""
			}
			name = k
		}
	}
	return name
}

// others formats the parameters of a point except x, such as "grid=2x2 threads=4".
func others(p map[string]string, x string) string {
	if _, ok := p[x]; len(p) == 0 || ok && len(p) == 1 {
		return ""
	}
	var list []string
	for k, v := range p {
		if k != x {
			list = append(list, k+"="+v)
		}
	}
	sort.Strings(list)
	return strings.Join(list, " ")
}

func (e *Experiment) row(p *PointValues, x string, seed int64, noise, drift *[]float64) *Row {
	row := &Row{X: x, Value: math.NaN(), Cells: make([]Cell, len(p.Sides))}
	if v, err := strconv.ParseFloat(x, 64); err == nil && !math.IsInf(v, 0) {
		row.Value = v
	}
	for v := range p.Sides {
		side, cell := &p.Sides[v], &row.Cells[v]
		cell.N, cell.Failed, cell.Errors = len(side.Values), side.Failed, side.Errors
		cell.CI, cell.Ratio, cell.Equal, cell.Paired = stats.BootstrapCI(side.Values, level, seed), noInterval, noInterval, noInterval
		e.Samples += cell.N
		e.Failed += cell.Failed
		if cell.N == 0 {
			continue
		}
		if e.LeastReps == 0 || cell.N < e.LeastReps {
			e.LeastReps = cell.N
		}
		e.MostReps = max(e.MostReps, cell.N)
		variant := &e.Run.Run.Variants[v]
		if variant.Emulated {
			continue // even its noise has no meaning
		}
		e.Outliers += outliers(side.Values)
		if cell.N >= 3 && cell.CI.Median != 0 {
			*noise = append(*noise, math.Abs((cell.CI.High/2-cell.CI.Low/2)/cell.CI.Median))
			half := cell.N / 2
			first := stats.Median(side.Values[:half])
			if first != 0 {
				*drift = append(*drift, stats.Median(side.Values[cell.N-half:])/first-1)
			}
		}
		if e.Base < 0 {
			continue
		}
		if v != e.Base {
			cell.Ratio = e.performance(side.Values, p.Sides[e.Base].Values, seed)
			cell.Paired, cell.Word = verdict.Judge(verdict.Ratios(side.Repetitions, p.Sides[e.Base].Repetitions, e.Case.Better == "up"))
		}
		if b := e.equal(v); b >= 0 {
			cell.Equal = e.performance(side.Values, p.Sides[b].Values, seed)
		}
	}
	return row
}

// performance returns the performance of values relative to base: the ratio itself if more is better, its inverse if
// less is. It is NaN if a value is not positive.
func (e *Experiment) performance(values, base []float64, seed int64) stats.Interval {
	for _, list := range [][]float64{values, base} {
		for _, v := range list {
			if !(v > 0) {
				return noInterval
			}
		}
	}
	var r stats.Interval
	if e.Case.Better == "up" {
		r = stats.RatioCI(values, base, level, seed)
	} else {
		r = stats.RatioCI(base, values, level, seed)
	}
	if math.IsInf(r.Median, 0) || math.IsInf(r.High, 0) {
		return noInterval
	}
	return r
}

// equal returns the native variant with as many cores as the VM variant v, unless that is the baseline; -1: there is
// none.
func (e *Experiment) equal(v int) int {
	variants := e.Run.Run.Variants
	if variants[v].Kind != "vm" || variants[v].Cores == 0 {
		return -1
	}
	for _, o := range e.Sides {
		w := &variants[o]
		if o != e.Base && w.Kind == "native" && !w.Emulated && w.Cores == variants[v].Cores {
			return o
		}
	}
	return -1
}

// outliers counts the values beyond 1.5 interquartile ranges of the quartiles (Tukey).
func outliers(values []float64) int {
	if len(values) < 5 {
		return 0
	}
	s := slices.Clone(values)
	slices.Sort(s)
	q1, q3 := s[len(s)/4], s[len(s)*3/4]
	n := 0
	for _, v := range s {
		if v < q1-1.5*(q3-q1) || v > q3+1.5*(q3-q1) {
			n++
		}
	}
	return n
}

// judge sets the verdict of each variant except the baseline.
func (e *Experiment) judge(given Tolerance) {
	for _, v := range e.Sides {
		if v == e.Base {
			continue
		}
		variant := &e.Run.Run.Variants[v]
		found := &Verdict{Variant: v, State: None, Tolerance: toleranceOf(given, &e.Run.Run.Host, variant), Mean: math.NaN(), Equal: math.NaN(), Words: map[verdict.Word]int{}}
		e.Verdicts = append(e.Verdicts, found)
		if variant.Emulated {
			found.Why = Emulated
			if e.Case.Smaller != "" {
				found.Why += "; a smaller problem: " + e.Case.Smaller
			}
			continue
		}
		if e.Run.Run.Quick {
			found.Why = Quick
			continue
		}
		if variant.Foreign {
			found.Why = Foreign
			continue
		}
		if e.Base < 0 {
			found.Why = "nothing to compare it with"
			continue
		}
		if o := e.equal(v); o >= 0 {
			found.EqualTo = e.Run.Run.Variants[o].Label
		}
		e.count(found)
	}
}

// Emulated labels all times that were measured under emulation.
const Emulated = "emulated: timings are not meaningful"

// NotComparable is the headline of a report whose VMs were all emulated.
const NotComparable = "Not comparable: VMs were emulated (no KVM)"

// Foreign is why VMs that nearmetal did not make have no found.
const Foreign = "a VM that nearmetal did not make, on another machine"

// Quick is why a run with --quick has no found: with three repetitions an interval is their whole
// spread.
const Quick = "a quick run, with too few repetitions for one"

func (e *Experiment) count(found *Verdict) {
	var ratios, equals []float64
	worst := math.Inf(1)
	limit := 1 - found.Tolerance.Share
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			c := &row.Cells[found.Variant]
			if !math.IsNaN(c.Equal.Median) {
				equals = append(equals, c.Equal.Median)
			}
			if math.IsNaN(c.Ratio.Median) {
				continue
			}
			ratios = append(ratios, c.Ratio.Median)
			found.Words[c.Word]++
			switch judgeCell(c, limit) {
			case Within:
				found.Within++
			case Outside:
				found.Outside++
			}
			if c.Ratio.Low < limit-hair && c.Ratio.High >= limit {
				found.Across++
			}
			if c.Ratio.Median < worst {
				worst, found.Worst = c.Ratio.Median, row
			}
		}
	}
	found.Points = len(ratios)
	switch {
	case len(ratios) == 0:
		found.Why = "no point was measured of both"
		return
	case found.Outside > 0:
		found.State = Outside
	case found.Within == found.Points:
		found.State = Within
	default:
		found.State = Unclear
	}
	found.Mean = stats.GeoMean(ratios)
	if len(equals) > 0 {
		found.Equal = stats.GeoMean(equals)
	}
}

// hair is a margin so that a loss of exactly the tolerance is within it.
const hair = 1e-9

// judgeCell compares a cell's ratio with limit, the smallest accepted one.
func judgeCell(c *Cell, limit float64) State {
	switch {
	case math.IsNaN(c.Ratio.Median):
		return None
	case c.Ratio.Median >= limit-hair:
		return Within
	case c.Ratio.High < limit-hair:
		return Outside
	}
	return Unclear
}

// variant returns the description of a variant.
func (e *Experiment) variant(v int) *record.Variant { return &e.Run.Run.Variants[v] }
