package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/report/chart"
	"nearmetal/internal/report/paper"
	"nearmetal/test/golden"
)

func TestText(t *testing.T) {
	run, samples := synthetic()
	r := reportOf(t, writeRun(t, run, samples), "002")
	var b bytes.Buffer
	if err := r.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, filepath.Join("testdata", "synthetic.txt"), b.String())
	if strings.Contains(b.String(), "\x1b") {
		t.Error("colours, though none were asked for")
	}
	b.Reset()
	if err := r.Text(&b, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\x1b[32m") {
		t.Error("no colour, though they were asked for")
	}
}

// htmlOf returns the page of a report.
func htmlOf(t testing.TB, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.HTML(&b, "test"); err != nil {
		t.Fatal(err)
	}
	if !utf8.Valid(b.Bytes()) {
		t.Error("the page is not UTF-8")
	}
	return b.String()
}

// Checks that a verdict at a single point begins with its number, whose minus sign is not capitalized.
func TestOnePoint(t *testing.T) {
	run := &record.Run{Version: 1, ID: "one", Unreached: []string{"t/a n=1", "t/a n=2"}, Host: record.Host{Cores: 48}, Cases: []record.Case{{Name: "c", Better: "down", Kind: "bar"}},
		Variants: []record.Variant{{Label: "n", Kind: "native", Cores: 48}, {Label: "v", Kind: "vm", Cores: 44, KeptBack: 4}}}
	var samples []record.Sample
	for i, v := range run.Variants {
		samples = append(samples, record.Sample{Case: "c", Variant: v.Label, Value: 100 + 5*float64(i), OK: true})
	}
	page := htmlOf(t, reportOf(t, writeRun(t, run, samples), ""))
	if !strings.Contains(page, "<span class=\"detail\">Undecided, with fewer than 7 repetitions; −4.8\u00a0% against n.") {
		t.Error(page)
	}
	// Unreached experiments are one note.
	if !strings.Contains(page, "one: not reached in the time of the run:<ul><li>t/a n=1</li><li>t/a n=2</li></ul>") {
		t.Error(page)
	}
}

var fetched = regexp.MustCompile(`(?i)(?:src|href|url|@import)\s*[=(]\s*["']?\s*([a-z]+:|//)`)

func TestHTML(t *testing.T) {
	run, samples := synthetic()
	page := htmlOf(t, reportOf(t, writeRun(t, run, samples), "002"))
	for _, c := range run.Cases {
		if !strings.Contains(page, "<h2>"+c.Title+"</h2>") {
			t.Errorf("%s has no section", c.Name)
		}
	}
	for _, m := range fetched.FindAllStringSubmatch(page, -1) {
		if m[1] != "data:" {
			t.Errorf("the page fetches %s", m[0])
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "ZgotmplZ") {
		t.Error("the page has a script, or something the template refused")
	}
	for _, want := range []string{"Performance ÷ native.48 (1), higher is better", "Efficiency of strong scaling (%), higher is better", "tolerance: 8.3 %, 4 of 48 cores are kept back for the host",
		Emulated, "Beside paper 002", "2 checks: 1 ok, 1 warn.", "The plan of the VMs", "prefers-color-scheme:dark", "@media print"} {
		if !strings.Contains(strings.ReplaceAll(page, "\u00a0", " "), want) {
			t.Errorf("%q is not in the page", want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	run, samples := synthetic()
	r := reportOf(t, writeRun(t, run, samples), "")
	e := r.Runs[0].Experiments[0]
	want := map[string]State{"native.44": Within, "VM.44": Within, "VM.44.untuned": Outside, "VM.2": None}
	for _, v := range e.Verdicts {
		label := e.variant(v.Variant).Label
		if v.State != want[label] {
			t.Errorf("%s: %s, want %s", label, v.State, want[label])
		}
		delete(want, label)
	}
	if len(want) > 0 {
		t.Errorf("no verdict of %v", want)
	}
	// A higher bandwidth is better, as is a lower latency: the same factors lead to the same verdicts.
	for i, v := range r.Runs[0].Experiments[1].Verdicts {
		if v.State != e.Verdicts[i].State || math.Abs(v.Mean-e.Verdicts[i].Mean) > 0.02 {
			t.Errorf("bandwidth: %s %.3f, latency: %s %.3f", v.State, v.Mean, e.Verdicts[i].State, e.Verdicts[i].Mean)
		}
	}
}

// verdictOf returns the verdict on a VM with the values vm, compared with a native variant with the values native.
func verdictOf(t *testing.T, native, vm []float64, tolerance Tolerance) *Verdict {
	t.Helper()
	run := &record.Run{Version: 1, ID: "x", Ended: time.Now(), Host: record.Host{Cores: 48},
		Variants: []record.Variant{{Label: "n", Kind: "native", Cores: 48}, {Label: "v", Kind: "vm", Cores: 44, KeptBack: 4}},
		Cases:    []record.Case{{Name: "c", Better: "down", Kind: "bar"}}}
	var samples []record.Sample
	for i, list := range [][]float64{native, vm} {
		for rep, v := range list {
			samples = append(samples, record.Sample{Case: "c", Variant: run.Variants[i].Label, Rep: rep, Value: v, OK: true})
		}
	}
	d, err := Group("x", run, samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Analyse(d, tolerance).Experiments[0].Verdicts[0]
}

func TestTolerance(t *testing.T) {
	base := []float64{100, 100, 100, 100, 100}
	for _, c := range []struct {
		vm   []float64
		want State
	}{
		{[]float64{100, 100, 100, 100, 100}, Within},
		{[]float64{90, 90, 90, 90, 90}, Within},
		{[]float64{1200. / 11, 1200. / 11, 1200. / 11, 1200. / 11, 1200. / 11}, Within}, // a loss of exactly 4/48
		{[]float64{110, 110, 110, 110, 110}, Outside},
		{[]float64{100, 105, 111, 115, 120}, Unclear},
	} {
		if v := verdictOf(t, base, c.vm, Tolerance{}); v.State != c.want {
			t.Errorf("%v: %s, want %s (%v)", c.vm, v.State, c.want, v.Worst.Cells[1].Ratio)
		}
	}
	five, err := ParseTolerance("5%")
	if err != nil {
		t.Fatal(err)
	}
	if v := verdictOf(t, base, []float64{107, 107, 107, 107, 107}, five); v.State != Outside {
		t.Errorf("7 %% longer is %s of a tolerance of 5 %%", v.State)
	}
	for in, want := range map[string]float64{"8.3%": 0.083, "0.1": 0.1, "4/48": 4. / 48, "0": 0, "12 %": 0.12} {
		if g, err := ParseTolerance(in); err != nil || math.Abs(g.Share-want) > 1e-12 {
			t.Errorf("%q is %v, %v", in, g.Share, err)
		}
	}
	for _, in := range []string{"8", "-1%", "x", "100%", "1/0", "1/-4", "NaN", "inf%", "4/2"} {
		if g, err := ParseTolerance(in); err == nil {
			t.Errorf("%q is taken as %v", in, g.Share)
		}
	}
}

// Checks that emulated times are excluded from ratios, from noise relative to a baseline, and from verdicts.
func TestEmulated(t *testing.T) {
	run, samples := synthetic()
	run.Variants[0].Emulated = true // not even as the baseline
	r := reportOf(t, writeRun(t, run, samples), "")
	for _, e := range r.Runs[0].Experiments {
		if e.baseLabel() != "native.44" {
			t.Errorf("%s: the baseline is %s", e.Case.Name, e.baseLabel())
		}
		for _, p := range e.Panels {
			for _, row := range p.Rows {
				for v, c := range row.Cells {
					if run.Variants[v].Emulated && !math.IsNaN(c.Ratio.Median) {
						t.Fatalf("%s: %s has a ratio", e.Case.Name, run.Variants[v].Label)
					}
				}
			}
		}
	}
}

// Checks that a quick run has no verdict, which is stated first, and that its numbers are shown.
func TestQuick(t *testing.T) {
	run, samples := synthetic()
	run.Quick = true
	r := reportOf(t, writeRun(t, run, samples), "")
	for _, e := range r.Runs[0].Experiments {
		for _, v := range e.Verdicts {
			if v.State != None || v.Why != Quick && v.Why != Emulated && !strings.HasPrefix(v.Why, Emulated+";") {
				t.Errorf("%s: %s: %s, %s", e.Case.Name, e.variant(v.Variant).Label, v.State, v.Why)
			}
		}
	}
	if q := r.Runs[0].Experiments[0].Panels[0].Rows[0].Cells[2].Ratio.Median; math.IsNaN(q) {
		t.Error("the ratio is gone")
	}
	const head = "No verdict: a quick run, with too few repetitions for one"
	if got, _ := r.headline(); !strings.HasPrefix(got, head) {
		t.Errorf("the headline is %q", got)
	}
	page := htmlOf(t, r)
	if !strings.Contains(page, head) || strings.Contains(page, "within the tolerance") || strings.Contains(page, "outside the tolerance") {
		t.Error("the page has another verdict")
	}

	// Next to a complete run it does not count.
	run, samples = synthetic()
	r.Runs = append(r.Runs, reportOf(t, writeRun(t, run, samples), "").Runs...)
	if got, _ := r.headline(); !strings.HasSuffix(got, "quick runs not counted") || !strings.Contains(got, " comparisons are within the tolerance") {
		t.Errorf("the headline is %q", got)
	}
}

// Checks a run that was measured natively and in emulated VMs.
func TestMeasured(t *testing.T) {
	r := reportOf(t, filepath.Join("..", "bench", "record", "testdata", "latency"), "000")
	e := r.Runs[0].Experiments[0]
	if len(e.Verdicts) != 1 || e.Verdicts[0].State != None || e.Verdicts[0].Why != Emulated {
		t.Errorf("the verdict is %+v", e.Verdicts)
	}
	page := htmlOf(t, r)
	for _, want := range []string{NotComparable, "The plan of the VMs", "data:image/svg&#43;xml;base64,", "Checks of the machine"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in the page", want)
		}
	}
	if strings.Contains(page, "ratio<th>") {
		t.Error("there is a ratio")
	}
}

func TestJSON(t *testing.T) {
	run, samples := synthetic()
	samples[10].Value, samples[11].OK = 1e308, false
	data, err := json.Marshal(reportOf(t, writeRun(t, run, samples), "").View())
	if err != nil {
		t.Fatal(err)
	}
	var v View
	if err := json.Unmarshal(data, &v); err != nil || len(v.Runs[0].Experiments) != 5 || len(v.Runs[0].Experiments[0].Points) != 23 {
		t.Errorf("%v, %d experiments", err, len(v.Runs[0].Experiments))
	}
}

func TestPlots(t *testing.T) {
	run, samples := synthetic()
	r := reportOf(t, writeRun(t, run, samples), "002")
	dir := t.TempDir()
	for _, format := range []string{"svg", "png"} {
		n, err := r.WritePlots(dir, format, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		files, _ := filepath.Glob(filepath.Join(dir, "*."+format))
		if n != len(files) || n < 14 {
			t.Errorf("%d of %d %s files", len(files), n, format)
		}
	}
}

func TestPaper(t *testing.T) {
	run, samples := synthetic()
	dir := writeRun(t, run, samples)
	for _, name := range []string{"000", "001", "002", "003", "004"} {
		r := reportOf(t, dir, name)
		page := htmlOf(t, r)
		if !strings.Contains(page, "Beside paper "+name) {
			t.Errorf("paper %s is not in the page", name)
		}
	}
	r := reportOf(t, dir, "002")
	var item *PaperItem
	for _, it := range r.Paper.Items {
		if it.Key == "fig 17" {
			item = it
		}
	}
	if !item.measured() || item.Experiments[0].Case.Name != "osu/bw" {
		t.Fatal("figure 17 is not repeated by osu/bw")
	}
	// GB/s are compared with Gb/s.
	for _, l := range item.Lines {
		for name, v := range l.Ours {
			if want := 8 / (1/11.5 + 220/l.X); strings.HasPrefix(name, "osu/bw native.48") && math.Abs(v/want-1) > 0.1 {
				t.Errorf("%v bytes: %v Gb/s, want about %v", l.X, v, want)
			}
		}
	}
	// A claim at a point is compared at that point; gains are relative to the variant without the switch.
	for _, it := range r.Paper.Items {
		if it.Key == "fig 31" && !strings.Contains(strings.Join(it.Claims[0].Ours, ";"), "at nodes = 1") {
			t.Errorf("figure 31: %v", it.Claims[0].Ours)
		}
	}
	// A printed value is compared with the run's best in that unit, and a difference with a difference.
	if ours := strings.Join(item.Claims[0].Ours, ";"); !strings.Contains(ours, "VM.44: ") || !strings.Contains(ours, " Gb/s at most, at ") || !strings.Contains(ours, "VM.2: "+Emulated) {
		t.Errorf("figure 17: %q", ours)
	}
	one := &paper.Claim{Says: "more", Values: []float64{0.4}, Measure: "difference"}
	if ours := strings.Join(item.Experiments[0].values(one, "Gb/s"), ";"); !strings.Contains(ours, " Gb/s more than native.48 at least") {
		t.Errorf("a difference: %q", ours)
	}
	if ours := item.Experiments[0].values(one, "us"); len(ours) != 0 {
		t.Errorf("a bandwidth as a time: %q", ours)
	}
	// Differences from the paper are stated, and unmeasured items are named.
	var text strings.Builder
	if err := r.Text(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"unlike the paper: osu/bw: iterations 10 instead of 1000", "Figure 42, section 4.5", "efficiency of strong scaling", "not measured by the run"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in the text", want)
		}
	}
	if _, err := Build(nil, Options{Paper: "005"}); err == nil {
		t.Error("a paper that there is not")
	}
}

// Checks that results on one host are never compared with a figure between hosts, nor the reverse.
func TestPaperHosts(t *testing.T) {
	for _, c := range []struct {
		paper, item string
		cas         record.Case
		nodes       string
		want        bool
	}{
		{"002", "fig 18", record.Case{Name: "perftest/send_lat", Seed: "002 fig 18"}, "", false},
		{"002", "fig 18", record.Case{Name: "perftest/send_lat", Seed: "002 fig 18", Hosts: 2}, "", true},
		{"004", "fig 11", record.Case{Name: "osu/latency", Seed: "004 fig 11", X: "size"}, "", false},
		{"004", "fig 11", record.Case{Name: "osu/latency", Seed: "004 fig 11", X: "size"}, "2", true},
		{"003", "p 24", record.Case{Name: "osu/latency", Seed: "003 p 24", X: "size"}, "2", false},
		{"003", "p 24", record.Case{Name: "osu/latency", Seed: "003 p 24", X: "size"}, "1", true},
		{"003", "p 24", record.Case{Name: "osu/latency", X: "size"}, "", true},
		{"000", "fig 5", record.Case{Name: "lammps/eam", Seed: "000 fig 5", X: "nodes"}, "4", true}, // with a remark on the hosts
	} {
		run := &record.Run{Version: 1, Variants: []record.Variant{{Label: "native", Kind: "native"}}, Cases: []record.Case{c.cas}}
		point := map[string]string{"size": "8"}
		if c.nodes != "" {
			point["nodes"] = c.nodes
		}
		d, err := Group("x", run, []record.Sample{{Case: c.cas.Name, Variant: "native", Point: point, Value: 1, OK: true}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Build([]*Data{d}, Options{Paper: c.paper})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range r.Paper.Items {
			if it.Key != c.item {
				continue
			}
			if it.measured() != c.want {
				t.Errorf("%s on %q hosts beside %s %s: %v", c.cas.Name, c.nodes, c.paper, c.item, it.measured())
			}
			if c.item == "fig 5" && fmt.Sprint(it.Unlike) != "[lammps/eam: hosts 4 instead of 8]" {
				t.Errorf("unlike: %v", it.Unlike)
			}
		}
	}
}

// Checks that a run of SPEC's programs is compared with each gain that paper 001 prints, by name and at its point.
func TestPaperGains(t *testing.T) {
	run := &record.Run{Version: 1, Variants: []record.Variant{{Label: "native.32", Kind: "native"}, {Label: "VM.32", Kind: "vm"}, {Label: "VM.32.no-vnuma", Kind: "vm", Ablated: []string{"vnuma"}}}}
	var samples []record.Sample
	add := func(name, seed, x, at string, values ...float64) {
		if !slices.ContainsFunc(run.Cases, func(c record.Case) bool { return c.Name == name }) {
			run.Cases = append(run.Cases, record.Case{Name: name, Unit: "s", Metric: "time", Better: "down", Kind: "scaling", X: x, Seed: seed})
		}
		for i, v := range values {
			for rep := range 2 {
				samples = append(samples, record.Sample{Case: name, Variant: run.Variants[i].Label, Rep: rep, Point: map[string]string{x: at}, Value: v, OK: true})
			}
		}
	}
	for _, n := range []string{"4", "16", "32"} {
		add("mpi2007/104_milc", "001 fig 1, 2, 3", "ranks", n, 100, 100, 125)
		add("mpi2007/137_lu", "001 fig 1, 2, 3", "ranks", n, 100, 125, 150)
	}
	for _, name := range []string{"swim", "art", "fma3d", "wupwise", "applu", "equake", "apsi"} {
		add("omp2001/3xx_"+name, "001 fig 3, 4", "threads", "16", 100, 100, 150)
		add("omp2001/3xx_"+name, "001 fig 3, 4", "threads", "64", 100, 100, 121)
	}
	d, err := Group("spec", run, samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build([]*Data{d}, Options{Paper: "001"})
	if err != nil {
		t.Fatal(err)
	}
	gains := 0
	for _, it := range r.Paper.Items {
		for i, c := range it.Claims {
			if it.Item.Claims[i].Of == "gain" {
				gains++
				if len(c.Ours) != 1 || !strings.Contains(c.Ours[0], "VM.32 against VM.32.no-vnuma: +") {
					t.Errorf("%s: %q", c.Says, c.Ours)
				}
			}
			if it.Item.Claims[i].Measure == "mean" && !strings.Contains(c.Ours[0], "+21.0 % on the geometric mean of 7 programs") {
				t.Errorf("the mean: %q", c.Ours)
			}
			if strings.HasPrefix(c.Says, "LU runs at") && fmt.Sprint(c.Ours) != "[mpi2007/137_lu, VM.32: −20.0 % at ranks = 4, −20.0 % at worst (ranks = 4) mpi2007/137_lu, VM.32.no-vnuma: −33.3 % at ranks = 4, −33.3 % at worst (ranks = 4)]" {
				t.Errorf("LU: %v", c.Ours)
			}
		}
	}
	if gains != 15 {
		t.Errorf("%d gains", gains)
	}
}

// Checks that a cloud's VMs are compared with nearmetal's by their ratio, without a verdict, and never as the
// baseline.
func TestPaperCloud(t *testing.T) {
	run := &record.Run{Version: 1, Cases: []record.Case{{Name: "osu/bw", Unit: "MB/s", Metric: "bandwidth", Better: "up", Kind: "size", X: "size", Seed: "003 p 24"}},
		Variants: []record.Variant{{Label: "EC2.c3", Kind: "vm", Foreign: true, Host: &record.Host{CPU: "a cloud's"}}, {Label: "native.8", Kind: "native"}, {Label: "VM.8", Kind: "vm"}}}
	var samples []record.Sample
	for i, v := range []float64{100, 2200, 2000} {
		samples = append(samples, record.Sample{Case: "osu/bw", Variant: run.Variants[i].Label, Point: map[string]string{"size": "65536"}, Value: v, OK: true})
	}
	d, err := Group("cloud", run, samples, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build([]*Data{d}, Options{Paper: "003"})
	if err != nil {
		t.Fatal(err)
	}
	e := r.Runs[0].Experiments[0]
	if e.baseLabel() != "native.8" || e.Verdicts[0].Why != Foreign {
		t.Errorf("the baseline is %s, the cloud's verdict %+v", e.baseLabel(), e.Verdicts[0])
	}
	for _, it := range r.Paper.Items {
		for _, c := range it.Claims {
			if it.Key == "p 24" && c.Printed == "28 ×" && fmt.Sprint(c.Ours) != "[VM.8 against EC2.c3: 20 × at most, at 64 KiB]" {
				t.Errorf("%q", c.Ours)
			}
		}
	}
}

// Checks that a paper needs no run: the text and the page list what can be repeated, and how.
func TestPaperAlone(t *testing.T) {
	for _, name := range paper.Names() {
		r, err := Build(nil, Options{Paper: name, Ways: func(k paper.Key) []string { return []string{"measure " + k.Item} }})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, filepath.Join("testdata", "paper-"+name+".txt"), text.String())
		page := htmlOf(t, r)
		data, err := json.Marshal(r.View())
		if err != nil || !strings.Contains(string(data), `"ways":["measure `+r.Paper.Items[0].Key) {
			t.Errorf("%s as data: %v, %.200s", name, err, data)
		}
		for _, want := range []string{"Paper " + name + ": what there is to repeat, and how", "measure " + r.Paper.Items[0].Key, "from paper " + name} {
			if name == "002" && strings.Count(page, "<figure>") != 4 {
				t.Errorf("%d pictures of printed values, not 4", strings.Count(page, "<figure>"))
			}
			if !strings.Contains(page, want) {
				t.Errorf("%s: %q is not in the page", name, want)
			}
		}
	}
}

// Checks that the items that suites name are in the papers, and that the cases that papers name are in a suite.
func TestSuitesRepeat(t *testing.T) {
	list, err := suite.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	items, cases := map[paper.Key]bool{}, map[string]bool{}
	for _, s := range list {
		for _, e := range s.Experiments {
			cases[s.Name+"/"+e.Name] = true
		}
	}
	for _, name := range paper.Names() {
		p, err := paper.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range p.Items {
			items[paper.Key{Paper: name, Item: it.Key}] = true
			for _, c := range it.Cases {
				if !cases[c] {
					t.Errorf("paper %s, %s: there is no %s", name, it.Key, c)
				}
			}
		}
	}
	for _, s := range list {
		for _, e := range s.Experiments {
			keys := paper.Keys(e.Seed)
			if e.Seed != "" && len(keys) == 0 {
				t.Errorf("%s/%s: %q names no figure", s.Name, e.Name, e.Seed)
			}
			for _, k := range keys {
				if !items[k] {
					t.Errorf("%s/%s: paper %s has no %s", s.Name, e.Name, k.Paper, k.Item)
				}
			}
		}
	}
}

func TestBadRuns(t *testing.T) {
	if _, err := Read(t.TempDir()); err == nil || !strings.Contains(err.Error(), "run.json") {
		t.Errorf("an empty folder: %v", err)
	}
	run, samples := synthetic()
	for name, change := range map[string]func(dir string){
		"newer": func(dir string) { os.WriteFile(filepath.Join(dir, "run.json"), []byte(`{"version": 99}`), 0o644) },
		"cut":   func(dir string) { os.Truncate(filepath.Join(dir, "run.json"), 200) },
		"fifo": func(dir string) {
			os.Remove(filepath.Join(dir, "run.json"))
			os.Mkdir(filepath.Join(dir, "run.json"), 0o755)
		},
	} {
		dir := writeRun(t, run, samples)
		change(dir)
		if _, err := Read(dir); err == nil {
			t.Errorf("%s is read", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %v", name, err)
		}
	}
}

// Checks that the complete records of a truncated file are kept, and that the page reports the truncation.
func TestCutShort(t *testing.T) {
	run, samples := synthetic()
	dir := writeRun(t, run, samples)
	name := filepath.Join(dir, "samples.jsonl")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, info.Size()/2+7); err != nil {
		t.Fatal(err)
	}
	r := reportOf(t, dir, "")
	if len(r.Runs[0].Notes) == 0 || r.Runs[0].Experiments[0].Samples == 0 {
		t.Fatalf("notes %v, %d samples", r.Runs[0].Notes, r.Runs[0].Experiments[0].Samples)
	}
	if page := htmlOf(t, r); !strings.Contains(page, "cut short") {
		t.Error("the page does not say that the file was cut short")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	htmlOf(t, reportOf(t, dir, "002"))
}

// Checks that all names from a data file are text in the page.
func TestHostile(t *testing.T) {
	run, samples := synthetic()
	evil := `<script>alert(1)</script><img src=x onerror=alert(1)>"'&\u202e` + "\x1b[2J"
	run.ID, run.Host.Name, run.Host.CPU, run.Nearmetal = evil, evil, evil, evil
	run.Host.Versions = map[string]string{evil: evil}
	run.Slurm = map[string]string{evil: evil}
	run.Command = []string{evil}
	run.PlanSVG = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`
	run.Checks = json.RawMessage(`["</pre><script>alert(1)</script>"]`)
	label := map[string]string{}
	for i := range run.Variants {
		label[run.Variants[i].Label] = run.Variants[i].Label + evil
		run.Variants[i].Label += evil
		run.Variants[i].Description = evil
	}
	names := map[string]string{}
	for i := range run.Cases {
		c := &run.Cases[i]
		names[c.Name] = c.Name + evil
		c.Name, c.Title, c.Program, c.Metric, c.Unit, c.Seed = c.Name+evil, evil, evil, evil, evil, evil
		c.Command = []string{evil}
	}
	for i := range samples {
		s := &samples[i]
		s.Case, s.Variant = names[s.Case], label[s.Variant]
		point := map[string]string{evil: evil}
		for k, v := range s.Point {
			point[k] = v
		}
		s.Point = point
		if i%50 == 0 {
			s.OK, s.Error = false, evil
		}
	}
	d, err := Group("hostile", run, samples, []string{evil})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Build([]*Data{d}, Options{Paper: "002"})
	if err != nil {
		t.Fatal(err)
	}
	page := htmlOf(t, r)
	if strings.Contains(page, "<script>") || strings.Contains(page, "<img src=x") {
		t.Error("a name became markup")
	}
	var text bytes.Buffer
	r.Text(&text, false)
	if strings.Contains(text.String(), "\x1b") {
		t.Error("a name controls the terminal")
	}
	dir := t.TempDir()
	if _, err := r.WritePlots(dir, "svg", func(name string) {
		if filepath.Base(name) != name || strings.HasPrefix(name, ".") {
			t.Errorf("a file is called %q", name)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestOddValues(t *testing.T) {
	for _, v := range []float64{0, -1, 1e308, 5e-324, math.NaN(), math.Inf(1)} {
		run, samples := synthetic()
		for i := range samples {
			if i%3 == 0 {
				samples[i].Value = v
			}
		}
		d, err := Group("odd", run, samples, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Build([]*Data{d}, Options{Paper: "002"})
		if err != nil {
			t.Fatal(err)
		}
		page := htmlOf(t, r)
		for _, bad := range []string{"NaN", "Inf ", ">+Inf"} {
			if strings.Contains(page, bad) {
				i := strings.Index(page, bad)
				t.Errorf("%v: %s is in the page: %s", v, bad, page[max(0, i-100):i+20])
			}
		}
		r.Text(io.Discard, true)
		for _, f := range r.Figures() {
			f.Scene().SVG(io.Discard)
		}
	}
}

func FuzzRead(f *testing.F) {
	run, samples := synthetic()
	data, _ := json.Marshal(run)
	var lines bytes.Buffer
	e := json.NewEncoder(&lines)
	for i := 0; i < len(samples); i += 40 {
		e.Encode(&samples[i])
	}
	f.Add(data, lines.Bytes())
	f.Add([]byte(`{"version":1,"variants":[{"label":"a"}],"cases":[{"name":"c","kind":"size","x":"size"}]}`), []byte(`{"case":"c","variant":"a","point":{"size":"1e999"},"value":1e308,"ok":true}`))
	f.Add([]byte(`{"version":1}`), []byte("{\n"))
	f.Fuzz(func(t *testing.T, runJSON, samples []byte) {
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "run.json"), runJSON, 0o644)
		os.WriteFile(filepath.Join(dir, "samples.jsonl"), samples, 0o644)
		d, err := Read(dir)
		if err != nil {
			return
		}
		r, err := Build([]*Data{d}, Options{Paper: "002"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.HTML(io.Discard, "fuzz"); err != nil {
			t.Fatal(err)
		}
		r.Text(io.Discard, false)
		if _, err := json.Marshal(r.View()); err != nil {
			t.Fatal(err)
		}
	})
}

// Checks that a picture has the paper's numbers and the run's in one frame: at their points, or along the axis.
func TestPaperPlots(t *testing.T) {
	run, samples := synthetic()
	r := reportOf(t, writeRun(t, run, samples), "002")
	for _, it := range r.Paper.Items {
		if it.Key != "fig 31" {
			continue
		}
		f := it.Plots[0]
		last := f.Series[len(f.Series)-1]
		if len(it.Plots) != 1 || last.Name != "the paper" || len(last.Points) != 2 || last.Points[0].X != 1 || math.Abs(last.Points[0].Y+0.088) > 1e-9 && math.Abs(last.Points[0].Y+0.099) > 1e-9 {
			t.Errorf("%d plots, %+v", len(it.Plots), last)
		}
		if s := f.Series[0]; s.Name != "native.44" || len(s.Points) != 5 || s.Points[0].Y > -0.01 || s.Points[0].Y < -0.1 {
			t.Errorf("%+v", s)
		}
		var b bytes.Buffer
		f.Legend = true
		if err := f.Scene().SVG(&b); err != nil || !strings.Contains(b.String(), "the paper") {
			t.Errorf("the picture does not name the paper: %v", err)
		}
	}
}

// plotsOf builds the pictures of an item for a run with the values of one case: points by variant.
func plotsOf(t *testing.T, name, key string, cases []record.Case, variants []record.Variant, x string, points map[string][]float64) []*chart.Figure {
	t.Helper()
	run := &record.Run{Version: 1, Cases: cases, Variants: variants}
	var samples []record.Sample
	for at, values := range points {
		for i, v := range values {
			for c := range cases {
				samples = append(samples, record.Sample{Case: cases[c].Name, Variant: variants[i].Label, Point: map[string]string{x: at}, Value: v, OK: true})
			}
		}
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
		if it.Key == key {
			return it.Plots
		}
	}
	t.Fatalf("no item %s", key)
	return nil
}

// Checks values, differences, ratios to a cloud, and grouped programs: each has the paper's and the run's in one
// frame.
func TestPaperValuePlots(t *testing.T) {
	native, vm := record.Variant{Label: "native", Kind: "native"}, record.Variant{Label: "VM", Kind: "vm"}
	cloud := record.Variant{Label: "EC2", Kind: "vm", Foreign: true, Host: &record.Host{}}
	bare := record.Variant{Label: "VM.no-vnuma", Kind: "vm", Ablated: []string{"vnuma"}}
	var spec []record.Case
	for _, p := range []string{"312.swim", "330.art", "318.galgel", "320.equake"} {
		spec = append(spec, record.Case{Name: "specomp/" + p, Unit: "s", Metric: "time", Better: "down", Kind: "scaling", X: "threads", Seed: "001 fig 3; 001 fig 4"})
	}
	for _, c := range []struct {
		paper, key string
		cases      []record.Case
		variants   []record.Variant
		x          string
		points     map[string][]float64
		plots      int
		series     string // name of a series, and its y values
		ys         []float64
	}{
		{"000", "fig 1", []record.Case{{Name: "perftest/read_lat", Unit: "us", Metric: "latency", Better: "down", Kind: "size", X: "size", Seed: "000 fig 1", Hosts: 2}},
			[]record.Variant{native, vm}, "size", map[string][]float64{"2": {2, 2.5}, "4": {2, 2.25}}, 2, "the paper: 0.8 µs", []float64{0.8, 0.8}},
		{"000", "fig 1", []record.Case{{Name: "perftest/read_lat", Unit: "us", Metric: "latency", Better: "down", Kind: "size", X: "size", Seed: "000 fig 1", Hosts: 2}},
			[]record.Variant{native, vm}, "size", map[string][]float64{"2": {2, 2.5}, "4": {2, 2.25}}, 2, "VM", []float64{0.5, 0.25}},
		{"002", "fig 18", []record.Case{{Name: "perftest/send_lat", Unit: "us", Metric: "latency", Better: "down", Kind: "size", X: "size", Seed: "002 fig 18", Hosts: 2}},
			[]record.Variant{native, vm}, "size", map[string][]float64{"2": {1, 1.2}}, 1, "the paper: 1.1 µs", []float64{1.1, 1.1}},
		{"003", "p 24", []record.Case{{Name: "osu/bw", Unit: "MB/s", Metric: "bandwidth", Better: "up", Kind: "size", X: "size", Seed: "003 p 24"}},
			[]record.Variant{native, vm, cloud}, "size", map[string][]float64{"8": {20, 18, 1}, "16": {40, 36, 3}}, 2, "VM against EC2", []float64{18, 12}},
		{"003", "p 24", []record.Case{{Name: "osu/bw", Unit: "MB/s", Metric: "bandwidth", Better: "up", Kind: "size", X: "size", Seed: "003 p 24"}},
			[]record.Variant{native, vm, cloud}, "size", map[string][]float64{"8": {20, 18, 1}, "16": {40, 36, 3}}, 2, "the paper: 28 ×", []float64{28, 28}},
		{"004", "fig 12", []record.Case{{Name: "hpl/linpack", Unit: "GFLOP/s", Metric: "performance", Better: "up", Kind: "sweep", X: "n", Seed: "004 fig 12"}},
			[]record.Variant{native, vm}, "n", map[string][]float64{"1000": {50, 45}, "5000": {90, 80}}, 1, "the paper: 134.4 Gflop/s, calculated peak", []float64{134.4, 134.4}},
		{"001", "fig 4", spec, []record.Variant{native, vm, bare}, "threads", map[string][]float64{"16": {10, 10, 20}, "64": {5, 5, 6}}, 2, "VM against VM.no-vnuma", []float64{1, 1, 1}},
		{"001", "fig 4", spec, []record.Variant{native, vm, bare}, "threads", map[string][]float64{"16": {10, 10, 20}, "64": {5, 5, 6}}, 2, "the paper", []float64{1.67, 0.56, 0.3}},
		{"001", "fig 3", spec, []record.Variant{native, vm}, "threads", map[string][]float64{"16": {10, 10}, "64": {5, 4}}, 4, "VM", []float64{1, 2.5}},
	} {
		list := plotsOf(t, c.paper, c.key, c.cases, c.variants, c.x, c.points)
		if len(list) != c.plots {
			t.Errorf("%s %s: %d pictures, want %d", c.paper, c.key, len(list), c.plots)
		}
		found := false
		for _, f := range list {
			for _, s := range f.Series {
				var ys []float64
				for _, p := range s.Points {
					ys = append(ys, math.Round(p.Y*1000)/1000)
				}
				found = found || s.Name == c.series && slices.Equal(ys, c.ys)
			}
			var b bytes.Buffer
			f.Legend = true
			if err := f.Scene().SVG(&b); err != nil {
				t.Error(err)
			}
			if dir := os.Getenv("NEARMETAL_SHOTS"); dir != "" {
				b.Reset()
				if err := f.Scene().PNG(&b); err != nil {
					t.Error(err)
				}
				if err := os.WriteFile(filepath.Join(dir, c.paper+"-"+f.Name+".png"), b.Bytes(), 0o644); err != nil {
					t.Error(err)
				}
			}
		}
		if !found {
			for _, f := range list {
				t.Errorf("%s %s: no %s %v in %q: %+v", c.paper, c.key, c.series, c.ys, f.Title, f.Series)
			}
		}
	}
}

// Checks the texts and pages of nearmetal's recorded runs: native ones, one of them with a time limit that chose its
// size, and one in two VMs, with all suites whose programs come from apt, PyPI or a build.
func TestRecorded(t *testing.T) {
	for _, c := range []struct {
		name, paper string
		runs        int
	}{{"recorded", "000", 2}, {"recorded-vm", "003", 1}} {
		dirs, err := filepath.Glob("testdata/" + c.name + "/*")
		if err != nil || len(dirs) != c.runs {
			t.Fatal(dirs, err)
		}
		var list []*Data
		for _, dir := range dirs {
			d, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, d)
		}
		r, err := Build(list, Options{Paper: c.paper, Now: time.Date(2026, 11, 25, 2, 0, 0, 0, time.UTC)})
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, "testdata/"+c.name+".txt", text.String())
		golden.Check(t, "testdata/"+c.name+".html", htmlOf(t, r))
	}
}
