package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"regexp"
	"strings"
	"sync"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/words"
)

//go:embed page
var pageFiles embed.FS

// pageTemplate escapes everything from data files; only pictures and tables that this package generates are inserted
// unescaped.
var pageTemplate = sync.OnceValue(func() *template.Template {
	t := template.New("page.html").Funcs(template.FuncMap{"tie": together})
	return template.Must(t.ParseFS(pageFiles, "page/page.html"))
})

// Colours of the page, in addition to the palettes of plots.
const (
	sans      = `--sans:system-ui,-apple-system,"Segoe UI","Helvetica Neue","Noto Sans","Liberation Sans","DejaVu Sans",Arial,sans-serif;`
	lightPage = "--back:#f4f6f9;--line:#dfe4ec;--good:#0a6b45;--good-back:#e5f5ed;--good-line:#a5d6bf;--bad:#a8230f;--bad-back:#fdece8;--bad-line:#eeb2a6;--warn:#7a5200;--warn-back:#fdf4dd;--warn-line:#e2c26f;"
	darkPage  = "--back:#0e131c;--line:#2b3444;--good:#6fe0ae;--good-back:#12291f;--good-line:#285f47;--bad:#ff9d8a;--bad-back:#331713;--bad-line:#7a3527;--warn:#f0c766;--warn-back:#2c2411;--warn-line:#6e5922;"
)

// styleSheet returns the page's style; print is always light.
func styleSheet() (template.CSS, error) {
	css, err := pageFiles.ReadFile("page/style.css")
	if err != nil {
		return "", err
	}
	light := lightPage + chart.Light.CSS()
	return template.CSS(":root{" + sans + light + "}@media screen and (prefers-color-scheme:dark){:root{" + darkPage + chart.Dark.CSS() + "}}" +
		chart.Style() + strings.ReplaceAll(string(css), "\n", "")), nil
}

type pageView struct {
	Version, Title, Headline, Lead, Footer string
	Terms                                  []term
	CSS                                    template.CSS
	Overall                                []string
	Notes                                  []noteView
	Glance                                 []glanceView
	Sections                               []sectionView
	Paper                                  *paperView
	Traffic                                []trafficView
	Machines                               []machineView
}

// noteView is a note, or several notes with the same beginning.
type noteView struct {
	Text string
	List []string
}

// unreached starts the notes on experiments that a run with a time limit did not reach.
const unreached = "not reached in the time of the run: "

// notes returns a run's notes; those on unreached experiments are combined into one.
func notes(id string, list []string) []noteView {
	var out []noteView
	at := -1
	for _, note := range list {
		what, ok := strings.CutPrefix(note, unreached)
		switch {
		case !ok:
			out = append(out, noteView{Text: id + ": " + note})
		case at < 0:
			at = len(out)
			out = append(out, noteView{Text: id + ": " + strings.TrimSpace(unreached), List: []string{what}})
		default:
			out[at].List = append(out[at].List, what)
		}
	}
	return out
}

type glanceView struct {
	ID, What string
	Lines    []glanceLine
}

type glanceLine struct {
	State, Badge, Who, Delta, Where string
	Spark                           template.HTML
}

type verdictView struct{ State, Badge, Found, Detail string }

type keyView struct {
	Key  template.HTML
	Name string
}

type plotView struct {
	Caption string
	SVG     template.HTML
}

type factView struct {
	Name, Value string
	Code        bool
}

type sectionView struct {
	ID, Title, Sub, Method, Grid, Tolerance, TableName string
	Verdicts                                           []verdictView
	Legend                                             []keyView
	Plots                                              []plotView
	Table                                              template.HTML
	How                                                []factView
}

// HTML writes the report as one self-contained page. version is nearmetal's own.
func (r *Report) HTML(w io.Writer, version string) error {
	css, err := styleSheet()
	if err != nil {
		return err
	}
	v := &pageView{Version: version, CSS: css}
	budget := tableBudget
	var names []string
	for i, run := range r.Runs {
		names = append(names, run.Run.ID)
		v.Notes = append(v.Notes, notes(run.Run.ID, run.Notes)...)
		for _, e := range run.Experiments {
			e.ID = fmt.Sprintf("r%d-%s", i+1, strings.TrimPrefix(e.ID, fmt.Sprintf("r%d-", i+1)))
			v.Glance = append(v.Glance, e.glance())
			s, err := e.section(&budget)
			if err != nil {
				return err
			}
			v.Sections = append(v.Sections, s)
		}
		sent, err := run.traffic()
		if err != nil {
			return err
		}
		v.Traffic = append(v.Traffic, sent...)
		v.Machines = append(v.Machines, machine(run, i))
	}
	v.Title = "nearmetal report: " + strings.Join(names, ", ")
	from := strings.Join(names, ", ")
	if len(r.Runs) == 0 && r.Paper != nil {
		from = "paper " + r.Paper.Paper.Name
		v.Title = "nearmetal report: " + from
	}
	v.Headline, v.Lead = r.headline()
	v.Overall = r.overall()
	seen := map[term]bool{}
	for _, run := range r.Runs {
		for _, t := range run.terms() {
			if !seen[t] {
				seen[t] = true
				v.Terms = append(v.Terms, t)
			}
		}
	}
	v.Footer = fmt.Sprintf("Made by nearmetal %s on %s from %s.", version, r.Made.UTC().Format("2 January 2006, 15:04 UTC"), from)
	if r.Paper != nil {
		if v.Paper, err = r.Paper.view(); err != nil {
			return err
		}
	}
	return pageTemplate().Execute(w, v)
}

// numberUnit matches a number followed by its unit or sign.
var numberUnit = regexp.MustCompile(`(\d) (%|[KMGT]i?B\b|B\b|[GM]b/s|[num\x{b5}]?s\b|min\b|h\b|[GM]Hz\b|cores\b|nodes\b|ranks\b|processes\b)`)

// together keeps a number and its unit, and a parameter and its value, on one line.
func together(s string) string {
	s = strings.ReplaceAll(s, " = ", "\u00a0=\u00a0")
	return numberUnit.ReplaceAllString(s, "$1\u00a0$2")
}

// headline returns a line with the result, and another with what was compared.
func (r *Report) headline() (string, string) {
	count := map[State]int{}
	total := 0
	for _, run := range r.Runs {
		for _, e := range run.Experiments {
			for _, v := range e.Verdicts {
				if e.variant(v.Variant).Kind == "vm" {
					count[v.State]++
					total++
				}
			}
		}
	}
	judged := total - count[None]
	var head string
	switch {
	case len(r.Runs) == 0 && r.Paper != nil:
		return "Paper " + r.Paper.Paper.Name + ": what there is to repeat, and how", "No run is laid beside it."
	case total == 0:
		head = "Measured natively: nothing in VMs to compare"
	case judged == 0 && r.allEmulated():
		head = NotComparable
	case judged == 0 && r.anyQuick():
		head = "No verdict: " + Quick + " (measure without --quick)"
	case judged == 0:
		head = "No verdict: nothing could be compared"
	case count[Within] == judged && !r.anyQuick():
		head = fmt.Sprintf("Near the metal: all %d comparisons are within the tolerance", judged)
		if judged == 1 {
			head = "Near the metal: the comparison is within the tolerance"
		}
	default:
		head = fmt.Sprintf("%d of %d comparisons are within the tolerance", count[Within], judged)
		var rest []string
		if n := count[Outside]; n > 0 {
			rest = append(rest, fmt.Sprintf("%d outside", n))
		}
		if n := count[Unclear]; n > 0 {
			rest = append(rest, fmt.Sprintf("%d not decided", n))
		}
		if r.anyQuick() {
			rest = append(rest, "quick runs not counted")
		}
		if len(rest) > 0 {
			head += ", " + strings.Join(rest, ", ")
		}
	}
	var on []string
	for _, run := range r.Runs {
		h := &run.Run.Host
		s := h.CPU
		if h.Name != "" {
			s = h.Name + ", " + s
		}
		if h.Cores > 0 {
			s += ", " + words.Count(h.Cores, "core", "cores")
		}
		if !run.Run.Started.IsZero() {
			s += "; measured " + run.Run.Started.UTC().Format("2 January 2006, 15:04 UTC")
		}
		if s != "" {
			on = append(on, strings.Trim(s, ", "))
		}
	}
	return head, strings.Join(on, " · ")
}

// anyQuick reports whether a run has --quick, and therefore no verdict.
func (r *Report) anyQuick() bool {
	for _, run := range r.Runs {
		if run.Run.Quick {
			return true
		}
	}
	return false
}

func (r *Report) allEmulated() bool {
	for _, run := range r.Runs {
		for _, v := range run.Run.Variants {
			if v.Kind == "vm" && !v.Emulated {
				return false
			}
		}
	}
	return true
}

// glance returns the lines of an experiment in the overview.
func (e *Experiment) glance() glanceView {
	out := glanceView{ID: e.ID, What: e.title()}
	for _, v := range e.Verdicts {
		g := glanceLine{State: string(v.State), Badge: v.Badge(), Who: e.variant(v.Variant).Label}
		if v.State == None {
			g.Who += ": " + v.Why
		} else {
			c := &v.Worst.Cells[v.Variant]
			g.Delta = together(Delta(c.Ratio.Median))
			if v.Points > 1 {
				g.Where = "at worst"
				if x := e.xText(v.Worst); x != "" {
					g.Where += ", at " + x
				}
				g.Where = together(g.Where + "; " + Delta(v.Mean) + " on the whole")
			}
			g.Spark = e.sparkline(v)
		}
		out.Lines = append(out.Lines, g)
	}
	if len(out.Lines) == 0 {
		who := "nothing was measured"
		if len(e.Sides) > 0 {
			who = e.variant(e.Sides[0]).Label + " alone"
		}
		out.Lines = append(out.Lines, glanceLine{State: string(None), Badge: "no verdict", Who: who})
	}
	return out
}

// sparkline draws a verdict's ratios over the points.
func (e *Experiment) sparkline(v *Verdict) template.HTML {
	f := chart.Figure{Rules: []chart.Rule{{Low: 1 - v.Tolerance.Share, High: 1}}}
	s := chart.Series{Style: 1}
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			if q := row.Cells[v.Variant].Ratio.Median; !math.IsNaN(q) {
				s.Points = append(s.Points, chart.Point{X: float64(len(s.Points)), Y: q})
			}
		}
	}
	if len(s.Points) < 3 {
		return ""
	}
	f.Series = []chart.Series{s}
	out, err := inline(f.Spark())
	if err != nil {
		return ""
	}
	return out
}

func inline(s *chart.Scene) (template.HTML, error) {
	var b bytes.Buffer
	if err := s.Inline(&b); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil
}

func (e *Experiment) section(budget *int) (sectionView, error) {
	s := sectionView{ID: e.ID, Title: e.title(), Sub: e.Compared(), Method: e.Method()}
	for _, v := range e.Verdicts {
		found, detail := e.words(v)
		s.Verdicts = append(s.Verdicts, verdictView{string(v.State), v.Badge(), together(found), together(capital(detail))})
	}
	if e.Samples > 0 {
		figures := e.figures()
		bars := false
		for _, f := range figures {
			svg, err := inline(f.Scene())
			if err != nil {
				return s, err
			}
			caption := ""
			if f.Small {
				caption = strings.TrimPrefix(strings.TrimPrefix(f.Title, e.title()), ", ")
				caption = strings.TrimPrefix(caption, ": ")
			}
			s.Plots = append(s.Plots, plotView{caption, svg})
			bars = bars || f.Bars
			if len(f.Rules) > 1 {
				s.Tolerance = "tolerance: " + e.toleranceShown().Percent() + ", " + e.toleranceShown().Reason
			}
		}
		switch {
		case len(e.Panels) > 1:
			s.Grid = " many"
		case len(figures) == 1:
			s.Grid = " one"
		}
		for i, v := range e.Sides {
			key, err := inline(chart.Key(i, e.variant(v).Emulated, bars))
			if err != nil {
				return s, err
			}
			s.Legend = append(s.Legend, keyView{key, e.sideName(v)})
		}
		if len(e.Panels) > mostPanels {
			s.Method += fmt.Sprintf(" %d of %d panels are drawn; the table holds all.", mostPanels, len(e.Panels))
		}
	}
	s.TableName, s.Table = e.table(budget)
	s.How = e.how()
	return s, nil
}

// how returns facts about how the experiment was run.
func (e *Experiment) how() []factView {
	c := &e.Case
	out := []factView{{Name: "Experiment", Value: c.Name, Code: true}}
	add := func(name, value string, code bool) {
		if value != "" {
			out = append(out, factView{name, value, code})
		}
	}
	add("Program", c.Program, false)
	add("Command", strings.Join(c.Command, " "), true)
	add("Repeats", c.Seed, false)
	add("Run", e.Run.Run.ID, true)
	shown := 0
	for _, p := range e.Panels {
		for _, row := range p.Rows {
			for _, v := range e.Sides {
				for _, why := range row.Cells[v].Errors {
					if shown++; shown <= 10 {
						add("Failed", e.variant(v).Label+" at "+strings.TrimSpace(e.xText(row)+" "+p.Label)+": "+why, false)
					}
				}
			}
		}
	}
	return out
}
