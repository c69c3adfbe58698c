package run

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/host/measure"
	"nearmetal/internal/words"
)

// mostRepeating bounds the total duration of repetitions after the first look of a run. A --time of the user spends
// the remaining time in its own way (budget.go).
const mostRepeating = time.Hour

// Comparable reports whether at least two of the variants can be compared: emulated VMs and those that nearmetal did
// not make have no verdict.
func Comparable(list []Variant) bool {
	n := 0
	for i := range list {
		if list[i].judged() {
			n++
		}
	}
	return n > 1
}

func (v *Variant) judged() bool { return !v.Emulated && !v.Foreign }

// valueAt is a value among those of one repetition.
type valueAt struct{ name, point string }

// coresPingPong returns a function that measures a cache line between this host's first two CPUs, in us, before and
// after each repetition, for some ms. It returns 0 if that is not possible: with one CPU, or if the variants run on
// other hosts.
func coresPingPong(list []Variant) func() float64 {
	none := func() float64 { return 0 }
	for i := range list {
		if list[i].Step != nil || list[i].Hosts > 0 {
			return none
		}
	}
	var set unix.CPUSet
	if !Comparable(list) || unix.SchedGetaffinity(0, &set) != nil {
		return none
	}
	var cpus []int
	for cpu := 0; cpu < len(set)*64 && len(cpus) < 2; cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		return none
	}
	return func() float64 {
		ns, err := measure.PingPong(cpus[0], cpus[1])
		if err != nil {
			return 0
		}
		return 2 * ns / 1000
	}
}

// compare stores a value for the verdicts of its point.
func (r *runner) compare(s step, sample *record.Sample) {
	if !r.request.Decide || s.rep < 0 {
		return
	}
	if r.compared == nil {
		r.compared = map[[3]int]map[valueAt][]verdict.Value{}
	}
	key := [3]int{s.exp, s.point, s.variant}
	if r.compared[key] == nil {
		r.compared[key] = map[valueAt][]verdict.Value{}
	}
	at := valueAt{sample.Case, point(sample.Point).String()}
	r.compared[key][at] = append(r.compared[key][at], verdict.Value{Rep: s.rep, Value: sample.Value, PingPong: sample.PingPong, Moved: sample.Moved})
}

// slots returns all points of the run.
func (r *runner) slots() []slot {
	var out []slot
	for e := range r.exps {
		for p := range r.exps[e].points {
			out = append(out, slot{exp: e, point: p})
		}
	}
	return out
}

// recallDecided loads the values that an interrupted run had measured.
func (r *runner) recallDecided() error {
	if !r.request.Decide {
		return nil
	}
	samples, err := r.measuredSoFar()
	if err != nil {
		return err
	}
	slots := r.slots()
	for i := range samples {
		if s, ok := r.stepOf(slots, &samples[i]); ok && samples[i].OK {
			r.compare(s, &samples[i])
		}
	}
	return nil
}

// measuredSoFar reads the samples of the steps that are over.
func (r *runner) measuredSoFar() ([]record.Sample, error) {
	if _, err := r.folder.samples.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	samples, _, err := record.ReadSamples(r.folder.samples.Name(), r.folder.samples)
	if err != nil {
		return nil, err
	}
	_, err = r.folder.samples.Seek(r.folder.end, io.SeekStart)
	return samples, err
}

// decide repeats the undecided points until they are decided, or to the last look, or for mostRepeating. A look
// counts only the repetitions up to it, so that a resumed run decides like an uninterrupted one.
func (r *runner) decide(ctx context.Context) error {
	for look := 0; look < len(verdict.Looks); look++ {
		open, text := r.undecided(look)
		if len(open) == 0 {
			return nil
		}
		after, points := r.after(open[0].exp, look), words.Count(len(open), "point", "points")
		if look == len(verdict.Looks)-1 {
			r.notice(fmt.Sprintf("undecided after %d repetitions: %s", after, text))
			return nil
		}
		var steps []step
		for len(open) > 0 { // of experiments with the same number of repetitions
			n := r.after(open[0].exp, look)
			same := func(s slot) bool { return r.after(s.exp, look) == n }
			var slots []slot
			for _, s := range open {
				if same(s) {
					slots = append(slots, s)
				}
			}
			open = slices.DeleteFunc(open, same)
			steps = append(steps, r.rounds(slots, n, n)...)
		}
		left := r.seconds.left(r.remaining(steps))
		r.notice(fmt.Sprintf("undecided after %d repetitions: %s; repeating %s, for about %v",
			after, text, points, left.Round(time.Second)))
		for i, s := range steps {
			if r.folder.over[s.key()] {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.repeated >= mostRepeating.Seconds() {
				r.notice(fmt.Sprintf("%v of repeating are over: what is undecided stays so (--time allows more)", mostRepeating))
				return nil
			}
			if r.events.Step != nil {
				r.events.Step(Progress{Done: i, Total: len(steps), What: r.describe(s) + ", undecided: " + text, Left: r.seconds.left(steps[i:])})
			}
			if err := r.one(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// remaining returns the steps that are not over.
func (r *runner) remaining(steps []step) []step {
	var out []step
	for _, s := range steps {
		if !r.folder.over[s.key()] {
			out = append(out, s)
		}
	}
	return out
}

// after returns the number of repetitions of an experiment's points at a look, from 0.
func (r *runner) after(exp, look int) int {
	n, _ := r.repetitions(exp)
	return n << look
}

// undecided returns the points with an undecided value at a look, and the number of these values out of all.
func (r *runner) undecided(look int) (open []slot, text string) {
	undecided, all, names := map[string]int{}, map[string]int{}, []string(nil)
	for _, s := range r.slots() {
		before := len(open)
		for v := range r.request.Variants {
			base := r.base(s)
			if base < 0 || v == base || !r.request.Variants[v].judged() {
				continue
			}
			theirs := r.compared[[3]int{s.exp, s.point, base}]
			for at, values := range r.compared[[3]int{s.exp, s.point, v}] {
				first := r.upTo(values, s.exp, look)
				ratios := verdict.Ratios(first, r.upTo(theirs[at], s.exp, look), r.more(s.exp, at.name))
				if len(theirs[at]) == 0 {
					continue
				}
				if all[at.name]++; all[at.name] == 1 {
					names = append(names, at.name)
				}
				if _, w := verdict.Judge(ratios); w == verdict.Undecided {
					undecided[at.name]++
					if len(open) == before {
						open = append(open, s)
					}
				}
			}
		}
	}
	var list []string
	slices.Sort(names)
	for _, name := range names {
		if n := undecided[name]; n > 0 {
			list = append(list, fmt.Sprintf("%s at %d of %d", name, n, all[name]))
		}
	}
	return open, strings.Join(list, ", ")
}

// base returns the variant with which others are compared at a point; -1: none.
func (r *runner) base(s slot) int {
	for v := range r.request.Variants {
		if r.request.Variants[v].judged() && len(r.compared[[3]int{s.exp, s.point, v}]) > 0 {
			return v
		}
	}
	return -1
}

// more reports whether larger values of a case are better.
func (r *runner) more(exp int, name string) bool {
	for _, c := range r.exps[exp].cases {
		if c.Name == name {
			return c.Better == "up"
		}
	}
	return false
}

// upTo returns the values of the repetitions that a look counts.
func (r *runner) upTo(values []verdict.Value, exp, look int) []verdict.Value {
	var out []verdict.Value
	for _, v := range values {
		if v.Rep < r.after(exp, look) {
			out = append(out, v)
		}
	}
	return out
}

// FirstLook returns the number of repetitions after which a run that decides looks at its points for the first time.
func FirstLook() int { return verdict.Looks[0] }
