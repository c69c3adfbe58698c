package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"

	"nearmetal/internal/stats"
)

// key is a figure: what is measured, and the message size in bytes.
type key struct {
	what  string
	bytes int
}

// units of each figure, in the order shown. Of times less is better, of all else more.
var units = []struct{ what, unit string }{
	{"instructions", "a message"}, {"latency", "us"}, {"work", "us"}, {"latency-alone", "us"}, {"latency-crowd", "us"}, {"put", "us"}, {"get", "us"},
	{"rate", "million/s"}, {"bandwidth", "GB/s"}, {"bandwidth+16", "GB/s"}, {"put-bandwidth", "GB/s"},
	{"put-memcpy", "GB/s"}, {"get-bandwidth", "GB/s"}, {"get-memcpy", "GB/s"}, {"choice", "ns"}, {"start", "ms"}, {"worker", "KiB"},
}

func unit(what string) (string, int) {
	for i, u := range units {
		if u.what == what {
			return u.unit, i
		}
	}
	return "", len(units)
}

// moreIsBetter reports whether more is better.
func (k key) moreIsBetter() bool {
	u, _ := unit(k.what)
	return strings.HasSuffix(u, "/s")
}

// table holds the samples of each way and figure.
type table struct {
	name, title string
	ways        []*way
	columns     []string // in the order shown; ours are those that start with "ivshmem"
	samples     map[string]map[key][]sample
	ratios      []ratio
	show        func(*table) // prints it; nil: print
}

// sample is one run's value of a figure.
type sample struct {
	run      int
	pingpong float64 // us, which shows the machine's state then
	value    float64
}

// ratio is a column with one way over the best of others.
type ratio struct {
	ours string
	to   []string
}

func newTable(title string, ways ...*way) *table {
	t := &table{title: title, ways: ways, samples: map[string]map[key][]sample{}}
	for _, w := range ways {
		t.columns = append(t.columns, w.name)
	}
	return t
}

// compare adds a column of ratios.
func (t *table) compare(ours string, to ...string) *table {
	t.ratios = append(t.ratios, ratio{ours, to})
	return t
}

func (t *table) add(column string, k key, s sample) {
	if t.samples[column] == nil {
		t.samples[column] = map[key][]sample{}
	}
	t.samples[column][k] = append(t.samples[column][k], s)
}

// keep keeps the figures of a way in a run.
func (t *table) keep(w *way, run int, pingpong float64, figures map[key]float64) {
	for k, v := range figures {
		column := w.name
		if c, ok := w.spread[k.what]; ok {
			column, k.what = c[0], c[1]
		}
		t.add(column, k, sample{run, pingpong, v})
	}
}

// median returns the median of the samples, and whether there are any.
func median(v []float64) (float64, bool) {
	return stats.Median(v), len(v) > 0
}

// states returns the states of the machine in which the table's figures were measured, the
// one with most figures first.
func (t *table) states() []stats.State {
	var pingpongs []float64
	for _, figures := range t.samples {
		for _, samples := range figures {
			for _, s := range samples {
				pingpongs = append(pingpongs, s.pingpong)
			}
		}
	}
	return stats.States(pingpongs)
}

// in returns what was measured in a state, by run, and the median of it, if there is any.
func (t *table) in(s stats.State, column string, k key) (map[int]float64, float64, bool) {
	values := map[int]float64{}
	var all []float64
	for _, e := range t.samples[column][k] {
		if e.pingpong >= s.From && e.pingpong <= s.To {
			values[e.run] = e.value
			all = append(all, e.value)
		}
	}
	m, ok := median(all)
	return values, m, ok
}

// median returns a column's median in one state of the machine: the one that has the most
// figures of the table, so that columns compare. Only a column without any in that state
// shows the next one's, and is not usual.
func (t *table) median(column string, k key) (m float64, usual, ok bool) {
	for i, s := range t.states() {
		if _, m, ok := t.in(s, column, k); ok {
			return m, i == 0, true
		}
	}
	return 0, false, false
}

// pairs returns a figure of each run beside another, both measured in one state of the
// machine: the one with the most figures of the table in which there are both, as for
// medians. Where the run has the other one in another state only, or not at all, its
// median in this state takes its place. Without a common state there are no pairs.
func (t *table) pairs(column string, k key, other string, l key) [][2]float64 {
	for _, s := range t.states() {
		mine, _, ok := t.in(s, column, k)
		theirs, rest, ok2 := t.in(s, other, l)
		if !ok || !ok2 {
			continue
		}
		var each [][2]float64
		for run, v := range mine {
			o, ok := theirs[run]
			if !ok {
				o = rest
			}
			each = append(each, [2]float64{v, o})
		}
		return each
	}
	return nil
}

// difference returns the median of how much more a figure is than another.
func (t *table) difference(column string, k key, other string, l key) (float64, bool) {
	var each []float64
	for _, p := range t.pairs(column, k, other, l) {
		each = append(each, p[0]-p[1])
	}
	return median(each)
}

// ratio returns how much better ours is than the best of others, and which that is: the
// median of the ratios of each run, since what disturbs a run disturbs both. Above 1
// ours is the better, whatever is measured. There is none if one of the others was only
// measured in other states of the machine: it may be the best.
func (t *table) ratio(k key, r ratio) (float64, string, bool) {
	best, name := 0.0, ""
	for _, other := range r.to {
		if len(t.samples[other][k]) == 0 {
			continue
		}
		var each []float64
		for _, p := range t.pairs(r.ours, k, other, k) {
			if k.moreIsBetter() {
				each = append(each, p[0]/p[1])
			} else {
				each = append(each, p[1]/p[0])
			}
		}
		m, ok := median(each)
		if !ok {
			return 0, "", false
		}
		if name == "" || m < best {
			best, name = m, other
		}
	}
	return best, name, name != ""
}

// keys returns all figures, sorted.
func (t *table) keys() []key {
	var keys []key
	seen := map[key]bool{}
	for _, figures := range t.samples {
		for k := range figures {
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
	sort.Slice(keys, func(i, j int) bool {
		_, a := unit(keys[i].what)
		_, b := unit(keys[j].what)
		if a != b {
			return a < b
		}
		return keys[i].bytes < keys[j].bytes
	})
	return keys
}

func (t *table) print() {
	if t.show != nil {
		t.show(t)
		return
	}
	fmt.Printf("\n%s: medians of %d runs; the ratios are above 1 where ours is the better\n", t.title, *runs)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tbytes\t%s\t", strings.Join(t.columns, "\t"))
	for _, r := range t.ratios {
		if len(r.to) == 1 {
			fmt.Fprintf(w, "%s/%s\t", r.ours, r.to[0])
			continue
		}
		fmt.Fprintf(w, "%s/best\t", r.ours)
	}
	fmt.Fprintln(w)
	star := false
	for _, k := range t.keys() {
		u, _ := unit(k.what)
		fmt.Fprintf(w, "%s %s\t%d\t", k.what, u, k.bytes)
		for _, column := range t.columns {
			if m, usual, ok := t.median(column, k); ok {
				fmt.Fprintf(w, "%.3g", m)
				if !usual && k.what != "instructions" { // a count is the same wherever the cores are
					fmt.Fprint(w, "*")
					star = true
				}
			}
			fmt.Fprint(w, "\t")
		}
		for _, r := range t.ratios {
			if v, name, ok := t.ratio(k, r); ok {
				fmt.Fprintf(w, "%.2f", v)
				if len(r.to) > 1 {
					fmt.Fprint(w, " ", name)
				}
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	if star {
		fmt.Println("* measured only while the cores were elsewhere: not to be compared")
	}
}
