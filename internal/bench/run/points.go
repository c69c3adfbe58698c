package run

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/bench/suite"
	"nearmetal/internal/host"
	"nearmetal/internal/spec"
	"nearmetal/internal/words"
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

// maxPoints bounds the points of an experiment.
const maxPoints = 10_000

// choose returns the requested values of a parameter.
func (q *Request) choose(e *suite.Experiment, p suite.Parameter) []string {
	if p.Chosen != nil {
		return p.Chosen
	}
	if v, ok := q.Fitted[e.Name+"."+p.Name]; ok {
		return v
	}
	if v, ok := q.set(e, p.Name); ok {
		return v
	}
	if v := q.printed(p, q.Paper); v != nil && !q.Quick {
		return v
	}
	if q.Quick && p.Quick != nil {
		return p.Quick
	}
	return p.Values
}

// printed returns a paper's values of a parameter on the run's number of hosts, or on any; nil: none.
func (q *Request) printed(p suite.Parameter, name string) []string {
	if v := p.Papers[name+"@"+strconv.Itoa(q.Variants[0].nodes())]; v != nil {
		return v
	}
	return p.Papers[name]
}

// note returns the differences of an experiment from a paper, in a run of the paper's sizes on as many hosts.
func (q *Request) note(e *suite.Experiment, name string) string {
	if name == "" || name != q.Paper {
		return ""
	}
	return q.noteOn(e, q.Variants[0].nodes())
}

func (q *Request) noteOn(e *suite.Experiment, nodes int) string {
	if q.Quick {
		return ""
	}
	if v, ok := e.Notes[q.Paper+"@"+strconv.Itoa(nodes)]; ok {
		return v
	}
	return e.Notes[q.Paper]
}

// Notes returns lines on the experiments' differences from the paper whose sizes are run, on a number of nodes.
func (q *Request) Notes(nodes int) []string {
	var out []string
	for _, s := range q.Suites {
		for i := range s.Experiments {
			if note := q.noteOn(&s.Experiments[i], nodes); note != "" {
				out = append(out, fmt.Sprintf("%s/%s: unlike paper %s: %s", s.Name, s.Experiments[i].Name, q.Paper, note))
			}
		}
	}
	return out
}

// asked reports whether the numbers of ranks were requested, by --set or by a paper.
func (q *Request) asked(e *suite.Experiment) bool {
	if _, ok := q.set(e, "ranks"); ok {
		return true
	}
	for _, p := range e.Sweep {
		if p.Name == "ranks" && q.printed(p, q.Paper) != nil && !q.Quick {
			return true
		}
	}
	return false
}

// set returns the values of --set for a parameter of an experiment.
func (q *Request) set(e *suite.Experiment, name string) ([]string, bool) {
	for _, key := range []string{e.Name + "." + name, name} {
		if v, ok := q.Set[key]; ok {
			return v, true
		}
	}
	return nil, false
}

// differs returns, for each paper with values in a suite, how the run differs from them; a paper without values is
// omitted.
func (q *Request) differs(e *suite.Experiment) map[string]string {
	words := map[string][]string{}
	for _, p := range slices.Concat(e.Parameters, e.Sweep) {
		ours := strings.Join(q.choose(e, p), ",")
		for key := range p.Papers {
			name, _, at := strings.Cut(key, "@")
			if _, both := p.Papers[name]; at && both {
				continue // already reported
			}
			if theirs := strings.Join(q.printed(p, name), ","); theirs != "" && theirs != ours {
				words[name] = append(words[name], fmt.Sprintf("%s %s instead of %s", p.Name, ours, theirs))
			}
		}
	}
	if note := q.note(e, q.Paper); note != "" {
		words[q.Paper] = append(words[q.Paper], note)
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

// points returns every combination of an experiment's swept parameters, the last one varying fastest. least is the
// fewest cores of a variant, same means that all have as many.
func (q *Request) points(e *suite.Experiment, least int, same bool) ([]point, error) {
	out := []point{{}}
	job, asked := q.Variants[0].Step, q.asked(e)
	if job != nil {
		out = []point{{"nodes": strconv.Itoa(job.Nodes)}}
	}
	for _, p := range e.Sweep {
		if job != nil && (p.Name == "ranks" && !asked || p.Name == "nodes") {
			continue // a rank per core of all the job's nodes, or per group of cores for its threads
		}
		values, err := q.spread(e, p, least, same)
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
	for _, p := range out {
		if err := q.laidOut(e, p); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", e.Name, p, err)
		}
	}
	return out, nil
}

// spread returns a swept parameter's values. Numbers of ranks that nobody requested follow the program's rule.
func (q *Request) spread(e *suite.Experiment, p suite.Parameter, least int, same bool) ([]string, error) {
	values, err := suite.Spread(q.choose(e, p), least, same)
	if err != nil {
		return nil, err
	}
	if p.Name == "ranks" && e.RanksRule != "" && !q.asked(e) {
		if q.choose(e, p)[0] == "1..all" && e.RanksRule == "square" { // doubling matches few of them
			values = nil
			for n := 1; n*n <= least; n++ {
				values = append(values, strconv.Itoa(n*n))
			}
		}
		for i, v := range values {
			n, err := suite.Count(v, least)
			if err != nil {
				return nil, err
			}
			values[i] = strconv.Itoa(suite.MostRanks(e.RanksRule, n))
		}
	}
	for i, v := range values {
		if v != suite.AllMemory {
			continue
		}
		nb := ""
		for _, other := range e.Parameters {
			if list := q.choose(e, other); other.Name == "nb" && len(list) > 0 {
				nb = list[0]
			}
		}
		if values[i], err = suite.Order(q.memory(), nb); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// memory returns the least total memory of the programs of a variant, on all hosts, in bytes.
func (q *Request) memory() uint64 {
	least := uint64(math.MaxUint64)
	for i := range q.Variants {
		v := &q.Variants[i]
		have := uint64(v.MemoryBytes)
		if v.Kind != "vm" || have == 0 {
			var err error
			if have, err = host.AvailableMemory(); err != nil {
				have = 1 << 30
			}
		}
		least = min(least, have*uint64(v.nodes()))
	}
	return least
}

// laidOut returns an error if a point's ranks are impossible: the program does not support that number, or a job does
// not have that many cores.
func (q *Request) laidOut(e *suite.Experiment, p point) error {
	if e.Launch != "mpi" {
		return nil
	}
	most, fit := 0, false
	var need int
	for i := range q.Variants {
		v := &q.Variants[i]
		values, err := q.values(e, p, v)
		if err != nil {
			return err
		}
		ranks, err := suite.Count(values["ranks"], v.total())
		if err != nil {
			return err
		}
		threads, err := suite.Count(values["threads"], v.total())
		if err != nil {
			return err
		}
		if !suite.TakesRanks(e.RanksRule, ranks) {
			return fmt.Errorf("it takes a number of ranks that is a %s, and %d is none: ask for %d or %d (--set ranks=%[3]d)", e.RanksRule, ranks,
				suite.MostRanks(e.RanksRule, ranks), suite.NextRanks(e.RanksRule, ranks))
		}
		most, need, fit = max(most, v.total()), ranks*threads, fit || ranks*threads <= v.total()
	}
	if q.Variants[0].Step != nil && !fit {
		return fmt.Errorf("it takes %d cores and the job has at most %d for a variant", need, most)
	}
	return nil
}

// fitting stores in q.Fitted the largest values that fit instead of those that need more memory than available.
// Values requested by --set are an error instead. said has a line for each replaced one.
func (q *Request) fitting(e *suite.Experiment) (said []string, err error) {
	for _, p := range e.Sweep {
		needs := map[string]uint64{}
		for value, size := range e.Memory[p.Name] {
			n, err := spec.ParseSize(size)
			if err != nil {
				return nil, err
			}
			needs[value] = uint64(n)
		}
		_, asked := q.set(e, p.Name)
		have, replaced := q.memory(), false
		var out []string
		for _, v := range q.choose(e, p) {
			if needs[v] > have {
				best := ""
				for other, need := range needs {
					if need <= have && (best == "" || need > needs[best]) {
						best = other
					}
				}
				line := fmt.Sprintf("%s: %s %s takes at least %s, and a variant has %s", e.Name, p.Name, v, words.Bytes(needs[v]), words.Bytes(have))
				if asked || best == "" {
					return nil, errors.New(line)
				}
				said = append(said, fmt.Sprintf("%s: %s %s is run instead", line, p.Name, best))
				v, replaced = best, true
			}
			if !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
		if replaced {
			if q.Fitted == nil {
				q.Fitted = map[string][]string{}
			}
			q.Fitted[e.Name+"."+p.Name] = out
		}
	}
	return said, nil
}

// emulated returns a parameter's value in emulated VMs, if it has a separate one.
func (q *Request) emulated(e *suite.Experiment, p suite.Parameter) (value string, ok bool) {
	_, all := q.Set[p.Name]
	_, one := q.Set[e.Name+"."+p.Name]
	if p.Emulated == nil || all || one {
		return "", false
	}
	return p.Emulated[0], true
}

// smaller returns what emulated VMs run instead, like "cells 4 instead of 64"; "": there are none, or they run the
// same.
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

// values returns the values of the names in braces, for one variant at one point.
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
		if value == suite.AllGrid || value == suite.AllBlock || value == suite.Rest {
			out[name] = value // set below, from the ranks and threads
			continue
		}
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
	rest := out["threads"] == suite.Rest
	if rest {
		out["threads"] = "1" // until the ranks are known
	}
	threads, err := count(e, "threads", e.Threads, out, v)
	if err != nil {
		return nil, err
	}
	for name, value := range out {
		if value == suite.AllGrid {
			out[name] = suite.Grid(max(1, v.total()/threads))
		}
	}
	if _, ok := p["ranks"]; v.Step != nil && !ok {
		out["ranks"] = strconv.Itoa(suite.MostRanks(e.RanksRule, max(1, v.total()/threads)))
	}
	for name, value := range out {
		if value != suite.AllBlock {
			continue
		}
		n, err := strconv.Atoi(out["n"])
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s needs a parameter n, the matrix's order: %w", e.Name, name, value, err)
		}
		nb, err := suite.Block(n, out["grid"])
		if err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", e.Name, name, value, err)
		}
		out[name] = strconv.Itoa(nb)
	}
	ranks, err := count(e, "ranks", e.Ranks, out, v)
	if rest && err == nil {
		out["threads"] = strconv.Itoa(max(1, v.total()/ranks))
	}
	return out, err
}

// count evaluates an experiment's ranks or threads, adds them to the values and returns them.
func count(e *suite.Experiment, name, expression string, out map[string]string, v *Variant) (int, error) {
	if expression == "" { // a program that starts its own ranks has their number as a parameter
		if _, ok := out[name]; ok {
			expression = "{" + name + "}"
		} else {
			expression = "1"
		}
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

// total returns the number of cores of a variant's programs, on all hosts.
func (v *Variant) total() int { return max(1, v.Cores) * v.nodes() }

func (v *Variant) nodes() int {
	if v.Step != nil {
		return v.Step.Nodes
	}
	return max(1, v.Hosts)
}

// fits reports whether a variant has the cores that a point of an MPI program requires; VMs and hosts with fewer
// cores than another variant skip its largest points.
func fits(e *suite.Experiment, values map[string]string, v *Variant, most int) bool {
	ranks, err1 := suite.Count(values["ranks"], v.total())
	threads, err2 := suite.Count(values["threads"], v.total())
	if err1 != nil || err2 != nil {
		return true // the step itself will report it
	}
	need := ranks * threads
	return need <= v.total() || need > most
}
