package run

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/stats"
	"nearmetal/internal/words"
)

// A run with a time does three things. It runs each point once, which says what it costs. It leaves out what that time
// cannot repeat often enough, and says so. Then it repeats the rest, and spends what is left where intervals are widest.

// slot is a point of an experiment with what one repetition of all its variants costs.
type slot struct {
	exp, point int
	cost       float64 // s
}

const (
	tryShare    = 1. / 3 // of the time is for trying the points once, at most
	stepShare   = 1. / 4 // of the time is for one repetition, at most
	narrow      = 0.005  // half an interval over its median, from which on repetitions are not worth their time
	mostRepeats = 1000
)

// timed carries a run out that has a time.
func (r *runner) timed(ctx context.Context) error {
	budget := r.request.Time.Seconds()
	slots, untried, err := r.try(ctx, budget)
	if err != nil {
		return err
	}
	least := r.request.Repetitions
	rest := budget // after the trying, also where the run goes on later
	for _, s := range slots {
		rest -= s.cost
	}
	taken, left := choose(slots, least, rest)
	r.sayReach(taken, append(left, untried...), rest)
	if err := record.SaveRun(r.folder.dir, r.record); err != nil {
		return explain(err, r.folder.dir)
	}
	if len(taken) == 0 {
		return fmt.Errorf("nothing fits in %v: give a longer --time", r.request.Time)
	}
	for _, s := range r.rounds(taken, 0, least) {
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

// next carries a step out, if it is not over, and shows how much time is left.
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

// severalVMs reports whether VMs of several variants take turns in being up, so that a point alone cannot be repeated
// without booting them.
func (r *runner) severalVMs() bool {
	n := 0
	for _, v := range r.request.Variants {
		if v.Spec != nil {
			n++
		}
	}
	return n > 1
}

// try runs every point once as a warm-up. untried are those for which a third of the time was too little.
func (r *runner) try(ctx context.Context, budget float64) (slots, untried []slot, err error) {
	r.bound = time.Duration(budget * stepShare * float64(time.Second))
	defer func() { r.bound = 0 }()
	var all []slot
	for e := range r.exps {
		for p := range r.exps[e].points {
			all = append(all, slot{exp: e, point: p})
		}
	}
	for _, s := range r.rounds(all, -1, 1) {
		if r.spent > budget*tryShare && !r.folder.over[s.key()] {
			continue
		}
		failed := len(r.failed)
		if err := r.next(ctx, s, budget); err != nil {
			return nil, nil, err
		}
		if r.folder.took[s.key()] >= r.bound.Seconds() {
			r.failed = r.failed[:failed] // it is not reached, which is no failure
		}
	}
	for _, s := range all {
		whole := true
		for v := range r.request.Variants {
			if r.takes(s.exp, s.point, v) {
				key := step{s.exp, s.point, v, -1}.key()
				s.cost, whole = s.cost+r.folder.took[key], whole && r.folder.over[key]
			}
		}
		if whole {
			slots = append(slots, s)
		} else {
			untried = append(untried, s)
		}
	}
	return slots, untried, nil
}

// choose takes the points that can be repeated n times in the seconds that are there, the cheapest first.
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

// sayReach says before the measurement what it will and what it will not reach, and keeps the latter in the record.
func (r *runner) sayReach(taken, left []slot, seconds float64) {
	need := 0.
	for _, s := range taken {
		need += s.cost * float64(r.request.Repetitions)
	}
	spare := time.Duration(max(0, seconds-need) * float64(time.Second)).Round(time.Second)
	r.notice(fmt.Sprintf("%s: each repeated at least %d times, in about %v; %v are left for the widest intervals",
		words.Count(len(taken), "point", "points"), r.request.Repetitions, time.Duration(need*float64(time.Second)).Round(time.Second), spare))
	r.record.Unreached = nil
	for _, s := range left {
		x := &r.exps[s.exp]
		text := x.names[0]
		if p := x.points[s.point].String(); p != "" {
			text += " " + p
		}
		if s.cost > 0 {
			text += fmt.Sprintf(", of which one repetition of all variants takes %v or more", time.Duration(s.cost*float64(time.Second)).Round(time.Second))
		}
		r.record.Unreached = append(r.record.Unreached, text)
		r.notice("not reached in " + r.request.Time.String() + ": " + text)
	}
}

// rounds are n repetitions of points from one on: each point's variants in turns, or where VMs of several variants
// cannot be up at once every variant with all points.
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

// widest returns the points to repeat next: that with the widest interval, or all where VMs have to boot for it. nil:
// the time is over, or nothing is gained by more.
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

// width is how wide a point's intervals are: half of one over its median, of the widest variant; of a program that
// prints many values the typical one.
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
		if len(list) > 0 && !r.request.Variants[v].Emulated { // times of emulated VMs are worth no time
			widest = max(widest, stats.Median(list))
		}
	}
	return widest
}

// keep remembers a value of a point for its interval.
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

// remember takes up what a run that was cut short had spent and measured.
func (r *runner) remember() error {
	if r.request.Time == 0 {
		return nil
	}
	for key, took := range r.folder.took {
		var s step
		if _, err := fmt.Sscanf(key, "%d/%d/%d/%d", &s.exp, &s.point, &s.variant, &s.rep); err == nil {
			r.seconds.add(s, took)
			r.spent += took
		}
	}
	if _, err := r.folder.samples.Seek(0, io.SeekStart); err != nil {
		return err
	}
	samples, _, err := record.ReadSamples(r.folder.samples.Name(), r.folder.samples)
	if err != nil {
		return err
	}
	if _, err := r.folder.samples.Seek(r.folder.end, io.SeekStart); err != nil {
		return err
	}
	for i := range samples {
		if s, ok := r.stepOf(&samples[i]); ok && samples[i].OK {
			r.keep(s, valueKey(samples[i].Case, samples[i].Point), samples[i].Value)
		}
	}
	return nil
}

// stepOf returns the step that a sample is of.
func (r *runner) stepOf(s *record.Sample) (step, bool) {
	v := slices.IndexFunc(r.request.Variants, func(v Variant) bool { return v.Label == s.Variant })
	for e := range r.exps {
		if v < 0 || !slices.Contains(r.exps[e].names, s.Case) {
			continue
		}
	points:
		for p, point := range r.exps[e].points {
			for k, want := range point {
				if s.Point[k] != want {
					continue points
				}
			}
			return step{e, p, v, s.Rep}, true
		}
	}
	return step{}, false
}

// valueKey names a value among those of one repetition.
func valueKey(name string, p point) string { return name + " " + p.String() }
