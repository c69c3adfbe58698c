package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"nearmetal/internal/backend/domain"
	"nearmetal/internal/host/check"
	"nearmetal/internal/topology"
	"nearmetal/internal/words"
)

// Version is the version of Report's JSON form.
const Version = 1

// Report is a domain on a host, row by row. Its JSON form is stable: fields are added, never changed.
type Report struct {
	Version     int                  `json:"version"`
	Domain      string               `json:"domain"`
	Host        string               `json:"host"`
	VCPUs       int                  `json:"vcpus"`
	MemoryBytes uint64               `json:"memoryBytes"`
	Summary     map[check.Status]int `json:"summary"` // rows of each status
	Rows        []Row                `json:"rows"`
	// NoPlace is the reason why the planner finds no placement for such a VM on the host; "": it finds one.
	NoPlace string `json:"noPlace,omitempty"`
	// Lost lists elements and attributes that this program does not know: no row examines them, and Fixed leaves them
	// unchanged.
	Lost []string `json:"lost,omitempty"`
}

// Row is one check of a domain.
type Row struct {
	ID     string       `json:"id"`
	Title  string       `json:"title"`
	Status check.Status `json:"status"`
	Found  string       `json:"found"`
	Wanted string       `json:"wanted"`
	Cost   string       `json:"cost"`
	Source string       `json:"source"` // of Cost
	// Fix is the remedy in words; "": see Lines.
	Fix string `json:"fix,omitempty"`
	// Lines are the lines of XML that Fixed changes for this row: "+ line", "- line", preceded by "in <element>" for
	// those within another element.
	Lines []string `json:"lines,omitempty"`
}

// Failed reports whether a row failed.
func (r *Report) Failed() bool { return r.Summary[check.Fail] > 0 }

// Explain examines a domain on a host. The error names the inconsistent part of the domain.
func Explain(e *Domain, h *topology.Host) (*Report, error) {
	l, err := lay(e, h)
	if err != nil {
		return nil, err
	}
	before, err := domain.Marshal(e.xml)
	if err != nil {
		return nil, oneLine(err)
	}
	r := &Report{
		Version: Version, Domain: e.Name, Host: h.Name, VCPUs: l.vcpus, MemoryBytes: l.bytes + l.plugged, NoPlace: l.why, Lost: e.Lost,
		Summary: map[check.Status]int{check.OK: 0, check.Warn: 0, check.Fail: 0, check.Unknown: 0, check.NotApplicable: 0},
	}
	placed := "" // the first row whose lines are the whole placement
	for i := range rules {
		rule := &rules[i]
		v := rule.verdict(l)
		if rule.place && bad(v.status) && v.fix == "" && !l.keeps && l.want != nil {
			if placed != "" {
				v.fix = "that of " + placed + ": it changes the whole placement"
			} else {
				placed = rule.id
			}
		}
		row := Row{ID: rule.id, Title: rule.title, Status: v.status, Found: printable(v.found), Wanted: rule.wanted, Cost: rule.cost, Source: rule.source, Fix: v.fix}
		if v.cost != "" {
			row.Cost = v.cost
		}
		if rule.fix != nil && bad(v.status) && v.fix == "" {
			d, err := copyOf(e.xml)
			if err != nil {
				return nil, err
			}
			if rule.fix(l, d) {
				after, err := domain.Marshal(d)
				if err != nil {
					return nil, oneLine(err)
				}
				row.Lines = changed(before, after)
			}
		}
		if bad(v.status) && row.Fix == "" && len(row.Lines) == 0 {
			row.Fix = "none on this host: " + l.why
			if l.why == "" {
				row.Fix = "follows from the rows above"
			}
		}
		r.Rows = append(r.Rows, row)
		r.Summary[row.Status]++
	}
	return r, nil
}

func bad(s check.Status) bool { return s == check.Warn || s == check.Fail }

// Fixed returns the domain's XML with all of Explain's changes, and the IDs of the rows that are then right. All
// other bytes stay. It fails if the result cannot be written, or if another row would become worse.
func Fixed(e *Domain, h *topology.Host) (string, []string, error) {
	d, err := copyOf(e.xml)
	if err != nil {
		return "", nil, err
	}
	now := &Domain{Name: e.Name, NoKVM: e.NoKVM, Networks: e.Networks, xml: d}
	var was []check.Status
	for i := range rules {
		// Each row examines the result of the previous ones.
		l, err := lay(now, h)
		if err != nil {
			return "", nil, err
		}
		if i == 0 {
			was = statuses(l)
		}
		if v := rules[i].verdict(l); rules[i].fix != nil && bad(v.status) && v.fix == "" {
			rules[i].fix(l, d)
		}
	}
	l, err := lay(now, h)
	if err != nil {
		return "", nil, err
	}
	var did []string
	for i, s := range statuses(l) {
		switch {
		case rank(s) > rank(was[i]):
			return "", nil, fmt.Errorf("with the lines of all rows %s would be worse: %s; change lines by hand, and explain again", rules[i].id, rules[i].verdict(l).found)
		case bad(was[i]) && !bad(s):
			did = append(did, rules[i].id)
		}
	}
	text, err := e.write(d)
	return text, did, err
}

// write returns the text of e with the changes that make it d.
func (e *Domain) write(d *libvirtxml.Domain) (string, error) {
	before, err := domain.Marshal(e.xml)
	if err != nil {
		return "", oneLine(err)
	}
	after, err := domain.Marshal(d)
	if err != nil {
		return "", oneLine(err)
	}
	text, err := rewrite(e.text, before, after)
	if err != nil {
		return "", oneLine(err)
	}
	// The result must read as intended.
	again, err := Read(strings.NewReader(text))
	if err != nil {
		return "", err
	}
	if got, err := domain.Marshal(again.xml); err != nil || got != after {
		return "", errors.New("the changes cannot be written into this XML: change the lines by hand")
	}
	return text, nil
}

// statuses returns those of all rows.
func statuses(l *laid) []check.Status {
	var list []check.Status
	for i := range rules {
		list = append(list, rules[i].verdict(l).status)
	}
	return list
}

// rank orders statuses: larger is worse.
func rank(s check.Status) int {
	return slices.Index([]check.Status{check.Unknown, check.Warn, check.Fail}, s)
}

// copyOf returns a separate domain with the same content.
func copyOf(d *libvirtxml.Domain) (*libvirtxml.Domain, error) {
	text, err := d.Marshal()
	if err != nil {
		return nil, oneLine(err)
	}
	c := &libvirtxml.Domain{}
	if err := c.Unmarshal(text); err != nil {
		return nil, oneLine(err)
	}
	if c.Devices == nil {
		c.Devices = &libvirtxml.DomainDeviceList{}
	}
	return c, nil
}

// maxDiff bounds the lines that are compared with each other, maxLines those of a row.
const (
	maxDiff  = 1500
	maxLines = 40
)

// changed returns the lines in which two texts differ, with the element that they are in.
func changed(before, after string) []string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for len(a) > head && len(b) > head && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	x, y := a[head:], b[head:]
	if len(x) > maxDiff || len(y) > maxDiff {
		return []string{fmt.Sprintf("%d lines become %d", len(x), len(y))}
	}
	// The longest common subsequence.
	long := make([][]int16, len(x)+1)
	for i := range long {
		long[i] = make([]int16, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				long[i][j] = long[i+1][j+1] + 1
			} else {
				long[i][j] = max(long[i+1][j], long[i][j+1])
			}
		}
	}
	var out []string
	in := ""
	shown := map[string]bool{} // tags that are in out themselves, by mark and index
	add := func(mark string, lines []string, at int) {
		k := above(lines, at)
		if k >= 0 && !shown[fmt.Sprint(mark, k)] {
			if tag := printable(strings.TrimSpace(lines[k])); tag != in {
				in = tag
				out = append(out, "in "+tag)
			}
		}
		shown[fmt.Sprint(mark, at)] = true
		out = append(out, mark+" "+printable(strings.TrimPrefix(lines[at], "  ")))
	}
	for i, j := 0, 0; i < len(x) || j < len(y); {
		switch {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			i, j = i+1, j+1
		case j == len(y) || i < len(x) && long[i+1][j] >= long[i][j+1]:
			add("-", a, head+i)
			i++
		default:
			add("+", b, head+j)
			j++
		}
	}
	if len(out) > maxLines {
		out = append(out[:maxLines:maxLines], fmt.Sprintf("and %d lines more", len(out)-maxLines))
	}
	return out
}

// above returns the line of the element that contains a line, below the domain itself; -1: the domain.
func above(lines []string, at int) int {
	indent := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	mine := indent(lines[at])
	for k := at - 1; k >= 0 && mine > 2; k-- {
		if indent(lines[k]) < mine {
			return k
		}
	}
	return -1
}

// Text formats the report for people, t.Columns wide.
func (r *Report) Text(t check.Text) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s: %d vCPUs, %s\n", r.Domain, r.Host, r.VCPUs, words.Bytes(r.MemoryBytes))
	var parts []string
	for _, s := range []check.Status{check.Fail, check.Warn, check.Unknown, check.OK} {
		if n := r.Summary[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	b.WriteString(strings.Join(parts, ", ") + "\n")
	if r.NoPlace != "" {
		b.WriteString(t.Hanging("no better place is known: " + r.NoPlace))
	}
	if len(r.Lost) > 0 {
		b.WriteString(t.Hanging("not known here, not looked at, and left as it is: " + strings.Join(r.Lost, ", ")))
	}
	b.WriteByte('\n')
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Status == check.NotApplicable && !t.All || t.Problems && !bad(row.Status) {
			continue
		}
		word := fmt.Sprintf("%-7s", row.Status)
		if row.Status == check.NotApplicable {
			word = "-      "
		}
		if t.Paint != nil {
			word = t.Paint(row.Status, word)
		}
		const indent = "          "
		line := t.Wrap(row.ID+": "+row.Found, indent, indent+"  ")
		b.WriteString("  " + word + " " + strings.TrimPrefix(line, indent))
		if !bad(row.Status) {
			continue
		}
		b.WriteString(t.Wrap("wanted: "+row.Wanted, indent, indent+"        "))
		b.WriteString(t.Wrap("cost: "+row.Cost+" ["+row.Source+"]", indent, indent+"      "))
		if row.Fix != "" {
			b.WriteString(t.Wrap("fix: "+row.Fix, indent, indent+"     "))
		}
		for _, line := range row.Lines {
			b.WriteString(indent + line + "\n")
		}
	}
	return b.String()
}

// Fixable reports whether a row has lines that Fixed writes.
func (r *Report) Fixable() bool {
	return slices.ContainsFunc(r.Rows, func(row Row) bool { return len(row.Lines) > 0 })
}
