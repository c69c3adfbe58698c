package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"text/tabwriter"
)

// key is a figure: what is measured (latency, bandwidth, rate, copy, copies) and the
// message size in bytes.
type key struct {
	what  string
	bytes int
}

// better tells whether more is better.
func (k key) moreIsBetter() bool { return k.what != "latency" }

// table holds the samples of each way and figure.
type table struct {
	ways    []string // in the order shown; ours are those that start with "ivshmem"
	samples map[string]map[key][]float64
}

func newTable(ways ...string) *table {
	t := &table{ways: ways, samples: map[string]map[key][]float64{}}
	for _, w := range ways {
		t.samples[w] = map[key][]float64{}
	}
	return t
}

func (t *table) add(way string, k key, v float64) {
	t.samples[way][k] = append(t.samples[way][k], v)
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

// ratio gives ours to the best peer of the same sort: with CMA to with CMA, without to
// without. Above 1 ours is the faster, whatever is measured.
func (t *table) ratio(k key, ours string) (float64, string, bool) {
	mine, ok := median(t.samples[ours][k])
	if !ok {
		return 0, "", false
	}
	best, name := 0.0, ""
	for _, w := range t.ways {
		if strings.HasPrefix(w, "ivshmem") || w == "raw" ||
			strings.HasSuffix(w, "-nocma") != strings.HasSuffix(ours, "-nocma") {
			continue
		}
		m, ok := median(t.samples[w][k])
		if !ok {
			continue
		}
		if name == "" || k.moreIsBetter() == (m > best) {
			best, name = m, w
		}
	}
	if name == "" {
		return 0, "", false
	}
	if k.moreIsBetter() {
		return mine / best, name, true
	}
	return best / mine, name, true
}

func (t *table) print(title string) {
	fmt.Printf("\n%s: medians; latency in us, bandwidth and copies in GB/s, rate in million/s\n", title)
	var keys []key
	seen := map[key]bool{}
	for _, w := range t.ways {
		for k := range t.samples[w] {
			if !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
	order := map[string]int{"latency": 0, "rate": 1, "bandwidth": 2, "copy": 3, "copies": 4}
	sort.Slice(keys, func(i, j int) bool {
		if keys[i].what != keys[j].what {
			return order[keys[i].what] < order[keys[j].what]
		}
		return keys[i].bytes < keys[j].bytes
	})
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tbytes\t%s\tours/best\tno CMA\t\n", strings.Join(t.ways, "\t"))
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%d\t", k.what, k.bytes)
		for _, way := range t.ways {
			if m, ok := median(t.samples[way][k]); ok {
				fmt.Fprintf(w, "%.3f", m)
			}
			fmt.Fprint(w, "\t")
		}
		for _, ours := range []string{"ivshmem", "ivshmem-nocma"} {
			if r, name, ok := t.ratio(k, ours); ok {
				fmt.Fprintf(w, "%.2f %s", r, name)
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}
