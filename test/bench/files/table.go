package main

import (
	"fmt"
	"io"
	"math"

	"nearmetal/internal/stats"
	"nearmetal/internal/terminal"
)

// table holds all that was measured, in seconds.
type table struct {
	places []*place
	names  []string // of figures, in their order
	times  map[string]map[string][]float64
}

func newTable(places []*place) *table {
	return &table{places: places, times: map[string]map[string][]float64{}}
}

func (t *table) add(name string, p *place, seconds float64) {
	if t.times[name] == nil {
		t.names = append(t.names, name)
		t.times[name] = map[string][]float64{}
	}
	t.times[name][p.name] = append(t.times[name][p.name], seconds)
}

// median is 0 where nothing was measured.
func (t *table) median(name, place string) float64 {
	if s := t.times[name][place]; len(s) > 0 {
		return stats.Median(s)
	}
	return 0
}

// goal is a bound of a ratio.
type goal struct {
	what  string
	ratio float64
	bar   float64
	tmpfs float64 // the ratio with a warm tmpfs in the place of what is measured, the least that there is; 0: none
}

// goals are those of virtiofs.
func (t *table) goals() []goal {
	const v = "virtiofs"
	all := []goal{
		{"warm imports, virtiofs / tmpfs", t.median(importsWarm, v) / t.median(importsWarm, "tmpfs"), 1.3, 0},
		{"warm imports on 8 ranks, virtiofs / tmpfs", t.median(importsWarm8, v) / t.median(importsWarm8, "tmpfs"), 1.3, 0},
		{"cold imports, virtiofs / 9p", t.median(importsCold, v) / t.median(importsCold, "9p"), 0.8, t.median(importsWarm, "tmpfs") / t.median(importsCold, "9p")},
		{"cold imports on 8 ranks, virtiofs / 9p", t.median(importsCold8, v) / t.median(importsCold8, "9p"), 0.8, t.median(importsWarm8, "tmpfs") / t.median(importsCold8, "9p")},
	}
	tmpfs := t.median(importsWarm8, "tmpfs") / (ranks * t.median(importsWarm, "tmpfs"))
	for _, p := range []string{"9p", v} {
		all = append(all,
			goal{"8 ranks at once / one after the other, cold, " + p, t.median(importsCold8, p) / (t.median(importsCold, p) + (ranks-1)*t.median(importsWarm, p)), 1, tmpfs},
			goal{"8 ranks at once / one after the other, warm, " + p, t.median(importsWarm8, p) / (ranks * t.median(importsWarm, p)), 1, tmpfs})
	}
	return all
}

func (t *table) print(w io.Writer, n int) error {
	head := []string{"seconds"}
	for _, p := range t.places {
		head = append(head, p.name)
	}
	out := terminal.NewTable(append(head, "virtiofs/9p")...)
	for _, name := range t.names {
		row := []any{name}
		for _, p := range t.places {
			row = append(row, number(t.median(name, p.name)))
		}
		out.Row(append(row, number(t.median(name, "virtiofs")/t.median(name, "9p")))...)
	}
	if err := out.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	out = terminal.NewTable("ratio of medians", "", "goal", "", "a warm tmpfs")
	for _, g := range t.goals() {
		if !(g.ratio > 0) || math.IsInf(g.ratio, 1) {
			continue // a part that was left out
		}
		verdict := "met"
		if !(g.ratio <= g.bar) {
			verdict = "MISSED"
		}
		out.Row(g.what, number(g.ratio), fmt.Sprintf("≤ %.1f", g.bar), verdict, number(g.tmpfs))
	}
	if err := out.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nmedians of %d, in turns; one VM of 2 vCPUs for each of 9p and virtiofs; tmpfs is in the latter and stands for a native\n"+
		"file system; cold: the VM's caches were dropped, not the host's; tmpfs and the host are always warm\n", n)
	return err
}

func number(x float64) string {
	if !(x > 0) {
		return "-"
	}
	return fmt.Sprintf("%.2f", x)
}
