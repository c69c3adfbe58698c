package run

import (
	"fmt"
	"strings"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
)

// experiment is one of the request's experiments, with the programs that were found for it.
type experiment struct {
	suite  *suite.Suite
	def    suite.Experiment
	size   int // 0: as requested; more: the smaller ones of a run with a time limit
	prog   suite.Program
	paths  map[int]string // of the program, by variant
	points []point
	cases  []record.Case
	names  []string // of its cases, by output
}

// step is one repetition.
type step struct {
	exp, point, variant int
	rep                 int // below 0: a warm-up
}

func (s step) key() string {
	return fmt.Sprintf("%d/%d/%d/%d", s.exp, s.point, s.variant, s.rep)
}

// schedule returns all steps in their order: at each point the variants alternate, A B A B, if all of them can be up
// at once. VMs of two variants cannot (they would share the CPUs to which each is pinned). With more than one such
// variant there are rounds: in each, every variant's VMs are booted once and run all points.
func (r *runner) schedule() []step {
	vms := 0
	for _, v := range r.request.Variants {
		if v.Spec != nil {
			vms++
		}
	}
	var out []step
	if vms <= 1 {
		for e := range r.exps {
			for p := range r.exps[e].points {
				out = append(out, r.turns(e, p)...)
			}
		}
		return out
	}
	most, warm := 0, 0
	for e := range r.exps {
		n, w := r.repetitions(e)
		most, warm = max(most, n), max(warm, w)
	}
	for rep := -warm; rep < most; rep++ {
		for v := range r.request.Variants {
			for e := range r.exps {
				n, w := r.repetitions(e)
				for p := range r.exps[e].points {
					if rep >= -w && rep < n && r.takes(e, p, v) {
						out = append(out, step{e, p, v, rep})
					}
				}
			}
		}
	}
	return out
}

// turns returns the steps of one point: every variant's warm-ups, then alternating repetitions.
func (r *runner) turns(e, p int) []step {
	n, warm := r.repetitions(e)
	var out []step
	for rep := -warm; rep < n; rep++ {
		for v := range r.request.Variants {
			if r.takes(e, p, v) {
				out = append(out, step{e, p, v, rep})
			}
		}
	}
	return out
}

func (r *runner) repetitions(e int) (n, warmup int) {
	n, warmup = r.request.Repetitions, r.request.Warmup
	d := r.exps[e].def
	if d.Repetitions > 0 && !r.request.Quick {
		n = d.Repetitions
	}
	if d.Warmup != nil {
		warmup = *d.Warmup
	}
	if r.request.Traffic {
		warmup = max(warmup, 1) // they count the messages, so that no measured repetition does
	}
	return n, warmup
}

// takes reports whether a variant runs a point of an experiment.
func (r *runner) takes(e, p, v int) bool {
	x, variant := &r.exps[e], &r.request.Variants[v]
	if _, ok := x.paths[v]; !ok {
		return false
	}
	values, err := r.request.values(&x.def, x.points[p], variant)
	return err != nil || fits(&x.def, values, variant, r.most())
}

// most returns the number of cores of the largest variant.
func (r *runner) most() int {
	most := 0
	for i := range r.request.Variants {
		most = max(most, r.request.Variants[i].total())
	}
	return most
}

// describe returns the record's cases of an experiment, and their names by output. overNodes: scaling is over a Slurm
// job's nodes, because no numbers of ranks were requested.
func (x *experiment) describe(overNodes bool) (list []record.Case, names []string) {
	for i, o := range x.prog.Output {
		name := x.suite.Name + "/" + x.def.Name
		if i > 0 {
			name += "." + strings.ReplaceAll(o.Metric, " ", "-")
		}
		title := o.Title
		if title == "" {
			title = x.def.Title
			if i > 0 {
				title += ": " + o.Metric
			}
		}
		if overNodes && (o.Kind == "scaling" || o.X == "ranks") {
			o.Kind, o.X = "scaling", "nodes"
		}
		list = append(list, record.Case{
			Name: name, Title: title, Suite: x.suite.Name, Program: x.prog.Name,
			Metric: o.Metric, Unit: o.Unit, Better: o.Better, Kind: o.Kind, X: o.X, Seed: x.def.Seed, Hosts: x.def.Hosts,
		})
		names = append(names, name)
	}
	return list, names
}
