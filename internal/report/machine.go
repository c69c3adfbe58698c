package report

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"sort"
	"strings"

	"nearmetal/internal/report/chart"
	"nearmetal/internal/words"
)

type machineView struct {
	ID, Title               string
	Facts, Variants         []factView
	Pictures                []pictureView
	Checks                  []checkView
	CheckSummary, RawChecks string
	Versions                []factView
}

type pictureView struct {
	Name string
	URL  template.URL
}

type checkView struct {
	Title  string `json:"title"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Wanted string `json:"wanted"`
}

// mostRaw is how much of checks in an unknown format is shown, in bytes.
const mostRaw = 64 << 10

func machine(run *RunReport, index int) machineView {
	r := &run.Run
	h := &r.Host
	m := machineView{ID: fmt.Sprintf("r%d-machine", index+1), Title: "The machine"}
	if h.Name != "" {
		m.Title += ": " + h.Name
	}
	add := func(name, value string, code bool) {
		if value != "" && value != "0" {
			m.Facts = append(m.Facts, factView{name, value, code})
		}
	}
	add("CPU", h.CPU, false)
	cores := words.Count(h.Cores, "core", "cores") + ", " + words.Count(h.Threads, "hardware thread", "hardware threads")
	if h.Nodes > 0 {
		cores += ", " + words.Count(h.Nodes, "NUMA node", "NUMA nodes")
	}
	add("Cores", cores, false)
	if h.MemoryBytes > 0 {
		add("Memory", chart.Bytes(float64(h.MemoryBytes)), false)
	}
	add("Kernel", h.Kernel, false)
	acceleration := h.Acceleration
	if acceleration == "tcg" {
		acceleration = "tcg; " + Emulated
	}
	add("Acceleration", acceleration, false)
	add("Run", r.ID, true)
	add("Command", strings.Join(r.Command, " "), true)
	add("nearmetal", r.Nearmetal, false)
	if !r.Started.IsZero() {
		span := r.Started.UTC().Format("2006-01-02 15:04:05 UTC")
		if !r.Ended.IsZero() {
			span += " to " + r.Ended.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		add("Measured", span, false)
	}
	if len(r.SSHHosts) > 0 {
		add("VMs on", strings.Join(r.SSHHosts, ", ")+", reached by ssh", false)
	}
	for _, k := range sortedKeys(r.Slurm) {
		add("Slurm "+k, r.Slurm[k], false)
	}
	for i := range r.Variants {
		m.Variants = append(m.Variants, factView{Name: r.Variants[i].Label, Value: describe(&r.Variants[i])})
	}
	if r.PlanSVG != "" {
		m.Pictures = append(m.Pictures, pictureView{"The plan of the VMs", svgURL(r.PlanSVG)})
	}
	if h.Topology != "" {
		m.Pictures = append(m.Pictures, pictureView{"What the machine has", svgURL(h.Topology)})
	}
	m.checks(r.Checks)
	for _, k := range sortedKeys(h.Versions) {
		m.Versions = append(m.Versions, factView{Name: k, Value: h.Versions[k]})
	}
	return m
}

// svgURL embeds a picture from data as an image, so that it cannot run scripts or load resources.
func svgURL(svg string) template.URL {
	return template.URL("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString([]byte(svg)))
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

// checks parses the output of nearmetal check --json; other data is shown unchanged.
func (m *machineView) checks(data json.RawMessage) {
	if len(data) == 0 || string(data) == "null" {
		return
	}
	var all struct {
		Rows []checkView `json:"rows"`
	}
	if err := json.Unmarshal(data, &all); err != nil || len(all.Rows) == 0 {
		text := string(data)
		if len(text) > mostRaw {
			text = text[:mostRaw] + " …"
		}
		m.RawChecks = text
		return
	}
	m.Checks = all.Rows
	count := map[string]int{}
	for _, c := range all.Rows {
		count[c.Status]++
	}
	var parts []string
	for status, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, status))
	}
	sort.Strings(parts)
	m.CheckSummary = words.Count(len(all.Rows), "check", "checks") + ": " + strings.Join(parts, ", ") + "."
}
