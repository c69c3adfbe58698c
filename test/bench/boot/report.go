package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"nearmetal/internal/terminal"
)

// summary returns the median, least and greatest of one figure's samples.
func summary(name, unit string, samples []float64) result {
	s := slices.Clone(samples)
	slices.Sort(s)
	m := s[len(s)/2]
	if len(s)%2 == 0 {
		m = (s[len(s)/2-1] + m) / 2
	}
	return result{Name: name, Unit: unit, Median: m, Min: s[0], Max: s[len(s)-1]}
}

// seconds are durations as samples.
func seconds(d []time.Duration) []float64 {
	s := make([]float64, len(d))
	for i := range d {
		s[i] = d[i].Seconds()
	}
	return s
}

func (r *report) print(w io.Writer) error {
	emulated := r.Accel == "tcg"
	fmt.Fprintf(w, "%s, %s, %d runs\n\n", r.QEMU, r.Accel, r.Runs)
	t := terminal.NewTable("", "median", "min", "max", "unit", "bar", "")
	for _, x := range r.Results {
		bar, verdict := "", ""
		if x.Bar > 0 {
			bar, verdict = "≤ "+number(x.Bar), "met"
			if x.Median > x.Bar {
				verdict = "MISSED"
			}
		}
		name := x.Name
		if x.Guest && emulated {
			name += " (emulated)"
		}
		t.Row(name, number(x.Median), number(x.Min), number(x.Max), x.Unit, bar, verdict)
	}
	if err := t.Print(w); err != nil {
		return err
	}
	if emulated {
		fmt.Fprintln(w, "\nemulated: times that pass in a guest are not meaningful for hardware")
	}
	return nil
}

func number(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// say reports on standard error how far the measuring is.
func say(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
