// Package paper contains the printed numbers of the papers that nearmetal repeats, each with its figure, table or
// page, so that a report can compare them with a run. It contains only numbers printed in text, tables and listings.
// No values are extracted from plots: Drawn describes the content of a figure without printed numbers.
package paper

import (
	"bytes"
	"embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Paper is one paper.
type Paper struct {
	Name  string `yaml:"paper"` // "000" to "004"
	Title string `yaml:"title"`
	By    string `yaml:"by"` // authors or publisher, date
	On    string `yaml:"on"` // machines, in one line
	Items []Item `yaml:"items"`
}

// Item is a figure, table or page with its printed numbers.
type Item struct {
	// Key is its name in suites: "fig 17", "table 1", "p 24".
	Key   string   `yaml:"key"`
	Where string   `yaml:"where"` // citation: figure, section, page
	What  string   `yaml:"what"`  // what is measured, in nearmetal's words
	Cases []string `yaml:"cases"` // names of cases that repeat it, in addition to those that name its key
	// Hosts are the numbers of hosts of the measurement; empty: the paper does not specify them.
	Hosts []int `yaml:"hosts"`
	// Plot is the quantity that the figure plots, if it does not follow from the claims: "efficiency" of strong
	// scaling, or "speed-up".
	Plot string `yaml:"plot"`
	// Drawn describes what the figure plots without numbers, which are therefore missing here.
	Drawn  string   `yaml:"drawn"`
	X      string   `yaml:"x"` // the swept parameter of Series
	Metric string   `yaml:"metric"`
	Unit   string   `yaml:"unit"`   // of Series and of claims' values, unless these have a unit of their own
	Better string   `yaml:"better"` // "up" or "down"
	Series []Series `yaml:"series"`
	Claims []Claim  `yaml:"claims"`
}

// Series are printed values over a parameter.
type Series struct {
	Label  string       `yaml:"label"`
	Kind   string       `yaml:"kind"`   // "native" or "vm"
	Metric string       `yaml:"metric"` // a further column of a listing, by a suite's metric; "": the item's
	Unit   string       `yaml:"unit"`   // of that column; "": the item's
	Points [][2]float64 `yaml:"points"` // parameter, value in the item's unit
}

// Claim is a number printed in the text.
type Claim struct {
	Says string `yaml:"says"` // in nearmetal's words
	// Percent is the printed number, or a range of two; Of defines the sign.
	Percent []float64 `yaml:"percent"`
	// Of is the quantity that changes by Percent: "performance" (change of performance against native), "time"
	// (change of a time or latency against native), "gain" (of performance by a switch).
	Of     string            `yaml:"of"`
	Switch string            `yaml:"switch"` // for "gain": the switch that the variant compared with lacks
	Kind   string            `yaml:"kind"`   // the variant's kind, default "vm"; "native" is the one with fewer cores
	Point  map[string]string `yaml:"point"`  // the point; empty: the worst, or the largest gain
	Case   string            `yaml:"case"`   // if a figure has several programs, the name of one
	Values []float64         `yaml:"values"` // absolute, one number or a range, in the item's unit
	// Times is the maximum ratio of the performance of a run's VMs to that of a cloud's VMs (record.Variant.Foreign).
	Times []float64 `yaml:"times"`
	In    string    `yaml:"in"` // unit of Values; "": the item's
	// Measure selects the value of a run that is compared with the number: "" the best of a variant's points;
	// "difference" the variant's value minus the baseline's, where that is smallest; "mean" the geometric mean over
	// all programs of the figure (of gains); "peak" none, but it is drawn with the run; "none" none.
	Measure string `yaml:"measure"`
}

//go:embed data/*.yaml
var files embed.FS

// Names lists the papers.
func Names() []string {
	list, err := files.ReadDir("data")
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range list {
		out = append(out, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

// Open returns the paper with a name.
func Open(name string) (*Paper, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("%q is not one of the papers %s", name, strings.Join(Names(), ", "))
	}
	data, err := files.ReadFile("data/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return Parse(data)
}

// Parse parses a paper's file and checks it.
func Parse(data []byte) (*Paper, error) {
	var p Paper
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&p); err != nil {
		return nil, fmt.Errorf("the paper's file: %w", err)
	}
	if p.Name == "" || p.Title == "" {
		return nil, fmt.Errorf("the paper's file has no name or no title")
	}
	for i := range p.Items {
		if err := p.Items[i].check(); err != nil {
			return nil, fmt.Errorf("paper %s, %s: %w", p.Name, p.Items[i].Key, err)
		}
	}
	return &p, nil
}

// Columns splits an item whose series are columns of a listing: into the item with only its own metric, and one item
// for each further column, which has no claims.
func (it *Item) Columns() (main Item, more []Item) {
	main = *it
	main.Series = nil
	for _, s := range it.Series {
		if s.Metric == "" {
			main.Series = append(main.Series, s)
			continue
		}
		at := slices.IndexFunc(more, func(o Item) bool { return o.Metric == s.Metric })
		if at < 0 {
			column := *it
			column.Metric, column.Series, column.Claims, column.Drawn = s.Metric, nil, nil, ""
			if s.Unit != "" {
				column.Unit = s.Unit
			}
			more, at = append(more, column), len(more)
		}
		more[at].Series = append(more[at].Series, s)
	}
	return main, more
}

func (it *Item) check() error {
	if len(Keys("000 "+it.Key)) != 1 || it.Where == "" || it.What == "" {
		return fmt.Errorf("it needs a key like \"fig 17\", where it stands and what it shows")
	}
	if len(it.Series) > 0 && (it.X == "" || it.Unit == "") {
		return fmt.Errorf("a series needs its parameter and its unit")
	}
	if !slices.Contains([]string{"", "efficiency", "speed-up"}, it.Plot) {
		return fmt.Errorf("%q is not a plot", it.Plot)
	}
	for _, n := range it.Hosts {
		if n < 1 {
			return fmt.Errorf("it was measured on %d hosts", n)
		}
	}
	for _, s := range it.Series {
		for _, p := range s.Points {
			if !finite(p[0]) || !finite(p[1]) {
				return fmt.Errorf("%s has a value that is not a number", s.Label)
			}
		}
	}
	for _, c := range it.Claims {
		if c.Says == "" || len(c.Percent) > 2 || len(c.Values) > 2 || len(c.Times) > 1 {
			return fmt.Errorf("a claim has its words, and one number or two")
		}
		if len(c.Percent) > 0 && c.Of != "performance" && c.Of != "time" && c.Of != "gain" {
			return fmt.Errorf("%q: per cent of what?", c.Says)
		}
		if c.Of == "gain" && c.Switch == "" {
			return fmt.Errorf("%q: a gain by which switch?", c.Says)
		}
		if c.Measure == "mean" && c.Of != "gain" {
			return fmt.Errorf("%q: a mean is of gains", c.Says)
		}
		if !slices.Contains([]string{"", "difference", "mean", "none", "peak"}, c.Measure) {
			return fmt.Errorf("%q: %q is not a way to measure", c.Says, c.Measure)
		}
		for _, v := range slices.Concat(c.Percent, c.Values, c.Times) {
			if !finite(v) {
				return fmt.Errorf("%q has a value that is not a number", c.Says)
			}
		}
	}
	return nil
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Key is an item of a paper, as named in suites.
type Key struct{ Paper, Item string }

var (
	seedPart = regexp.MustCompile(`^\s*(\d{3})\s+(.*)$`)
	kinds    = regexp.MustCompile(`^(figure|fig|table|page|p|slide|section)\.?\s*`)
	place    = regexp.MustCompile(`^(\d+)[a-z()]*(?:\s*(?:-|–|to)\s*(\d+))?`)
)

// Keys parses the list of items that a case repeats: "002 fig 17, 19; 003 p 24" names three items.
func Keys(seed string) []Key {
	var out []Key
	for _, part := range strings.Split(seed, ";") {
		m := seedPart.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		kind := ""
		for _, word := range strings.Split(m[2], ",") {
			word = strings.ToLower(strings.TrimSpace(word))
			if k := kinds.FindStringSubmatch(word); k != nil {
				kind = map[string]string{"figure": "fig", "page": "p", "slide": "p"}[k[1]]
				if kind == "" {
					kind = k[1]
				}
				word = word[len(k[0]):]
			}
			n := place.FindStringSubmatch(word)
			if kind == "" || n == nil {
				continue
			}
			out = append(out, Key{m[1], kind + " " + n[1]})
			var from, to int
			fmt.Sscan(n[1], &from)
			fmt.Sscan(n[2], &to)
			for i := from + 1; i <= to && i-from < 100; i++ {
				out = append(out, Key{m[1], fmt.Sprintf("%s %d", kind, i)})
			}
		}
	}
	return out
}

// scales are the units that can be converted into each other: their kind, and their size in the base unit of that
// kind.
var scales = map[string]struct {
	kind string
	size float64
}{
	"ns": {"time", 1e-9}, "us": {"time", 1e-6}, "µs": {"time", 1e-6}, "ms": {"time", 1e-3}, "s": {"time", 1},
	"B/s": {"rate", 1}, "kB/s": {"rate", 1e3}, "MB/s": {"rate", 1e6}, "GB/s": {"rate", 1e9},
	"MiB/s": {"rate", 1 << 20}, "GiB/s": {"rate", 1 << 30}, "Mb/s": {"rate", 1e6 / 8}, "Gb/s": {"rate", 1e9 / 8},
	"Mflop/s": {"flops", 1e6}, "Gflop/s": {"flops", 1e9}, "GFLOPS": {"flops", 1e9}, "GFlops": {"flops", 1e9}, "GFlop/s": {"flops", 1e9}, "MFLOP/s": {"flops", 1e6}, "GFLOP/s": {"flops", 1e9}, "Tflop/s": {"flops", 1e12},
}

// Factor returns the factor that converts values from one unit to another; false if they cannot be converted.
func Factor(from, to string) (float64, bool) {
	if from == to {
		return 1, true
	}
	a, b := scales[from], scales[to]
	if a.kind == "" || a.kind != b.kind {
		return 0, false
	}
	return a.size / b.size, true
}
