package run

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/bench/suite"
)

// point is one combination of the swept parameters.
type point map[string]string

func (p point) String() string {
	var words []string
	for k, v := range p {
		words = append(words, k+"="+v)
	}
	sort.Strings(words)
	return strings.Join(words, " ")
}

// maxPoints of an experiment.
const maxPoints = 10_000

// choose returns a parameter's values as the request asks for them.
func (q *Request) choose(e *suite.Experiment, p suite.Parameter) []string {
	if v, ok := q.set(e, p.Name); ok {
		return v
	}
	if v := p.Papers[q.Paper]; v != nil && !q.Quick {
		return v
	}
	if q.Quick && p.Quick != nil {
		return p.Quick
	}
	return p.Values
}

// set returns the values that --set has for a parameter of an experiment.
func (q *Request) set(e *suite.Experiment, name string) ([]string, bool) {
	for _, key := range []string{e.Name + "." + name, name} {
		if v, ok := q.Set[key]; ok {
			return v, true
		}
	}
	return nil, false
}

// differs says for each paper whose values a suite has which of them the run has otherwise; a paper that has none is
// left out.
func (q *Request) differs(e *suite.Experiment) map[string]string {
	words := map[string][]string{}
	for _, p := range slices.Concat(e.Parameters, e.Sweep) {
		ours := strings.Join(q.choose(e, p), ",")
		for name, theirs := range p.Papers {
			if theirs := strings.Join(theirs, ","); theirs != ours {
				words[name] = append(words[name], fmt.Sprintf("%s %s instead of %s", p.Name, ours, theirs))
			}
		}
	}
	var out map[string]string
	for name, list := range words {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = strings.Join(list, ", ")
	}
	return out
}

// points returns every combination of an experiment's swept parameters, the last one varying
// fastest. least is the fewest cores of a variant, same that all have as many.
func (q *Request) points(e *suite.Experiment, least int, same bool) ([]point, error) {
	out := []point{{}}
	job := q.Variants[0].Step
	if job != nil {
		out = []point{{"nodes": strconv.Itoa(job.Nodes)}}
	}
	for _, p := range e.Sweep {
		if job != nil && (p.Name == "ranks" || p.Name == "nodes") {
			continue // a rank a core of all the job's nodes, or for the cores that its threads take
		}
		values, err := suite.Spread(q.choose(e, p), least, same)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", e.Name, p.Name, err)
		}
		seen := map[string]bool{}
		var next []point
		for _, have := range out {
			clear(seen)
			for _, v := range values {
				if seen[v] {
					continue
				}
				seen[v] = true
				more := point{p.Name: v}
				for k, v := range have {
					more[k] = v
				}
				next = append(next, more)
			}
		}
		if out = next; len(out) > maxPoints {
			return nil, fmt.Errorf("%s: more than %d combinations of its parameters", e.Name, maxPoints)
		}
	}
	return out, nil
}

// emulated returns the value that a parameter has in emulated VMs, if that is one of its own.
func (q *Request) emulated(e *suite.Experiment, p suite.Parameter) (value string, ok bool) {
	_, all := q.Set[p.Name]
	_, one := q.Set[e.Name+"."+p.Name]
	if p.Emulated == nil || all || one {
		return "", false
	}
	return p.Emulated[0], true
}

// smaller says what emulated VMs run instead, like "cells 4 instead of 64"; "": there are none, or
// they run the same.
func (q *Request) smaller(e *suite.Experiment) string {
	some := false
	for i := range q.Variants {
		some = some || q.Variants[i].Emulated
	}
	var words []string
	for _, p := range e.Parameters {
		value, ok := q.emulated(e, p)
		if list := q.choose(e, p); some && ok && len(list) > 0 && list[0] != value {
			words = append(words, fmt.Sprintf("%s %s instead of %s", p.Name, value, list[0]))
		}
	}
	return strings.Join(words, ", ")
}

// values returns what the names in braces stand for, for one variant at one point.
func (q *Request) values(e *suite.Experiment, p point, v *Variant) (map[string]string, error) {
	out := map[string]string{}
	for _, par := range e.Parameters {
		if list := q.choose(e, par); len(list) > 0 {
			out[par.Name] = list[0]
		}
		if value, ok := q.emulated(e, par); ok && v.Emulated {
			out[par.Name] = value
		}
	}
	for name, value := range p {
		if strings.HasPrefix(value, "all") {
			n, err := suite.Count(value, v.total())
			if err != nil {
				return nil, err
			}
			value = strconv.Itoa(n)
		}
		out[name] = value
	}
	out["cores"] = strconv.Itoa(v.total())
	if _, ok := out["nodes"]; !ok || v.Step != nil {
		out["nodes"] = strconv.Itoa(v.nodes())
	}
	threads, err := count(e, "threads", e.Threads, out, v)
	if err != nil {
		return nil, err
	}
	if v.Step != nil {
		out["ranks"] = strconv.Itoa(max(1, v.total()/threads))
	}
	_, err = count(e, "ranks", e.Ranks, out, v)
	return out, err
}

// count evaluates an experiment's ranks or threads, puts them among the values and returns them.
func count(e *suite.Experiment, name, expression string, out map[string]string, v *Variant) (int, error) {
	if expression == "" {
		expression = "1"
	}
	text, err := suite.Expand(expression, out)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", e.Name, name, err)
	}
	n, err := suite.Count(text, v.total())
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", e.Name, name, err)
	}
	if _, taken := out[name]; !taken || !strings.Contains(expression, "{"+name+"}") {
		out[name] = strconv.Itoa(n)
	} else {
		out[name] = text
	}
	return n, nil
}

// total is how many cores a variant's programs have, on all hosts.
func (v *Variant) total() int { return max(1, v.Cores) * v.nodes() }

func (v *Variant) nodes() int {
	if v.Step != nil {
		return v.Step.Nodes
	}
	return 1
}

// fits reports whether a variant has the cores that a point of an MPI program asks for; VMs and
// hosts with fewer cores than another variant leave its largest points out.
func fits(e *suite.Experiment, values map[string]string, v *Variant, most int) bool {
	ranks, err1 := suite.Count(values["ranks"], v.total())
	threads, err2 := suite.Count(values["threads"], v.total())
	if err1 != nil || err2 != nil {
		return true // the step itself will say it
	}
	need := ranks * threads
	return need <= v.total() || need > most
}
