package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"
)

// key is a figure: what is measured, and the message size in bytes.
type key struct {
	what  string
	bytes int
}

// units of each figure, in the order shown. Of times less is better, of all else more.
var units = []struct{ what, unit string }{
	{"latency", "us"}, {"latency-alone", "us"}, {"latency-crowd", "us"}, {"put", "us"},
	{"rate", "million/s"}, {"bandwidth", "GB/s"}, {"put-bandwidth", "GB/s"}, {"put-memcpy", "GB/s"},
	{"choice", "ns"}, {"start", "ms"},
}

func unit(what string) (string, int) {
	for i, u := range units {
		if u.what == what {
			return u.unit, i
		}
	}
	return "", len(units)
}

// moreIsBetter tells whether more is better.
func (k key) moreIsBetter() bool {
	u, _ := unit(k.what)
	return strings.HasSuffix(u, "/s")
}

// table holds the samples of each way and figure.
type table struct {
	name, title string
	ways        []*way
	columns     []string // in the order shown; ours are those that start with "ivshmem"
	samples     map[string]map[key][]float64
	ratios      []ratio
}

// ratio is a column with one way over the best of others.
type ratio struct {
	ours string
	to   []string
}

func newTable(title string, ways ...*way) *table {
	t := &table{title: title, ways: ways, samples: map[string]map[key][]float64{}}
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

func (t *table) add(column string, k key, v float64) {
	if t.samples[column] == nil {
		t.samples[column] = map[key][]float64{}
	}
	t.samples[column][k] = append(t.samples[column][k], v)
}

// measure runs a way once and keeps its figures.
func (t *table) measure(w *way) error {
	figures, err := w.run()
	if err != nil {
		return err
	}
	for k, v := range figures {
		column := w.name
		if c, ok := w.spread[k.what]; ok {
			column, k.what = c[0], c[1]
		}
		t.add(column, k, v)
	}
	return nil
}

// median gives the middle of the samples, and whether there are any.
func median(v []float64) (float64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2, true
}

func (t *table) median(column string, k key) (float64, bool) {
	return median(t.samples[column][k])
}

// ratio gives how much better ours is than the best of others, and which that is: the
// median of the ratios of each run, since what disturbs a run disturbs both. Above 1
// ours is the better, whatever is measured.
func (t *table) ratio(k key, r ratio) (float64, string, bool) {
	mine := t.samples[r.ours][k]
	best, name := 0.0, ""
	for _, other := range r.to {
		theirs := t.samples[other][k]
		var each []float64
		for i := 0; i < len(mine) && i < len(theirs); i++ {
			if k.moreIsBetter() {
				each = append(each, mine[i]/theirs[i])
			} else {
				each = append(each, theirs[i]/mine[i])
			}
		}
		if m, ok := median(each); ok && (name == "" || m < best) {
			best, name = m, other
		}
	}
	return best, name, name != ""
}

// keys gives all figures, sorted.
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
	for _, k := range t.keys() {
		u, _ := unit(k.what)
		fmt.Fprintf(w, "%s %s\t%d\t", k.what, u, k.bytes)
		for _, column := range t.columns {
			if m, ok := t.median(column, k); ok {
				fmt.Fprintf(w, "%.3g", m)
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
}
