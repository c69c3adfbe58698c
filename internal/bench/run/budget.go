package run

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/stats"
	"nearmetal/internal/words"
)

// A run with a time limit has three phases. First it runs each point once, beginning with the smallest size of each
// experiment, to measure its cost. Then it selects the largest sizes that can be repeated often enough in the time,
// omits the others, and reports that. Finally it repeats the selected ones, and spends the remaining time where
// intervals are widest.

// slot is a point of an experiment with the cost of one repetition of all its variants.
type slot struct {
	exp, point int
	cost       float64 // s
}

const (
	tryShare  = 1. / 3 // maximum fraction of the time for the first phase
	stepShare = 1. / 4 // maximum fraction of the time for one preparation
	// Least factor between the costs of a size and the next smaller one: a size that would then be too expensive is
	// skipped.
	grows       = 2
	narrow      = 0.005 // half width of an interval over its median below which repetitions are not worth their time
	mostRepeats = 1000
)

// timed executes a run with a time limit.
func (r *runner) timed(ctx context.Context) error {
	budget := r.request.Time.Seconds()
	if err := r.try(ctx, budget); err != nil {
		return err
	}
	least := r.request.Repetitions
	rest := budget - r.tried
	slots, left, failed, smaller := r.settled(rest)
	taken, dear := choose(slots, least, rest)
	r.sayReach(taken, append(dear, left...), failed, smaller, rest)
	if err := record.SaveRun(r.folder.dir, r.record); err != nil {
		return explain(err, r.folder.dir)
	}
	if len(taken) == 0 {
		return fmt.Errorf("nothing fits in %v: give a longer --time", r.request.Time)
	}
	if err := r.recall(taken); err != nil {
		return err
	}
	steps, told := r.rounds(taken, 0, least), false
	for i, s := range steps {
		if r.spent > budget && !told && !r.folder.over[s.key()] {
			told = true
			r.notice(fmt.Sprintf("%v are over, for it took longer than when it was tried: the rest of the %d repetitions of each point takes about %v",
				r.request.Time, least, r.seconds.left(steps[i:]).Round(time.Second)))
		}
		if err := r.next(ctx, s, budget); err != nil {
			return err
		}
	}
	reps := map[[2]int]int{}
	for _, s := range taken {
		reps[[2]int{s.exp, s.point}] = least
	}
	for {
		chosen := r.widest(taken, reps, budget-r.spent)
		if chosen == nil {
			return nil
		}
		for _, s := range r.rounds(chosen, reps[[2]int{chosen[0].exp, chosen[0].point}], 1) {
			if err := r.next(ctx, s, budget); err != nil {
				return err
			}
		}
		for _, s := range chosen {
			reps[[2]int{s.exp, s.point}]++
		}
	}
}

// next executes a step, if it is not over, and reports the remaining time.
func (r *runner) next(ctx context.Context, s step, budget float64) error {
	if r.folder.over[s.key()] {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.events.Step != nil {
		left := time.Duration(max(0, budget-r.spent) * float64(time.Second))
		r.events.Step(Progress{Done: len(r.folder.over), What: r.describe(s), Left: left})
	}
	return r.one(ctx, s)
}

// severalVMs reports whether VMs of several variants have to be up alternately, so that a single point cannot be
// repeated without booting them.
func (r *runner) severalVMs() bool {
	n := 0
	for _, v := range r.request.Variants {
		if v.Spec != nil {
			n++
		}
	}
	return n > 1
}

// try runs every point once as a warm-up: of each experiment the smallest size first, and a larger one if it may fit
// into the time. The experiments alternate, so that expensive ones do not keep others from being tried. It uses at
// most a third of the time.
func (r *runner) try(ctx context.Context, budget float64) error {
	// A longer step cannot be repeated by all variants.
	r.bound = time.Duration(budget * (1 - tryShare) / float64(r.request.Repetitions*len(r.request.Variants)) * float64(time.Second))
	r.ahead = time.Duration(budget * stepShare * float64(time.Second))
	defer func() { r.bound, r.ahead = 0, 0 }()
	begun := false // a resumed run that has begun to measure tries nothing more
	for key := range r.folder.over {
		begun = begun || !strings.HasSuffix(key, "/-1")
	}
	dear := map[int]bool{} // experiments with a point that exceeded its bound: their other points are tried at the end
	var late []step
	pass := func(steps []step, last bool) error {
		for _, s := range steps {
			if !r.folder.over[s.key()] {
				if r.beyond(s) {
					continue
				}
				if dear[s.exp] && !last {
					late = append(late, s)
					continue
				}
				if begun || r.tried > budget*tryShare && !r.half(s) {
					continue
				}
				failed := len(r.failed)
				if err := r.next(ctx, s, budget); err != nil {
					return err
				}
				if r.exps[s.exp].size > 0 || r.folder.late[s.key()] {
					// A size that nobody requested, or that cannot be completed, is not a failure.
					r.failed = r.failed[:failed]
				}
			}
			dear[s.exp] = dear[s.exp] || r.folder.late[s.key()]
		}
		return nil
	}
	at, going := make([]int, len(r.groups)), []int(nil)
	for g := range r.groups {
		at[g], going = len(r.groups[g])-1, append(going, g)
	}
	for len(going) > 0 {
		var slots []slot
		for _, g := range going {
			for p := range r.exps[r.groups[g][at[g]]].points {
				slots = append(slots, slot{exp: r.groups[g][at[g]], point: p})
			}
		}
		slices.SortStableFunc(slots, func(a, b slot) int { // slots that share VMs are adjacent
			return cmp.Or(a.point-b.point, cmp.Compare(r.exps[b.exp].def.Launch, r.exps[a.exp].def.Launch))
		})
		if err := pass(r.rounds(slots, -1, 1), false); err != nil {
			return err
		}
		var more []int
		for _, g := range going {
			if at[g] > 0 && r.mayGrow(g, at[g], budget) {
				at[g]--
				more = append(more, g)
			}
		}
		going = more
	}
	return pass(late, true)
}

// half reports whether an earlier variant was tried at a point, which is then completed.
func (r *runner) half(s step) bool {
	for v := range s.variant {
		if !r.severalVMs() && r.folder.over[step{s.exp, s.point, v, s.rep}.key()] {
			return true
		}
	}
	return false
}

// beyond reports whether another variant's step at a point was killed, so that the point cannot be repeated.
func (r *runner) beyond(s step) bool {
	for v := range r.request.Variants {
		if v != s.variant && r.folder.late[step{s.exp, s.point, v, s.rep}.key()] {
			return true
		}
	}
	return false
}

// mayGrow reports whether a larger size of an experiment is worth a try: it lasts at least twice as long, and has to
// be repeated with the others.
func (r *runner) mayGrow(g, size int, budget float64) bool {
	_, untried, _, cost := r.costs(r.groups[g][size])
	if len(untried) > 0 {
		return false
	}
	if math.IsNaN(cost) {
		return true // this size has no program here
	}
	others := 0.
	for o, sizes := range r.groups {
		for k := 0; k < len(sizes) && o != g; k++ {
			if _, _, _, c := r.costs(sizes[k]); !math.IsNaN(c) {
				others += c
				break
			}
		}
	}
	return float64(r.request.Repetitions)*(grows*cost+others) <= budget*(1-tryShare)
}

// costs returns the points of an experiment that were tried to their end, with their costs, those that were not,
// those that failed, and the duration of one repetition of all in s; NaN: a point is untried or has no result.
func (r *runner) costs(e int) (slots, untried, failed []slot, all float64) {
	for p := range r.exps[e].points {
		s, whole, bad := slot{exp: e, point: p}, true, false
		for v := range r.request.Variants {
			if !r.takes(e, p, v) {
				continue
			}
			key := step{e, p, v, -1}.key()
			s.cost, whole = s.cost+r.folder.took[key]-r.folder.once[key], whole && r.folder.over[key] && !r.folder.late[key]
			bad = bad || r.folder.failed[key] && !r.folder.late[key]
		}
		if bad {
			failed, all = append(failed, s), math.NaN()
			continue
		}
		if !whole {
			untried, all = append(untried, s), math.NaN()
			continue
		}
		slots = append(slots, s)
		all += s.cost
	}
	return slots, untried, failed, all
}

// untouched reports whether no step of an experiment is over.
func (r *runner) untouched(e int) bool {
	for p := range r.exps[e].points {
		for v := range r.request.Variants {
			if r.folder.over[step{e, p, v, -1}.key()] {
				return false
			}
		}
	}
	return true
}

// begun returns the requested experiment of a group, or the one at the smallest size if none of the former's steps is
// over.
func (r *runner) begun(sizes []int) int {
	if r.untouched(sizes[0]) {
		return sizes[len(sizes)-1]
	}
	return sizes[0]
}

// settled returns the points of each experiment at the selected size, the untried ones, the failed ones, and the
// sizes that are smaller than requested. Afterwards the record has the cases of the selected sizes.
func (r *runner) settled(seconds float64) (slots, untried, failed []slot, smaller []string) {
	costs := make([][]float64, len(r.groups))
	for g, sizes := range r.groups {
		known := false
		for _, e := range sizes {
			_, _, _, c := r.costs(e)
			costs[g] = append(costs[g], c)
			known = known || !math.IsNaN(c)
		}
		// No size was tried to its end, but some points of one were: no larger size of another experiment replaces
		// them.
		if !known {
			tried, _, _, _ := r.costs(r.begun(sizes))
			for _, s := range tried {
				if need := s.cost * float64(r.request.Repetitions); need <= seconds {
					seconds -= need
				}
			}
		}
	}
	for g, k := range settle(costs, r.request.Repetitions, seconds) {
		sizes := r.groups[g]
		if k < 0 {
			k = slices.Index(sizes, r.begun(sizes))
		}
		tried, left, bad, _ := r.costs(sizes[k])
		slots, untried, failed = append(slots, tried...), append(untried, left...), append(failed, bad...)
		x := &r.exps[sizes[k]]
		for i := range r.record.Cases {
			if n := slices.Index(x.names, r.record.Cases[i].Name); n >= 0 {
				r.record.Cases[i] = x.cases[n]
			}
		}
		if k > 0 && len(tried) > 0 {
			smaller = append(smaller, x.names[0]+": "+r.request.sized(&r.exps[sizes[0]].def, &x.def))
		}
	}
	return slots, untried, failed, smaller
}

// choose selects the points that can be repeated n times in the available seconds, the cheapest first.
func choose(slots []slot, n int, seconds float64) (taken, left []slot) {
	sorted := slices.Clone(slots)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].cost < sorted[j].cost })
	for _, s := range sorted {
		if need := s.cost * float64(n); need <= seconds {
			taken, seconds = append(taken, s), seconds-need
		} else {
			left = append(left, s)
		}
	}
	byPlace := func(a, b slot) int {
		if a.exp != b.exp {
			return a.exp - b.exp
		}
		return a.point - b.point
	}
	slices.SortFunc(taken, byPlace)
	slices.SortFunc(left, byPlace)
	return taken, left
}

// sayReach reports before the measurement what it will and will not reach, and stores the latter in the record.
func (r *runner) sayReach(taken, left, failed []slot, smaller []string, seconds float64) {
	need := 0.
	for _, s := range taken {
		need += s.cost * float64(r.request.Repetitions)
	}
	spare := time.Duration(max(0, seconds-need) * float64(time.Second)).Round(time.Second)
	r.notice(fmt.Sprintf("%s: each repeated at least %d times, in about %v; %v are left for the widest intervals",
		words.Count(len(taken), "point", "points"), r.request.Repetitions, time.Duration(need*float64(time.Second)).Round(time.Second), spare))
	r.record.Unreached = nil
	for _, line := range smaller {
		r.record.Unreached = append(r.record.Unreached, strings.Replace(line, ":", " as asked for:", 1))
		r.notice("smaller, for " + r.request.Time.String() + ": " + line)
	}
	say := func(text string) {
		r.record.Unreached = append(r.record.Unreached, text)
		r.notice("not reached in " + r.request.Time.String() + ": " + text)
	}
	for _, s := range failed {
		x := &r.exps[s.exp]
		say(strings.TrimSpace(x.names[0]+" "+x.points[s.point].String()) + ", which failed when it was tried")
	}
	untried := map[int][]point{}
	for _, s := range left {
		if x := &r.exps[s.exp]; s.cost > 0 || len(x.points) == 1 {
			say(unreached(x, x.points[s.point], s.cost))
		} else {
			untried[s.exp] = append(untried[s.exp], x.points[s.point])
		}
	}
	for e := range r.exps {
		if list := untried[e]; len(list) > 0 {
			say(fmt.Sprintf("%s at %s not tried: %s", r.exps[e].names[0], words.Count(len(list), "point that was", "points that were"), pointsTogether(list)))
		}
	}
}

// unreached names a point with its cost, if known.
func unreached(x *experiment, p point, cost float64) string {
	text := x.names[0]
	if p := p.String(); p != "" {
		text += " " + p
	}
	if cost > 0 {
		text += fmt.Sprintf(", of which one repetition of all variants takes %v or more", time.Duration(cost*float64(time.Second)).Round(time.Second))
	}
	return text
}

// pointsTogether lists points of an experiment, without the parameters that all of them share.
func pointsTogether(list []point) string {
	var parts []string
	for _, p := range list {
		own := point{}
		for k, v := range p {
			if slices.ContainsFunc(list, func(o point) bool { return o[k] != v }) {
				own[k] = v
			}
		}
		if len(own) == 0 {
			own = p
		}
		parts = append(parts, own.String())
	}
	return strings.Join(parts, "; ")
}

// rounds returns n repetitions of points from one on: alternating between each point's variants, or if VMs of several
// variants cannot be up at once, every variant with all points.
func (r *runner) rounds(slots []slot, from, n int) []step {
	var out []step
	add := func(s slot, v, rep int) {
		if r.takes(s.exp, s.point, v) {
			out = append(out, step{s.exp, s.point, v, rep})
		}
	}
	if r.severalVMs() {
		for rep := from; rep < from+n; rep++ {
			for v := range r.request.Variants {
				for _, s := range slots {
					add(s, v, rep)
				}
			}
		}
		return out
	}
	for _, s := range slots {
		for rep := from; rep < from+n; rep++ {
			for v := range r.request.Variants {
				add(s, v, rep)
			}
		}
	}
	return out
}

// widest returns the points to repeat next: the one with the widest interval, or all if VMs have to boot for it. nil:
// the time is over, or more repetitions gain nothing.
func (r *runner) widest(taken []slot, reps map[[2]int]int, seconds float64) []slot {
	var best []slot
	width, whole := narrow, 0.
	for _, s := range taken {
		whole += s.cost
		if w := r.width(s); w > width && s.cost <= seconds && reps[[2]int{s.exp, s.point}] < mostRepeats {
			best, width = []slot{s}, w
		}
	}
	if best == nil || !r.severalVMs() {
		return best
	}
	if whole > seconds {
		return nil
	}
	return taken
}

// width returns how wide a point's intervals are: half of one over its median, of the widest variant; for a program
// that prints many values the typical one.
func (r *runner) width(s slot) float64 {
	widest := 0.
	for v := range r.request.Variants {
		var list []float64
		for _, values := range r.values[[3]int{s.exp, s.point, v}] {
			if len(values) == 0 {
				continue
			}
			ci := stats.BootstrapCI(values, 0.95, 1)
			if w := math.Abs((ci.High/2 - ci.Low/2) / ci.Median); !math.IsNaN(w) && !math.IsInf(w, 0) {
				list = append(list, w)
			}
		}
		if len(list) > 0 && !r.request.Variants[v].Emulated { // times of emulated VMs are not worth the time
			widest = max(widest, stats.Median(list))
		}
	}
	return widest
}

// keep stores a value of a point for its interval.
func (r *runner) keep(s step, at string, value float64) {
	if r.request.Time == 0 || s.rep < 0 {
		return
	}
	if r.values == nil {
		r.values = map[[3]int]map[string][]float64{}
	}
	key := [3]int{s.exp, s.point, s.variant}
	if r.values[key] == nil {
		r.values[key] = map[string][]float64{}
	}
	r.values[key][at] = append(r.values[key][at], value)
}

// remember adds the time that an interrupted run had spent.
func (r *runner) remember() {
	for key, took := range r.folder.took {
		var s step
		if _, err := fmt.Sscanf(key, "%d/%d/%d/%d", &s.exp, &s.point, &s.variant, &s.rep); err == nil {
			r.spend(s, took)
		}
	}
}

// recall loads the values that an interrupted run had measured of the points that it repeats.
func (r *runner) recall(taken []slot) error {
	samples, err := r.measuredSoFar()
	if err != nil {
		return err
	}
	for i := range samples {
		if s, ok := r.stepOf(taken, &samples[i]); ok && samples[i].OK {
			r.keep(s, valueKey(samples[i].Case, samples[i].Point), samples[i].Value)
		}
	}
	return nil
}

// stepOf returns a sample's step, among the points that are repeated.
func (r *runner) stepOf(taken []slot, s *record.Sample) (step, bool) {
	v := slices.IndexFunc(r.request.Variants, func(v Variant) bool { return v.Label == s.Variant })
points:
	for _, t := range taken {
		x := &r.exps[t.exp]
		if v < 0 || !slices.Contains(x.names, s.Case) {
			continue
		}
		for k, want := range x.points[t.point] {
			if s.Point[k] != want {
				continue points
			}
		}
		return step{t.exp, t.point, v, s.Rep}, true
	}
	return step{}, false
}

// valueKey names a value among those of one repetition.
func valueKey(name string, p point) string { return name + " " + p.String() }
