package chart

import (
	"math"
	"slices"
	"strconv"
)

// tick is a labelled position on an axis; one without a label has only a grid line.
type tick struct {
	value float64
	label string
}

// span is the visible part of an axis, and its position in the picture.
type span struct {
	axis     *Axis
	low, hi  float64 // values
	from, to float64 // positions of low and hi
	edge     float64 // start of the axis: before from if the axis is broken
	zero     float64 // position of the value 0 on a broken axis
}

// known reports whether v can be drawn on a.
func (a *Axis) known(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && (a.Scale == Linear || v > 0 || v == 0 && a.broken())
}

// broken reports whether the value 0 has a position of its own, before a break in the axis.
func (a *Axis) broken() bool { return a.Zero && a.Scale != Linear && len(a.Names) == 0 }

func (p *span) at(v float64) float64 {
	if v == 0 && p.axis.broken() {
		return p.zero
	}
	a, b := p.low, p.hi
	if p.axis.Scale != Linear {
		v, a, b = math.Log10(v), math.Log10(a), math.Log10(b)
	}
	// Halved, so that the difference of values near the largest float does not overflow.
	d := (v/2 - a/2) / (b/2 - a/2)
	return p.from + math.Max(-0.5, math.Min(1.5, d))*(p.to-p.from)
}

// fit returns the range of an axis that includes all values.
func (a *Axis) fit(values []float64, bars bool) (low, hi float64) {
	low, hi = math.Inf(1), math.Inf(-1)
	for _, v := range slices.Concat(values, a.Show) {
		if a.known(v) && (v != 0 || !a.broken()) {
			low, hi = math.Min(low, v), math.Max(hi, v)
		}
	}
	if low > hi {
		low, hi = 1, 10
		if a.Scale == Linear {
			low, hi = 0, 1
		}
		return low, hi
	}
	if len(a.Names) > 0 {
		return -0.5, float64(len(a.Names)) - 0.5
	}
	if a.Scale != Linear {
		if hi/low < 1.2 {
			low, hi = low/2, math.Min(hi*2, math.MaxFloat64)
		}
		pad := math.Pow(hi/low, 0.03)
		if math.IsInf(pad, 0) {
			pad = 2
		}
		return math.Max(low/pad, math.SmallestNonzeroFloat64), math.Min(hi*pad, math.MaxFloat64)
	}
	if bars && low > 0 {
		low = 0
	}
	if bars && hi < 0 {
		hi = 0
	}
	pad := hi/2*0.08 - low/2*0.08
	if pad == 0 {
		pad = math.Max(math.Abs(hi)*0.1, 1e-300)
	}
	if !bars || low < 0 {
		low = math.Max(low-pad, -math.MaxFloat64)
	}
	return low, math.Min(hi+pad, math.MaxFloat64)
}

// ticks returns the ticks between low and hi, at most about n of them with a label.
func (a *Axis) ticks(low, hi float64, n int, occur []float64) []tick {
	switch {
	case len(a.Names) > 0:
		every := (len(a.Names) + 4*n - 1) / (4 * n)
		var out []tick
		for i, name := range a.Names {
			if i%every == 0 {
				out = append(out, tick{float64(i), name})
			}
		}
		return out
	case a.Whole && len(occur) <= n+3:
		var out []tick
		for _, v := range occur {
			if v >= low && v <= hi {
				out = append(out, tick{v, a.name(v)})
			}
		}
		return out
	case a.Scale == Log2:
		return a.powersOf2(low, hi, n)
	case a.Scale == Log:
		return a.decades(low, hi, n)
	}
	return a.even(low, hi, n)
}

func (a *Axis) powersOf2(low, hi float64, n int) []tick {
	from, to := int(math.Ceil(math.Log2(low)-1e-9)), int(math.Floor(math.Log2(hi)+1e-9))
	step := 1
	for (to-from)/step+1 > n {
		step++
	}
	var out []tick
	for e := from; e <= to; e++ {
		if ((e%step)+step)%step == 0 {
			v := math.Ldexp(1, e)
			out = append(out, tick{v, a.name(v)})
		}
	}
	return out
}

func (a *Axis) decades(low, hi float64, n int) []tick {
	from, to := int(math.Floor(math.Log10(low))), int(math.Floor(math.Log10(hi)))
	decades := math.Log10(hi) - math.Log10(low)
	step := 1
	for float64(step*n) < decades {
		step++
	}
	var marks []float64
	switch {
	case decades < 0.8:
		return a.even(low, hi, n)
	case decades < 1.7:
		marks = []float64{1, 2, 5}
	case decades < 3:
		marks = []float64{1, 3}
	default:
		marks = []float64{1}
	}
	var out []tick
	for e := from; e <= to; e++ {
		if ((e%step)+step)%step != 0 {
			continue
		}
		for _, m := range marks {
			if v := m * math.Pow(10, float64(e)); v >= low && v <= hi && v > 0 {
				out = append(out, tick{v, a.name(v)})
			}
		}
	}
	return out
}

func (a *Axis) even(low, hi float64, n int) []tick {
	rough := (hi/2 - low/2) / float64(n) * 2
	if rough <= 0 || math.IsInf(rough, 0) || math.IsNaN(rough) {
		return nil
	}
	unit := math.Pow(10, math.Floor(math.Log10(rough)))
	step := unit * 10
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*unit >= rough*0.999 {
			step = m * unit
			break
		}
	}
	var out []tick
	first := math.Ceil(low/step - 1e-9)
	for i := 0.0; i < 50; i++ {
		v := (first + i) * step
		if v > hi || math.IsInf(v, 0) || math.IsNaN(v) {
			break
		}
		if math.Abs(v) < step*1e-9 {
			v = 0
		}
		out = append(out, tick{v, a.name(v)})
	}
	return out
}

// name formats a tick's value.
func (a *Axis) name(v float64) string {
	switch {
	case a.Bytes:
		return Bytes(v)
	case a.Percent:
		return trim(v*100, 4) + " %"
	}
	return Number(v)
}

// Bytes formats a size in bytes in the largest binary unit that it reaches, such as "4 KiB".
func Bytes(v float64) string {
	if math.Abs(v) >= 1<<60 || math.IsNaN(v) {
		return Number(v) + " B"
	}
	for _, u := range []struct {
		size float64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if v >= u.size {
			return trim(v/u.size, 4) + " " + u.name
		}
	}
	return trim(v, 4) + " B"
}

// Number formats a value with at most four significant digits; very large and small ones have an exponent.
func Number(v float64) string {
	switch m := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "—"
	case m >= 1e7 || m != 0 && m < 1e-4:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case m >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return trim(v, 4)
}

// trim formats v with the given significant digits and without trailing zeros.
func trim(v float64, digits int) string {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	if err != nil {
		r = v
	}
	return strconv.FormatFloat(r, 'f', -1, 64)
}
