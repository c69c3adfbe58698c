package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/bench/extract"
	"nearmetal/internal/bench/record"
	"nearmetal/internal/bench/verdict"
)

// decider makes a runner of two variants, of which b is faster than a at n=1 in each repetition, and at n=2 in every
// other one. A repetition lasts some seconds on a clock of its own.
func decider(t *testing.T, seconds float64) (r *runner, notices *[]string) {
	t.Helper()
	q := request(t, "echo", "a", "b")
	q.Repetitions, q.Warmup, q.Decide = verdict.Looks[0], 0, true
	notices = new([]string)
	r = newRunner(q, rec(q), Events{Notice: func(line string) { *notices = append(*notices, line) }})
	clock := time.Unix(0, 0)
	r.now = func() time.Time { return clock }
	r.pingpong = func() float64 { return 0.2 }
	r.perform = func(_ context.Context, s step) (measured, error) {
		clock = clock.Add(time.Duration(seconds * float64(time.Second)))
		value := 10.
		if s.variant == 1 && (s.point == 0 || s.rep%2 == 0) {
			value = 5
		} else if s.variant == 1 {
			value = 20
		}
		return measured{seconds: seconds, values: []extract.Value{{Value: value, Point: map[string]string{"size": "8"}}}}, nil
	}
	return r, notices
}

// counts returns the number of repetitions of each point and variant in a directory.
func counts(t *testing.T, dir string) string {
	t.Helper()
	_, samples, _, err := record.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	n, seen := map[string]int{}, map[string]bool{}
	for _, s := range samples {
		if s.PingPong != 0.2 {
			t.Errorf("the ping-pong is %v", s.PingPong)
		}
		key := "n=" + s.Point["n"] + " " + s.Variant
		if again := fmt.Sprint(key, " ", s.Rep); seen[again] {
			t.Errorf("%s twice", again)
		} else {
			seen[again] = true
		}
		n[key]++
	}
	return fmt.Sprint(n)
}

// TestDecide: a run repeats only the undecided points, to the last look, and reports them.
func TestDecide(t *testing.T) {
	r, notices := decider(t, 1)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := r.start(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	const want = "map[n=1 a:7 n=1 b:7 n=2 a:28 n=2 b:28]"
	if got := counts(t, dir); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	lines := strings.Join(*notices, "\n")
	for _, line := range []string{"undecided after 7 repetitions: t/one at 1 of 2; repeating 1 point, for about 14s",
		"undecided after 14 repetitions: t/one at 1 of 2; repeating 1 point, for about 28s", "undecided after 28 repetitions: t/one at 1 of 2"} {
		if !strings.Contains(lines, line) {
			t.Errorf("%q is not in %q", line, lines)
		}
	}

	// A run that is interrupted at any step resumes to the same end.
	for _, at := range []int{5, 28, 31, 43, 70} {
		r, _ := decider(t, 1)
		dir := filepath.Join(t.TempDir(), "run")
		ctx, cancel := context.WithCancel(context.Background())
		perform, n := r.perform, 0
		r.perform = func(ctx context.Context, s step) (measured, error) {
			if n++; n == at {
				cancel()
			}
			return perform(ctx, s)
		}
		if _, err := r.start(ctx, dir); !errors.Is(err, context.Canceled) {
			t.Fatal(at, err)
		}
		r, _ = decider(t, 1)
		if _, err := r.resume(context.Background(), dir); err != nil {
			t.Fatal(at, err)
		}
		if got := counts(t, dir); got != want {
			t.Errorf("cut short in step %d: %s, want %s", at, got, want)
		}
	}
}

// TestDecideEnds: the duration of repeating is bounded; no repetition begins after that.
func TestDecideEnds(t *testing.T) {
	r, notices := decider(t, 600)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := r.start(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	if got, want := counts(t, dir), "map[n=1 a:7 n=1 b:7 n=2 a:10 n=2 b:10]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if lines := strings.Join(*notices, "\n"); !strings.Contains(lines, "1h0m0s of repeating are over: what is undecided stays so") {
		t.Errorf("nothing says why it ended: %q", lines)
	}
}

// TestDecideMoved: repetitions during which the cores were moved are kept, marked, and not used in verdicts.
func TestDecideMoved(t *testing.T) {
	r, _ := decider(t, 1)
	n := 0
	r.pingpong = func() float64 { n++; return []float64{0.2, 0.05}[n%2] }
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := r.start(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	_, samples, _, err := record.Load(dir)
	if err != nil || len(samples) != 4*28 {
		t.Fatal(len(samples), err)
	}
	for _, s := range samples {
		if !s.Moved || !s.OK {
			t.Fatalf("%+v", s)
		}
	}
}

// TestCoresPingPong: only this host's cores are measured, so variants on other hosts have none, nor do variants that
// are not compared.
func TestCoresPingPong(t *testing.T) {
	q := request(t, "echo", "a", "b")
	for _, list := range [][]Variant{q.Variants[:1], InJob(q.Variants, 2)} {
		if v := coresPingPong(list)(); v != 0 {
			t.Errorf("%v us", v)
		}
	}
	if v := coresPingPong(request(t, "echo", "a", "b").Variants)(); v < 0 {
		t.Errorf("%v us", v)
	}
}
