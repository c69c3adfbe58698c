package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
	"nearmetal/internal/bench/verdict"
	"nearmetal/internal/stats"
)

// runner is the state of a run.
type runner struct {
	request Request
	events  Events
	exps    []experiment
	record  *record.Run
	folder  *folder
	vms     vms
	failed  []Failure
	count   int            // values measured
	streak  map[string]int // consecutive failures of a variant at a point
	ready   map[string]bool
	seconds pace
	// For a run with a time limit (budget.go): the spent time, in s; the bounds of a repetition and of its
	// preparation while points are tried, 0: only the experiment's; and the values of each experiment, point and
	// variant.
	spent  float64
	tried  float64 // part of spent, in warm-ups
	bound  time.Duration
	ahead  time.Duration
	values map[[3]int]map[string][]float64
	groups [][]int // for each experiment its sizes in exps, the requested one first
	// now and perform are time.Now and measure, except in tests of a run's use of time.
	now      func() time.Time
	perform  func(context.Context, step) (measured, error)
	pingpong func() float64 // us; 0: not known
	// For a run that decides (decide.go): the values of each experiment, point and variant, by case and point; and
	// the time spent on repetitions after the first look, in s.
	compared map[[3]int]map[valueAt][]verdict.Value
	repeated float64
}

// newRunner returns a runner of a request on this machine.
func newRunner(q Request, r *record.Run, ev Events) *runner {
	x := &runner{request: q, events: ev, record: r, now: time.Now}
	x.perform, x.pingpong = x.measure, coresPingPong(q.Variants)
	return x
}

// giveUpAfter is the number of consecutive failures of a variant at one point after which the rest is skipped.
const giveUpAfter = 2

// Start begins a run in dir, which it creates, and executes it. The outcome has all that was measured even if the
// error reports an interruption.
func Start(ctx context.Context, dir string, q Request, r *record.Run, ev Events) (Outcome, error) {
	return newRunner(q, r, ev).start(ctx, dir)
}

func (r *runner) start(ctx context.Context, dir string) (Outcome, error) {
	if err := r.prepare(); err != nil {
		return Outcome{}, err
	}
	if err := r.events.alone(); err != nil {
		return Outcome{}, err
	}
	f, err := create(dir, &r.request)
	if err != nil {
		return Outcome{}, err
	}
	r.folder = f
	if err := record.SaveRun(dir, r.record); err != nil {
		f.close()
		return Outcome{}, abandon(dir, err)
	}
	r.versions(ctx)
	return r.all(ctx)
}

// Resume continues the run in dir.
func Resume(ctx context.Context, dir string, ev Events) (Outcome, error) {
	dir, err := filepath.Abs(dir) // VMs mount it at its path
	if err != nil {
		return Outcome{}, err
	}
	q, err := LoadRequest(dir)
	if err != nil {
		return Outcome{}, err
	}
	if err := ev.alone(); err != nil { // another run may be writing this one's record
		return Outcome{}, err
	}
	r, err := record.LoadRun(dir)
	if err != nil {
		return Outcome{}, err
	}
	return newRunner(*q, r, ev).resume(ctx, dir)
}

func (r *runner) resume(ctx context.Context, dir string) (Outcome, error) {
	r.record.Ended = time.Time{}
	if err := r.prepare(); err != nil {
		return Outcome{}, err
	}
	var err error
	if r.folder, err = open(dir); err != nil {
		return Outcome{}, err
	}
	r.remember()
	if err := r.recallDecided(); err != nil {
		return Outcome{}, errors.Join(err, r.folder.close())
	}
	return r.all(ctx)
}

// prepare finds the programs of all experiments and fills in the record's cases.
func (r *runner) prepare() error {
	r.streak, r.ready = map[string]int{}, map[string]bool{}
	least, same := r.cores()
	r.record.Cases = nil
	var missing error
	for _, line := range r.request.Notes(r.request.Variants[0].nodes()) {
		r.notice(line)
	}
	for _, s := range r.request.Suites {
		for i := range s.Experiments {
			e := s.Experiments[i]
			said, err := r.request.fitting(&e)
			if err != nil {
				return fmt.Errorf("%s/%w", s.Name, err)
			}
			var (
				p      suite.Program
				paths  map[int]string
				partly error
				points []point
			)
			if err = r.fewHosts(&e); err == nil {
				p, paths, partly, err = r.find(&e)
			}
			if err == nil {
				if points, err = r.request.points(&e, least, same); err != nil {
					return fmt.Errorf("%s/%w", s.Name, err)
				}
				for _, line := range said {
					r.notice(s.Name + "/" + line)
				}
			}
			if err != nil {
				err = fmt.Errorf("%s/%s: %w", s.Name, e.Name, err)
				if !r.request.SkipMissing {
					missing = errors.Join(missing, err)
				} else {
					r.notice("left out: " + err.Error())
				}
				continue
			}
			if partly != nil {
				r.notice(fmt.Sprintf("%s/%s: left out: %v", s.Name, e.Name, partly))
			}
			var sizes []int
			for n, def := range r.request.sizes(e) {
				if n > 0 {
					if points, err = r.request.points(&def, least, same); err != nil {
						return fmt.Errorf("%s/%w", s.Name, err)
					}
				}
				x := experiment{suite: s, def: def, size: n, prog: p, paths: paths, points: points}
				r.fillCases(&x)
				sizes = append(sizes, len(r.exps))
				r.exps = append(r.exps, x)
			}
			r.record.Cases = append(r.record.Cases, r.exps[sizes[0]].cases...)
			r.groups = append(r.groups, sizes)
		}
	}
	if missing == nil && len(r.exps) == 0 {
		return errors.New("there is nothing to run: no program of what was asked for is here (nearmetal bench show says how to install them)")
	}
	if missing != nil && len(r.exps) > 0 {
		missing = errors.Join(missing, errors.New("--skip-missing leaves such experiments out"))
	}
	return missing
}

// fillCases makes an experiment's cases.
func (r *runner) fillCases(x *experiment) {
	x.cases, x.names = x.describe(r.request.Variants[0].Step != nil && !r.request.asked(&x.def))
	for c := range x.cases {
		x.cases[c].Command = r.shown(x)
		x.cases[c].Smaller = r.request.smaller(&x.def)
		x.cases[c].Differs = r.request.differs(&x.def)
	}
}

// cores returns the fewest cores of a variant, and whether all have as many.
func (r *runner) cores() (least int, same bool) {
	least, same = r.request.Variants[0].total(), true
	for i := range r.request.Variants {
		n := r.request.Variants[i].total()
		same = same && n == least
		least = min(least, n)
	}
	return least, same
}

// shown returns the command of an experiment's first point, as the first variant runs it.
func (r *runner) shown(x *experiment) []string {
	for v := range r.request.Variants {
		if _, ok := x.paths[v]; !ok || len(x.points) == 0 {
			continue
		}
		if c, err := r.command(x, 0, v); err == nil {
			return c.words
		}
	}
	return nil
}

// all executes the steps that are not over yet.
func (r *runner) all(ctx context.Context) (out Outcome, err error) {
	defer func() { err = errors.Join(err, r.folder.close()) }()
	defer r.vms.down()
	r.vms.notice = r.notice
	out.Dir = r.folder.dir
	var steps []step
	if r.request.Time > 0 {
		err = r.timed(ctx)
	} else {
		steps = r.schedule()
	}
	for i, s := range steps {
		if r.folder.over[s.key()] {
			continue
		}
		if err = ctx.Err(); err != nil {
			break
		}
		if r.events.Step != nil {
			r.events.Step(Progress{Done: i, Total: len(steps), What: r.describe(s), Left: r.seconds.left(steps[i:])})
		}
		if err = r.one(ctx, s); err != nil {
			break
		}
	}
	if err == nil && r.request.Decide {
		err = r.decide(ctx)
	}
	out.Samples, out.Failed = r.count, r.failed
	if err != nil {
		return out, err
	}
	if !r.request.KeepWork {
		os.RemoveAll(filepath.Join(r.folder.dir, workDir))
	}
	r.record.Ended = time.Now().UTC()
	return out, explain(record.SaveRun(r.folder.dir, r.record), r.folder.dir)
}

func (r *runner) describe(s step) string {
	x := &r.exps[s.exp]
	text := x.names[0] + " " + r.request.Variants[s.variant].Label
	if p := x.points[s.point].String(); p != "" {
		text += " " + p
	}
	if s.rep < 0 {
		return text + ", warming up"
	}
	return fmt.Sprintf("%s, repetition %d", text, s.rep+1)
}

func (r *runner) notice(line string) {
	if r.events.Notice != nil {
		r.events.Notice(line)
	}
}

// one executes a step and records its result. Its error ends the run; a failed repetition does not.
func (r *runner) one(ctx context.Context, s step) error {
	x, v := &r.exps[s.exp], &r.request.Variants[s.variant]
	tries := fmt.Sprintf("%d/%d/%d", s.exp, s.point, s.variant)
	if r.streak[tries] >= giveUpAfter {
		return r.folder.add(s, nil, progressLine{Failed: true})
	}
	at := r.now().UTC()
	before := r.pingpong()
	res, err := r.perform(ctx, s)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	line := progressLine{Took: r.now().Sub(at).Seconds(), Once: res.prepared, Failed: err != nil, Late: res.late}
	r.spend(s, line.Took)
	log := ""
	if len(res.out)+len(res.errs) > 0 {
		name := fmt.Sprintf("%s-%s-p%d-r%d", x.names[0], v.Label, s.point, s.rep)
		var e error
		if log, e = r.folder.log(name, res.out, res.errs); e != nil {
			return e
		}
	}
	sample := record.Sample{Case: x.names[0], Variant: v.Label, Rep: s.rep, At: at, Seconds: res.seconds, Log: log}
	if after := r.pingpong(); before > 0 && after > 0 {
		sample.PingPong = math.Sqrt(before * after)
		sample.Moved = max(before, after) > stats.SameState*min(before, after)
	}
	if err != nil {
		r.streak[tries]++
		sample.Point, sample.Error = x.points[s.point], err.Error()
		r.failed = append(r.failed, Failure{Case: x.names[0], Variant: v.Label, Point: x.points[s.point].String(), Rep: s.rep, Err: err, Log: filepath.Join(r.folder.dir, log)})
		return r.folder.add(s, []record.Sample{sample}, line)
	}
	r.streak[tries] = 0
	var list []record.Sample
	for _, value := range res.values {
		sample := sample
		sample.Case, sample.Value, sample.OK = x.names[value.Output], value.Value, true
		sample.Point = merged(x.points[s.point], value.Point)
		list = append(list, sample)
		r.keep(s, valueKey(sample.Case, sample.Point), sample.Value)
		r.compare(s, &sample)
	}
	if s.rep >= 0 {
		r.count += len(list)
	}
	return r.folder.add(s, list, line)
}

// spend adds a step's duration.
func (r *runner) spend(s step, took float64) {
	r.seconds.add(s, took)
	r.spent += took
	if s.rep < 0 {
		r.tried += took
	} else if n, _ := r.repetitions(s.exp); r.request.Decide && s.rep >= n {
		r.repeated += took
	}
}

func merged(a point, b map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

// expandAll expands values in each of the words.
func expandAll(words []string, values map[string]string) ([]string, error) {
	out := make([]string, len(words))
	for i, w := range words {
		var err error
		if out[i], err = suite.Expand(w, values); err != nil {
			return nil, err
		}
	}
	return out, nil
}
