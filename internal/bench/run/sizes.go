package run

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"nearmetal/internal/bench/suite"
)

// sizes returns an experiment as requested, and in a run with a time limit also at each of its smaller sizes, the
// largest first. A swept parameter loses its last value first. In a job there is one size, because scaling over nodes
// is that of one problem.
func (q *Request) sizes(e suite.Experiment) []suite.Experiment {
	out := []suite.Experiment{e}
	if q.Time == 0 || q.Quick || q.Variants[0].Step != nil {
		return out
	}
	for n := 1; ; n++ {
		small, changed := e, false
		at := func(list []suite.Parameter) []suite.Parameter {
			list = slices.Clone(list)
			for i := range list {
				steps := q.ladder(&e, list[i])
				if len(steps) > 0 {
					list[i].Chosen = steps[min(n, len(steps))-1]
					changed = changed || n <= len(steps)
				}
			}
			return list
		}
		small.Parameters, small.Sweep = at(e.Parameters), at(e.Sweep)
		if !changed {
			return out
		}
		out = append(out, small)
	}
}

// ladder returns a parameter's values at each smaller size of its experiment; nil: the same at all.
func (q *Request) ladder(e *suite.Experiment, p suite.Parameter) [][]string {
	if _, asked := q.set(e, p.Name); asked || len(p.Smaller) == 0 {
		return nil
	}
	values := q.choose(e, p)
	var out [][]string
	for n := len(values) - 1; n > 0; n-- {
		out = append(out, values[:n])
	}
	// The values after the requested one, if it is one of them.
	for _, v := range p.Smaller[slices.Index(p.Smaller, values[0])+1:] {
		out = append(out, []string{v})
	}
	return out
}

// sized returns what an experiment runs instead of the requested size: "mesh 20x8x8 instead of 80x32x32".
func (q *Request) sized(asked, e *suite.Experiment) string {
	var list []string
	for _, p := range slices.Concat(e.Parameters, e.Sweep) {
		if p.Chosen == nil {
			continue
		}
		for _, old := range slices.Concat(asked.Parameters, asked.Sweep) {
			if a, b := strings.Join(q.choose(e, p), ","), strings.Join(q.choose(asked, old), ","); old.Name == p.Name && a != b {
				list = append(list, fmt.Sprintf("%s %s instead of %s", p.Name, a, b))
			}
		}
	}
	return strings.Join(list, ", ")
}

// settle selects sizes. costs has for each experiment the duration of one repetition in s, by size, the largest
// first; NaN: that size was not completed. Each experiment begins at its smallest size, and the cheapest step to a
// larger one is made while n repetitions of all fit into the seconds. -1: no size of an experiment is known.
func settle(costs [][]float64, n int, seconds float64) []int {
	chosen := make([]int, len(costs))
	need := 0.
	for g, list := range costs {
		chosen[g] = -1
		for k, c := range list {
			if !math.IsNaN(c) {
				chosen[g] = k
			}
		}
		if chosen[g] >= 0 {
			need += float64(n) * list[chosen[g]]
		}
	}
	for {
		best, to, more := -1, 0, math.Inf(1)
		for g, list := range costs {
			for k := chosen[g] - 1; k >= 0; k-- {
				if math.IsNaN(list[k]) {
					continue
				}
				if d := float64(n) * (list[k] - list[chosen[g]]); d < more && need+d <= seconds {
					best, to, more = g, k, d
				}
				break
			}
		}
		if best < 0 {
			return chosen
		}
		chosen[best], need = to, need+more
	}
}
