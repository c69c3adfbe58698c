package report

import (
	"fmt"
	"math"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/words"
)

// Words returns the verdict as a sentence that begins with the result.
func (e *Experiment) Words(v *Verdict) string {
	found, detail := e.words(v)
	if detail == "" {
		return found
	}
	return found + ": " + detail
}

// words returns the result and its numbers.
func (e *Experiment) words(v *Verdict) (found, detail string) {
	label := e.variant(v.Variant).Label
	if v.State == None {
		return label + ": no verdict, " + v.Why, ""
	}
	var b strings.Builder
	switch {
	case v.State == Within && v.Points == 1:
		fmt.Fprintf(&b, "%s is within the tolerance of %s", label, v.Tolerance.Percent())
	case v.State == Within:
		fmt.Fprintf(&b, "%s is within the tolerance of %s at all %d points", label, v.Tolerance.Percent(), v.Points)
	case v.State == Outside && v.Points == 1:
		fmt.Fprintf(&b, "%s is outside the tolerance of %s", label, v.Tolerance.Percent())
	case v.State == Outside:
		fmt.Fprintf(&b, "%s is outside the tolerance of %s at %d of %d points", label, v.Tolerance.Percent(), v.Outside, v.Points)
	case v.Points == 1:
		fmt.Fprintf(&b, "%s is not decided: it is below the tolerance of %s, but its interval lies across", label, v.Tolerance.Percent())
	default:
		fmt.Fprintf(&b, "%s is not decided: at %d of %d points it is below the tolerance of %s, but the interval lies across", label, v.Points-v.Within, v.Points, v.Tolerance.Percent())
	}
	found = b.String()
	b.Reset()
	b.WriteString(tally(v.Words, e.noun()))
	if e.MostReps < verdict.Looks[0] {
		fmt.Fprintf(&b, ", with fewer than %d repetitions", verdict.Looks[0])
	}
	b.WriteString("; ")
	c := &v.Worst.Cells[v.Variant]
	if v.Points == 1 {
		fmt.Fprintf(&b, "%s against %s", Delta(c.Ratio.Median), e.baseLabel())
	} else {
		fmt.Fprintf(&b, "at worst %s against %s", Delta(c.Ratio.Median), e.baseLabel())
	}
	if c.Ratio.Low != c.Ratio.High {
		fmt.Fprintf(&b, " (%s to %s)", Delta(c.Ratio.Low), Delta(c.Ratio.High))
	}
	if x := e.xText(v.Worst); x != "" && v.Points > 1 {
		b.WriteString(", at " + x)
	}
	if v.Points > 1 {
		fmt.Fprintf(&b, "; %s on the whole", Delta(v.Mean))
	}
	if v.Across > 0 && v.State == Within {
		if v.Points == 1 {
			b.WriteString("; its interval reaches beyond the tolerance")
		} else {
			fmt.Fprintf(&b, "; at %s the interval reaches beyond the tolerance", words.Count(v.Across, "point", "points"))
		}
	}
	if !math.IsNaN(v.Equal) {
		fmt.Fprintf(&b, "; %s against as many cores natively (%s)", Delta(v.Equal), v.EqualTo)
	}
	return found, b.String()
}

// Badge returns the verdict in one or two words.
func (v *Verdict) Badge() string {
	switch v.State {
	case Within:
		return "within"
	case Outside:
		return "outside"
	case Unclear:
		return "not decided"
	}
	return "no verdict"
}

// Compared returns what is compared, and on which machine.
func (e *Experiment) Compared() string {
	var labels []string
	for _, v := range e.Sides {
		labels = append(labels, e.variant(v).Label)
	}
	h := &e.Run.Run.Host
	on := h.CPU
	if on == "" {
		on = "an unknown CPU"
	}
	if h.Name != "" {
		on = h.Name + ": " + on
	}
	switch len(labels) {
	case 0:
		return "Nothing was measured."
	case 1:
		return labels[0] + " alone, on " + on + "."
	}
	return strings.Join(labels[:len(labels)-1], ", ") + " and " + labels[len(labels)-1] + ", on " + on + "."
}

// Method describes the measurement: repetitions, noise, drift and failures.
func (e *Experiment) Method() string {
	if e.Samples == 0 && e.Failed == 0 {
		return "No value: nothing but warm-ups was measured."
	}
	if e.Samples == 0 {
		return fmt.Sprintf("No value: %s.", words.Count(e.Failed, "repetition failed", "repetitions failed"))
	}
	var parts []string
	reps := fmt.Sprintf("%d", e.LeastReps)
	if e.MostReps > e.LeastReps {
		reps += fmt.Sprintf(" to %d", e.MostReps)
	}
	parts = append(parts, "median of "+reps+" repetitions with its 95 % bootstrap interval")
	if e.MostReps == 1 {
		parts[0] = "one repetition: no interval"
	} else if e.LeastReps < 5 {
		parts[0] += " (fewer than five: wide)"
	}
	if e.Noise < 1e6 { // not if values are beyond measure, or NaN
		parts = append(parts, fmt.Sprintf("noise ±%.1f %%", e.Noise*100))
	}
	if math.Abs(e.Drift) < 1e6 {
		parts = append(parts, "drift "+Delta(1+e.Drift))
	}
	if e.Outliers > 0 {
		parts = append(parts, words.Count(e.Outliers, "outlier", "outliers")+", kept")
	}
	if e.Failed > 0 {
		parts = append(parts, words.Count(e.Failed, "repetition", "repetitions")+" failed and are left out")
	}
	return capital(strings.Join(parts, "; ")) + "."
}

// describe describes a variant.
func describe(v *record.Variant) string {
	parts := []string{}
	if v.Description != "" {
		parts = append(parts, v.Description)
	}
	if v.Cores > 0 {
		parts = append(parts, words.Count(v.Cores, "core a host", "cores a host"))
	}
	if v.KeptBack > 0 {
		parts = append(parts, words.Count(v.KeptBack, "core", "cores")+" kept back")
	}
	if len(v.Ablated) > 0 {
		parts = append(parts, "without "+strings.Join(v.Ablated, ", "))
	}
	if v.Emulated {
		parts = append(parts, Emulated)
	}
	if v.Foreign && v.Host != nil {
		parts = append(parts, "on "+strings.TrimPrefix(v.Host.Name+", ", ", ")+v.Host.CPU)
	}
	if len(parts) == 0 {
		return v.Kind
	}
	return strings.Join(parts, "; ")
}
