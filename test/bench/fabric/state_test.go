package main

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
)

// machineOf is a machine whose ping-pongs are these, in turn.
func machineOf(pingpongs ...float64) *machine {
	return &machine{pingpong: func() (float64, error) {
		v := pingpongs[0]
		pingpongs = pingpongs[1:]
		if v == 0 {
			return 0, errors.New("no ping-pong")
		}
		return v, nil
	}}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name      string
		pingpongs []float64
		times     int     // that the way is to be run
		pingpong  float64 // of the figures; 0: left out
		out       int
	}{
		{"steady", []float64{0.2, 0.2}, 1, 0.2, 0},
		{"mean", []float64{0.16, 0.225}, 1, 0.19, 0},
		{"moved once", []float64{0.2, 0.05, 0.05}, 2, 0.05, 0},
		{"moved back", []float64{0.2, 0.05, 0.2, 0.2}, 3, 0.2, 0},
		{"moved always", []float64{0.05, 0.2, 0.05, 0.2}, 3, 0, 1},
		{"lost", []float64{0.2, 0}, 1, 0, 0},
		{"none", []float64{0}, 0, 0, 0},
	} {
		m := machineOf(c.pingpongs...)
		times := 0
		figures, pingpong, err := m.run(func() (map[key]float64, error) {
			times++
			return map[key]float64{{"latency", 8}: float64(times)}, nil
		})
		if times != c.times || math.Abs(pingpong-c.pingpong) > 0.001 || m.out != c.out || (err == nil) != (c.pingpong > 0) {
			t.Errorf("%s: run %d times, ping-pong %v, %d left out, %v", c.name, times, pingpong, m.out, err)
		}
		// Only the last one's figures are those of the ping-pong.
		if err == nil && figures[key{"latency", 8}] != float64(times) {
			t.Errorf("%s: figures %v of an earlier run", c.name, figures)
		}
	}
}

// The ping-pong after a way is the next one's before, also where the way failed.
func TestRunInTurn(t *testing.T) {
	m := machineOf(0.2, 0.21, 0.06, 0.06, 0, 0.06, 0.06)
	times := 0
	good := func() (map[key]float64, error) { times++; return map[key]float64{}, nil }
	bad := func() (map[key]float64, error) { times++; return nil, errors.New("hung") }
	for i, way := range []func() (map[key]float64, error){good, bad, good, good, good} {
		_, _, err := m.run(way)
		if failed := i == 1 || i == 3; failed != (err != nil) {
			t.Errorf("way %d: %v", i, err)
		}
	}
	if times != 5 || m.runs != 3 || len(m.all) != 6 {
		t.Errorf("%d times, %d runs, ping-pongs %v", times, m.runs, m.all)
	}
}

func TestMachineString(t *testing.T) {
	m := &machine{all: []float64{0.212, 0.23, 0.22}, runs: 2}
	if got, want := m.String(), "a cache line's ping-pong: 0.21 to 0.23 us in 3 measurements"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	m = &machine{all: []float64{0.061, 0.24, 0.061}, runs: 130, out: 3}
	want := "a cache line's ping-pong: 0.061 us (2 measurements), 0.24 us (1): the host moved the cores; " +
		"ratios are only between figures of one state, and 3 of 130 runs were left out"
	if got := m.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

const near, far = 0.06, 0.24 // us

// moved is a table with figures of two states.
func moved() (*table, key) {
	lat := key{"latency", 8}
	t := newTable("", &way{name: "ivshmem"}, &way{name: "sm"}, &way{name: "ucx"})
	for run, s := range []struct {
		pingpong, ours, sm float64
	}{{far, 4, 8}, {near, 1, 1.5}, {far, 5, 10}, {far, 6, 24}} {
		t.add("ivshmem", lat, sample{run, s.pingpong, s.ours})
		t.add("sm", lat, sample{run, s.pingpong * 1.1, s.sm})
	}
	return t, lat
}

func TestRatioWithinState(t *testing.T) {
	toSm := ratio{"ivshmem", []string{"sm"}}
	check := func(what string, tab *table, r ratio, k key, want float64) {
		t.Helper()
		if got, _, ok := tab.ratio(k, r); got != want || ok != (want != 0) {
			t.Errorf("%s: %v (%v), want %v", what, got, ok, want)
		}
	}
	tab, lat := moved()
	check("each run's own, in the state with most figures", tab, toSm, lat, 2) // of 2, 2, 4
	for column, want := range map[string]float64{"ivshmem": 5, "sm": 10} {
		if m, usual, _ := tab.median(column, lat); m != want || !usual {
			t.Errorf("median of %s: %v (%v), want %v", column, m, usual, want)
		}
	}

	// A run that has the peer in the other state is compared with the peer's median.
	tab.add("ivshmem", lat, sample{4, far, 1})
	tab.add("sm", lat, sample{4, near, 1})
	check("the peer's median", tab, toSm, lat, 3) // of 2, 2, 4, 10

	// A peer that has never been in the state with most figures is compared in the other.
	tab.add("ucx", lat, sample{0, near, 0.5})
	if m, usual, ok := tab.median("ucx", lat); m != 0.5 || usual || !ok {
		t.Errorf("median in the other state: %v (%v, %v)", m, usual, ok)
	}
	check("the other state", tab, ratio{"ivshmem", []string{"ucx"}}, lat, 0.5)

	// Nothing in common: not even where both are of one run. Who is the best is not known.
	bw := key{"bandwidth", 4096}
	tab.add("ivshmem", bw, sample{0, near, 10})
	tab.add("sm", bw, sample{0, far, 1})
	tab.add("ucx", bw, sample{0, near, 5})
	check("no state in common", tab, toSm, bw, 0)
	check("the best of those with one", tab, ratio{"ivshmem", []string{"ucx"}}, bw, 2)
	check("one of several without", tab, ratio{"ivshmem", []string{"ucx", "sm"}}, bw, 0)
}

// A figure and another of the same column, as verdicts compare them.
func TestDifference(t *testing.T) {
	tab, lat := moved()
	crowd := key{"latency-crowd", 8}
	tab.add("ivshmem", crowd, sample{0, far, 4.5})
	tab.add("ivshmem", crowd, sample{1, near, 9})
	if d, ok := tab.difference("ivshmem", crowd, "ivshmem", lat); d != 0.5 || !ok {
		t.Errorf("difference: %v (%v), want 0.5", d, ok)
	}
	if d, ok := tab.difference("ivshmem", crowd, "ucx", lat); ok {
		t.Errorf("a difference to nothing: %v", d)
	}
}

func TestVerdictBlank(t *testing.T) {
	tab, lat := moved()
	other := key{"latency", 32}
	for _, c := range []struct {
		name  string
		prime func()
		to    string
		want  []string
	}{
		{"all there", func() {}, "sm", []string{"goal", "2.00", "yes"}},
		{"not in the table", func() {}, "tcp", nil},
		{"no figures", func() {}, "ucx", []string{"goal", "not measured", "NO"}},
		{"one is blank", func() {
			tab.add("ivshmem", other, sample{0, near, 1})
			tab.add("sm", other, sample{0, far, 9})
		}, "sm", []string{"goal", "2.00, 1 more without a ratio", "NO"}},
	} {
		c.prime()
		var out strings.Builder
		v := verdict{tabwriter.NewWriter(&out, 0, 0, 1, '|', 0)}
		v.ratio(tab, "goal", 1, ratio{"ivshmem", []string{c.to}}, lat.what, 0, 256)
		v.w.Flush()
		got := strings.FieldsFunc(strings.TrimSpace(out.String()), func(r rune) bool { return r == '|' })
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
