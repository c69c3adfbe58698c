package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/bench/extract"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/suite"
)

// TestChoose: the cheapest points are selected, as many as fit into the time.
func TestChoose(t *testing.T) {
	slots := []slot{{0, 0, 10}, {0, 1, 100}, {1, 0, 1}, {1, 1, 30}}
	for _, c := range []struct {
		seconds     float64
		taken, left string
	}{
		{0, "[]", "[{0 0 10} {0 1 100} {1 0 1} {1 1 30}]"},
		{60, "[{0 0 10} {1 0 1}]", "[{0 1 100} {1 1 30}]"},
		{205, "[{0 0 10} {1 0 1} {1 1 30}]", "[{0 1 100}]"},
		{705, "[{0 0 10} {0 1 100} {1 0 1} {1 1 30}]", "[]"},
	} {
		taken, left := choose(slots, 5, c.seconds)
		if fmt.Sprint(taken) != c.taken || fmt.Sprint(left) != c.left {
			t.Errorf("in %v s: %v, left %v", c.seconds, taken, left)
		}
	}
}

// TestWidest: further repetitions are spent on the point whose interval is widest, while time is left and they gain
// something.
func TestWidest(t *testing.T) {
	q := request(t, "echo", "a")
	r := &runner{request: q}
	r.request.Time = time.Hour
	for i := range 8 {
		r.keep(step{0, 0, 0, i}, "x", 100+4*float64(i%2))
		r.keep(step{0, 1, 0, i}, "x", 100+20*float64(i%2))
		r.keep(step{0, 2, 0, i}, "x", 100)
	}
	slots := []slot{{0, 0, 1}, {0, 1, 10}, {0, 2, 1}}
	for seconds, want := range map[float64]string{100: "[{0 1 10}]", 5: "[{0 0 1}]", 0.5: "[]"} {
		if got := fmt.Sprint(r.widest(slots, map[[2]int]int{}, seconds)); got != want {
			t.Errorf("with %v s left: %s, want %s", seconds, got, want)
		}
	}
	if got := r.widest(slots[2:], map[[2]int]int{}, 100); got != nil {
		t.Errorf("nothing to gain: %v", got)
	}
}

// TestSettle: sizes are selected by their cost: the cheapest step to a larger one first, while all fit.
func TestSettle(t *testing.T) {
	no := math.NaN()
	costs := [][]float64{{100, 10, 1}, {40, 5}, {no, 3}, {no, no}, {60, no, 2}}
	for seconds, want := range map[float64]string{
		0:    "[2 1 1 -1 2]", // the smallest size of each; choose omits points
		100:  "[1 1 1 -1 2]",
		275:  "[1 0 1 -1 2]",
		1000: "[1 0 1 -1 0]",
		1100: "[0 0 1 -1 0]",
	} {
		if got := fmt.Sprint(settle(costs, 5, seconds)); got != want {
			t.Errorf("in %v s: %s, want %s", seconds, got, want)
		}
	}
}

// sizedSuite has two programs with sizes, and one whose largest size hangs.
const sizedSuite = `version: 1
suite: t
experiments:
  - name: mesh
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", "{cells}", "{n}"]
    parameters: {cells: {values: "20", smaller: ["40", "20", "10"], papers: {"002": "80"}}}
    sweep: {n: [1, 2]}
    output: [{metric: value, unit: s, better: down, kind: sweep, x: n, match: '(?P<value>x)'}]
  - name: class
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", "{class}"]
    sweep: {class: {values: [D], smaller: [C, A], papers: {"002": [C, D]}}}
    output: [{metric: value, unit: s, better: down, kind: bar, match: '(?P<value>x)'}]
`

// recorded makes a runner whose programs last as many seconds as recorded for their words, on a clock of its own.
func recorded(t *testing.T, r *runner, seconds map[string]float64) {
	t.Helper()
	clock := time.Unix(0, 0)
	r.now = func() time.Time { return clock }
	r.perform = func(ctx context.Context, s step) (measured, error) {
		c, err := r.command(&r.exps[s.exp], s.point, s.variant)
		if err != nil {
			return measured{}, err
		}
		cost, ok := seconds[strings.Join(c.words[1:], " ")]
		if !ok {
			t.Errorf("no cost of %v is recorded", c.words)
		}
		if cost < 0 {
			return measured{}, errors.New("it is not here")
		}
		if bound := r.bound.Seconds(); bound > 0 && cost > bound {
			clock = clock.Add(r.bound)
			return measured{late: true}, errors.New("killed")
		}
		clock = clock.Add(time.Duration(cost * float64(time.Second)))
		return measured{seconds: cost, values: []extract.Value{{Value: cost * (1 + 0.02*float64(s.rep%3))}}}, nil
	}
}

// TestTimeChoosesSizes: a run with a time limit selects sizes and repetitions, reports them before it measures, stays
// within its time, and a resumed one makes the same selection.
func TestTimeChoosesSizes(t *testing.T) {
	costs := map[string]float64{"80 1": 4000, "80 2": 2000, "40 1": 500, "40 2": 260, "20 1": 60, "20 2": 31, "10 1": 8, "10 2": 4,
		"D": 900, "C": 50, "A": -1}
	for _, c := range []struct {
		time    time.Duration
		mesh    string // measured cells
		classes string
		says    []string
	}{
		{10 * time.Minute, "10", "C", []string{"smaller, for 10m0s: t/mesh: cells 10 instead of 80", "smaller, for 10m0s: t/class: class C instead of C,D"}},
		{time.Hour, "20", "C", []string{"t/mesh: cells 20 instead of 80", "3 points: each repeated at least 5 times"}},
		{4 * time.Hour, "40", "C,D", []string{"t/mesh: cells 40 instead of 80"}},
	} {
		s, err := suite.Parse("t.yaml", []byte(sizedSuite))
		if err != nil {
			t.Fatal(err)
		}
		q := request(t, "", "a")
		q.Suites, q.Time, q.Repetitions, q.Paper = []*suite.Suite{s}, c.time, 5, "002"
		dir := filepath.Join(t.TempDir(), "run")
		ctx, cancel := context.WithCancel(context.Background())
		var said []string
		measuring, left := 0, time.Duration(0)
		ev := Events{
			Notice: func(line string) { said = append(said, line) },
			Step: func(p Progress) {
				if left = p.Left; strings.Contains(p.What, "repetition") {
					if measuring++; measuring == 3 {
						cancel()
					}
				}
			},
		}
		r := newRunner(q, rec(q), ev)
		recorded(t, r, costs)
		if _, err := r.start(ctx, dir); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		before := strings.Join(said, "\n")
		for _, want := range c.says {
			if !strings.Contains(before, want) {
				t.Errorf("%v: it said\n%s\nwant %s", c.time, before, want)
			}
		}
		if left <= 0 || left >= c.time {
			t.Errorf("%v: %v are left after some repetitions", c.time, left)
		}
		said = nil
		again, err := record.LoadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := LoadRequest(dir)
		if err != nil {
			t.Fatal(err)
		}
		r = newRunner(*loaded, again, ev)
		recorded(t, r, costs)
		out, err := r.resume(context.Background(), dir)
		if err != nil || len(out.Failed) > 0 {
			t.Fatal(out.Failed, err)
		}
		if after := strings.Join(said, "\n"); after != before {
			t.Errorf("%v: it goes on with another choice\n%s\nbefore\n%s", c.time, after, before)
		}
		if most := c.time.Seconds() + costs["D"]; r.spent > most {
			t.Errorf("%v: it took %.0f s", c.time, r.spent)
		}
		run, samples, _, err := record.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		reps, seen := map[string]int{}, map[string]bool{}
		for _, s := range samples {
			if s.Rep < 0 {
				continue
			}
			where := fmt.Sprint(s.Case, s.Point)
			if reps[where]++; seen[fmt.Sprint(where, s.Rep)] || !s.OK {
				t.Errorf("%v: %+v twice, or failed", c.time, s)
			}
			seen[fmt.Sprint(where, s.Rep)] = true
		}
		for _, n := range []string{"1", "2"} {
			if got := reps[fmt.Sprint("t/mesh", map[string]string{"n": n})]; got < 5 {
				t.Errorf("%v: %d repetitions of n=%s", c.time, got, n)
			}
		}
		for _, class := range []string{"C", "D"} {
			if got := reps[fmt.Sprint("t/class", map[string]string{"class": class})]; got >= 5 != strings.Contains(c.classes, class) {
				t.Errorf("%v: %d repetitions of class %s", c.time, got, class)
			}
		}
		if got := run.Cases[0].Command[1]; got != c.mesh {
			t.Errorf("%v: the record says cells %s, want %s", c.time, got, c.mesh)
		}
		if want := "cells " + c.mesh + " instead of 80"; run.Cases[0].Differs["002"] != want {
			t.Errorf("%v: unlike the paper: %q, want %q", c.time, run.Cases[0].Differs["002"], want)
		}
	}
}

// TestTimeTakesTurns: an experiment with points over the bound does not keep others from being tried and measured,
// and its own cheap points are also measured.
func TestTimeTakesTurns(t *testing.T) {
	s, err := suite.Parse("t.yaml", []byte(`version: 1
suite: t
experiments:
  - name: dear
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", dear, "{n}"]
    sweep: {n: [1, 2, 3, 4, 5]}
    output: [{metric: value, unit: s, better: down, kind: sweep, x: n, match: '(?P<value>x)'}]
  - name: bad
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", bad]
    output: [{metric: value, unit: s, better: down, kind: bar, match: '(?P<value>x)'}]
  - name: sized
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", "{class}"]
    sweep: {class: {values: [C], smaller: [A, S]}}
    output: [{metric: value, unit: s, better: down, kind: bar, match: '(?P<value>x)'}]
  - name: cheap
    programs: [{name: shell, find: [sh]}]
    command: ["{program}", cheap, "{n}"]
    sweep: {n: [1, 2, 3]}
    output: [{metric: value, unit: s, better: down, kind: sweep, x: n, match: '(?P<value>x)'}]
`))
	if err != nil {
		t.Fatal(err)
	}
	q := request(t, "", "a", "b")
	q.Suites, q.Time, q.Repetitions = []*suite.Suite{s}, 15*time.Minute, 5
	said := ""
	r := newRunner(q, rec(q), Events{Notice: func(line string) { said += line + "\n" }})
	recorded(t, r, map[string]float64{"dear 1": 2, "dear 2": 130, "dear 3": 130, "dear 4": 130, "dear 5": 3, "bad": -1, "S": 1, "A": 36, "C": 70,
		"cheap 1": 5, "cheap 2": 5, "cheap 3": 10})
	dir := filepath.Join(t.TempDir(), "run")
	out, err := r.start(context.Background(), dir)
	if err != nil || len(out.Failed) != 2 { // a trial of each variant
		t.Fatal(out.Failed, err)
	}
	_, samples, _, err := record.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	reps, repsOf := map[string]int{}, map[string]int{}
	for _, s := range samples {
		if s.Rep >= 0 && s.Variant == "b" {
			reps[s.Case+s.Point["n"]]++
			repsOf[s.Point["class"]]++
		}
	}
	for _, at := range []string{"t/dear1", "t/dear5", "t/cheap1", "t/cheap2", "t/cheap3"} {
		if reps[at] < 5 {
			t.Errorf("%s was repeated %d times", at, reps[at])
		}
	}
	if n := repsOf["S"]; n < 5 || repsOf["A"]+repsOf["C"] > 0 {
		t.Errorf("classes repeated: %v: a larger one is none that the time holds beside the other points", repsOf)
	}
	if n := reps["t/dear2"] + reps["t/dear3"] + reps["t/dear4"]; n != 0 {
		t.Errorf("%d repetitions of what takes too long", n)
	}
	for _, want := range []string{"not reached in 15m0s: t/bad, which failed when it was tried", "not reached in 15m0s: t/dear n=2, of which one repetition of all variants takes 1m0s or more",
		"not reached in 15m0s: t/dear n=4, of which"} {
		if !strings.Contains(said, want) {
			t.Errorf("it said\n%s\nwant %s", said, want)
		}
	}
	if got := pointsTogether([]point{{"n": "1", "grid": "1x1", "threads": "rest"}, {"n": "5", "grid": "1x1", "threads": "rest"}}); got != "n=1; n=5" {
		t.Errorf("together: %s", got)
	}
}

// TestSizesAsked: sizes that a user sets are not selected, and jobs have one size.
func TestSizesAsked(t *testing.T) {
	s, err := suite.Parse("t.yaml", []byte(sizedSuite))
	if err != nil {
		t.Fatal(err)
	}
	e := s.Experiments[0]
	q := request(t, "", "a")
	if n := len(q.sizes(e)); n != 1 {
		t.Errorf("without a time: %d sizes", n)
	}
	q.Time = time.Hour
	if n := len(q.sizes(e)); n != 2 { // 20 and 10
		t.Errorf("of its own: %d sizes", n)
	}
	q.Paper = "002"
	if n := len(q.sizes(e)); n != 4 { // 80, 40, 20, 10
		t.Errorf("of the paper: %d sizes", n)
	}
	q.Set = map[string][]string{"mesh.cells": {"30"}}
	if n := len(q.sizes(e)); n != 1 {
		t.Errorf("that was set: %d sizes", n)
	}
	q.Set, q.Variants[0].Step = nil, &Step{Nodes: 2}
	if n := len(q.sizes(e)); n != 1 {
		t.Errorf("in a job: %d sizes", n)
	}
}

// TestTimed: a run with a time limit reports what it will not reach, repeats the rest more often than required, and
// can be interrupted.
func TestTimed(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	q := request(t, `if [ {n} = 2 ]; then exec sleep 100; fi; echo 8 1$(date +%N | cut -c5-7)`, "a", "b")
	q.Time, q.Repetitions = 3*time.Second, 5
	dir := filepath.Join(t.TempDir(), "run")
	ctx, cancel := context.WithCancel(context.Background())
	var said []string
	ev := Events{
		Step: func(p Progress) {
			if p.Done == 9 {
				cancel()
			}
		},
		Notice: func(line string) { said = append(said, line) },
	}
	if _, err := Start(ctx, dir, q, rec(q), ev); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "1 point: each repeated at least 5 times") || !strings.Contains(text, "not reached in 3s: t/one n=2") {
		t.Errorf("it said\n%s", text)
	}
	out, err := Resume(context.Background(), dir, Events{})
	if err != nil || len(out.Failed) != 0 {
		t.Fatal(out.Failed, err)
	}
	run, samples, notes, err := record.Load(dir)
	if err != nil || len(notes) > 0 || run.Ended.IsZero() || len(run.Unreached) != 1 || !strings.HasPrefix(run.Unreached[0], "t/one n=2, of which one repetition") {
		t.Fatal(run.Unreached, notes, err)
	}
	seen := map[string]bool{}
	for _, s := range samples {
		k := fmt.Sprint(s.Variant, s.Point, s.Rep)
		if seen[k] {
			t.Errorf("%s twice", k)
		}
		seen[k] = true
	}
	for _, v := range []string{"a", "b"} {
		for rep := range 5 {
			if !seen[fmt.Sprint(v, map[string]string{"n": "1", "size": "8"}, rep)] {
				t.Errorf("%s lacks repetition %d", v, rep)
			}
		}
	}
}
