package report

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/report/paper"
)

// Checks that each item that a suite repeats of a paper has a picture of the run, with the paper's numbers in the
// same frame if the paper prints any.
func TestEveryFigureIsDrawn(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range paper.Names() {
		p, err := paper.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Items {
			item := &p.Items[i]
			run, samples := repeating(list, name, item)
			if len(run.Cases) == 0 {
				t.Logf("%s %s is repeated by no suite: %s", name, item.Key, item.What)
				continue
			}
			d, err := Group("r", run, samples, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Build([]*Data{d}, Options{Paper: name})
			if err != nil {
				t.Fatal(err)
			}
			for _, it := range r.Paper.Items {
				if it.Key != item.Key {
					continue
				}
				theirs, ours, together := 0, 0, false
				for _, f := range it.Plots {
					a, b := 0, 0
					if err := f.Scene().SVG(io.Discard); err != nil {
						t.Errorf("%s %s: %v", name, item.Key, err)
					}
					for _, s := range f.Series {
						if strings.HasPrefix(s.Name, "the paper") || strings.HasPrefix(s.Name, "paper: ") {
							a++
						} else {
							b++
						}
					}
					theirs, ours, together = theirs+a, ours+b, together || a > 0 && b > 0
				}
				if !it.measured() || ours == 0 || prints(item) && !together {
					t.Errorf("%s %s (%s): measured %v, %d pictures, %d series of the run, %d of the paper", name, item.Key, item.What, it.measured(), len(it.Plots), ours, theirs)
				}
			}
		}
	}
}

// prints reports whether a paper prints a number for an item's figure.
func prints(it *paper.Item) bool {
	return len(it.Series) > 0 || slices.ContainsFunc(it.Claims, func(c paper.Claim) bool {
		return c.Measure != "none" && (len(c.Percent) > 0 && c.Of != "" || len(c.Values) > 0 || len(c.Times) > 0)
	})
}

// repeating returns a run of all experiments that repeat an item: natively, in VMs, in VMs without each of their
// switches, and in a cloud's VM.
func repeating(list []*suite.Suite, name string, item *paper.Item) (*record.Run, []record.Sample) {
	run := &record.Run{Version: 1, Variants: []record.Variant{{Label: "native", Kind: "native"}, {Label: "VM", Kind: "vm"},
		{Label: "EC2", Kind: "vm", Foreign: true, Host: &record.Host{}}}}
	for _, s := range [][]string{{"region"}, {"vnuma"}, {"hugepages"}, {"hugepages", "pinning", "vnuma"}} {
		run.Variants = append(run.Variants, record.Variant{Label: "VM.no-" + strings.Join(s, "-"), Kind: "vm", Ablated: s})
	}
	var samples []record.Sample
	for _, s := range list {
		for _, e := range s.Experiments {
			if !slices.Contains(paper.Keys(e.Seed), paper.Key{Paper: name, Item: item.Key}) && !slices.Contains(item.Cases, s.Name+"/"+e.Name) {
				continue
			}
			for i, o := range e.Programs[0].Output {
				c := record.Case{Name: s.Name + "/" + e.Name, Title: e.Title, Metric: o.Metric, Unit: o.Unit, Better: o.Better, Kind: o.Kind, X: o.X, Seed: e.Seed}
				if i > 0 {
					c.Name += "." + strings.ReplaceAll(o.Metric, " ", "-")
				}
				c.Hosts = e.Hosts
				if o.Kind == "scaling" && len(item.Hosts) > 1 && item.X != "ranks" {
					c.X = "nodes" // as in jobs
				}
				run.Cases = append(run.Cases, c)
				for _, at := range places(c.X, item) {
					for v := range run.Variants {
						value := 100 + float64(v)
						if o.Better == "up" {
							value = 100 - float64(v)
						}
						samples = append(samples, record.Sample{Case: c.Name, Variant: run.Variants[v].Label, Point: at, Value: value, OK: true})
					}
				}
			}
		}
	}
	return run, samples
}

// places returns points along a parameter, on as many hosts as those of an item.
func places(x string, item *paper.Item) []map[string]string {
	values := map[string][]string{"size": {"2", "8192"}, "threads": {"16", "64"}, "ranks": {"8", "64"}, "n": {"1000", "5000"}, "scale": {"20", "22"}, "nodes": {"1", "2", "4", "8", "16"}}[x]
	if values == nil {
		values = []string{""}
	}
	var out []map[string]string
	for _, v := range values {
		at := map[string]string{}
		if len(item.Hosts) > 0 && x != "nodes" && slices.Max(item.Hosts) > 1 {
			at["nodes"] = strconv.Itoa(slices.Max(item.Hosts))
		}
		if v != "" {
			at[x] = v
		}
		out = append(out, at)
	}
	return out
}
