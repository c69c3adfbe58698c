package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nearmetal/internal/bench/record"
)

// The cheapest points are taken, as many as the time holds.
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

// More repetitions go to the point whose interval is widest, as long as there is time and something to gain.
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

// A run with a time says what it will not reach, repeats the rest more often than it must, and can be cut short.
func TestTimed(t *testing.T) {
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
