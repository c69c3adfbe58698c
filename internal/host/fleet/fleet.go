// Package fleet checks many hosts and reports their differences, beginning with the host that differs most.
package fleet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"

	"nearmetal/internal/host/check"
	"nearmetal/internal/lazyregexp"
)

// Bounds of the input: hosts in a list, bytes of a list and of a report.
const (
	mostHosts = 100000
	listMax   = 16 << 20
	reportMax = 4 << 20
)

// Target is the source of a host's report.
type Target struct {
	Host string // name to reach it by; "" for a file
	File string // a collected report
}

// hostName matches names that may be passed to ssh and pdsh: not an option, a list, or a shell word.
var hostName = lazyregexp.New(`^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63}@)?[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}$`)

// ReadList reads the targets of a fleet: the files *.json of a directory; or the lines of a file, each a host or a
// report (a name that ends in .json, relative to the file's directory unless absolute). Blank lines and comments
// after # are ignored.
func ReadList(path string) ([]Target, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		files, err := filepath.Glob(filepath.Join(escape(path), "*.json"))
		if err != nil {
			return nil, err
		}
		var list []Target
		for _, f := range files {
			list = append(list, Target{File: f})
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%s: no *.json in it: nearmetal check --json >%s/$(hostname).json on each host", path, path)
		}
		return list, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := parseList(io.LimitReader(f, listMax), filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("%s:%w", path, err)
	}
	return list, nil
}

// escape converts a directory's name into a pattern that matches only it.
func escape(path string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(path, `\$0`)
}

func parseList(r io.Reader, dir string) ([]Target, error) {
	var list []Target
	seen := map[string]bool{}
	sc := bufio.NewScanner(r)
	for n := 1; sc.Scan(); n++ {
		line, _, _ := strings.Cut(sc.Text(), "#")
		line = strings.TrimSpace(line)
		switch {
		case line == "" || seen[line]:
			continue
		case strings.HasSuffix(line, ".json"):
			p := line
			if !filepath.IsAbs(p) {
				p = filepath.Join(dir, p)
			}
			list = append(list, Target{File: p})
		case hostName().MatchString(line):
			list = append(list, Target{Host: line})
		default:
			return nil, fmt.Errorf("%d: %.60q is neither a host's name nor a .json file", n, line)
		}
		seen[line] = true
		if len(list) > mostHosts {
			return nil, fmt.Errorf("%d: more than %d hosts", n, mostHosts)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf(" %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New(" no hosts in it")
	}
	return list, nil
}

// Host is a host of the fleet, with its report or the reason why it has none.
type Host struct {
	Name   string        `json:"name"`
	Error  string        `json:"error,omitempty"`
	Report *check.Report `json:"report,omitempty"`
}

// Value is one of several answers to a check, and the hosts that have it.
type Value struct {
	Status check.Status `json:"status"`
	Found  string       `json:"found"`
	Hosts  []string     `json:"hosts"`
}

// Difference is a check that hosts answer differently; the most common answer comes first.
type Difference struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Values []Value `json:"values"`
}

// Odd is a host whose answers differ from most hosts'.
type Odd struct {
	Host string   `json:"host"`
	IDs  []string `json:"ids"` // the checks, in their order
}

// Comparison is a fleet compared with itself.
type Comparison struct {
	Hosts       []Host       `json:"hosts"`
	Odd         []Odd        `json:"odd"` // the one with the most differences first
	Differences []Difference `json:"differences"`
}

// Compare compares the reports of the hosts that have one. Hosts keep their order.
func Compare(hosts []Host) *Comparison {
	c := &Comparison{Hosts: hosts, Odd: []Odd{}, Differences: []Difference{}}
	own := map[string]bool{}
	for _, r := range check.Rows() {
		own[r.ID] = r.Own
	}
	type key struct {
		status check.Status
		found  string
	}
	answers := map[string]map[key][]string{}
	titles := map[string]string{}
	var order []string
	add := func(id, title string, k key, host string) {
		if answers[id] == nil {
			answers[id] = map[key][]string{}
			titles[id] = title
			order = append(order, id)
		}
		answers[id][k] = append(answers[id][k], host)
	}
	for _, h := range hosts {
		if h.Report == nil {
			continue
		}
		add("host.cpu", "CPU model", key{check.OK, h.Report.CPU}, h.Name)
		add("host.kernel", "kernel", key{check.OK, h.Report.Kernel}, h.Name)
		for _, r := range h.Report.Rows {
			k := key{r.Status, r.Found}
			if own[r.ID] {
				k.found = ""
			}
			add(r.ID, r.Title, k, h.Name)
		}
	}
	odd := map[string][]string{}
	for _, id := range order {
		if len(answers[id]) < 2 {
			continue
		}
		d := Difference{ID: id, Title: titles[id]}
		for k, names := range answers[id] {
			d.Values = append(d.Values, Value{k.status, k.found, names})
		}
		sort.Slice(d.Values, func(i, j int) bool {
			a, b := d.Values[i], d.Values[j]
			if len(a.Hosts) != len(b.Hosts) {
				return len(a.Hosts) > len(b.Hosts)
			}
			if badness(a.Status) != badness(b.Status) {
				return badness(a.Status) < badness(b.Status) // of two hosts the worse is the odd one
			}
			return a.Found < b.Found
		})
		for _, v := range d.Values[1:] {
			for _, h := range v.Hosts {
				odd[h] = append(odd[h], id)
			}
		}
		c.Differences = append(c.Differences, d)
	}
	for _, h := range hosts {
		if len(odd[h.Name]) > 0 {
			c.Odd = append(c.Odd, Odd{h.Name, odd[h.Name]})
		}
	}
	sort.SliceStable(c.Odd, func(i, j int) bool { return len(c.Odd[i].IDs) > len(c.Odd[j].IDs) })
	return c
}

func badness(s check.Status) int {
	switch s {
	case check.Fail:
		return 3
	case check.Warn:
		return 2
	case check.Unknown:
		return 1
	}
	return 0
}

// Failed reports whether a host has no report, has failed checks, or differs from the others.
func (c *Comparison) Failed() bool {
	for _, h := range c.Hosts {
		if h.Report == nil || h.Report.Failed() {
			return true
		}
	}
	return len(c.Differences) > 0
}
