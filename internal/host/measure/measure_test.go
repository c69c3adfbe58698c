package measure

import (
	"context"
	"reflect"
	"sort"
	"testing"

	"nearmetal/internal/topology"
)

// TestThisHost: on this host every part returns a plausible value.
func TestThisHost(t *testing.T) {
	h, err := topology.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), Options{Host: h})
	if err != nil {
		t.Fatal(err)
	}
	cpus := usable(h)
	if n := len(cpus) * (len(cpus) - 1) / 2; len(r.Pairs) == 0 && n > 0 || len(r.CPUs) == 0 || len(r.Memory) == 0 && len(r.Notes) == 0 {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Pairs {
		if p.A == p.B || p.Ns <= 0 {
			t.Errorf("%+v", p)
		}
	}
	for _, m := range r.Memory {
		if m.MBps <= 0 || m.Ns <= 0 {
			t.Errorf("%+v", m)
		}
	}
	for _, c := range r.CPUs {
		if c.Syscall <= 0 || c.Fault <= 0 || c.TimerMax < c.TimerMid {
			t.Errorf("%+v", c)
		}
	}
	// No binding remains: this process may run where it could before.
	if after := usable(h); len(after) != len(cpus) {
		t.Errorf("%d CPUs usable after it, %d before", len(after), len(cpus))
	}
}

func TestCancelled(t *testing.T) {
	h, err := topology.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, Options{Host: h}); err == nil {
		t.Error("no error")
	}
}

// TestOdd: outliers are detected by the values' own median.
func TestOdd(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		up     bool
		want   []int
	}{
		{[]float64{100, 101, 99, 100, 180}, false, []int{4}},
		{[]float64{100, 101, 99, 100, 20}, false, nil}, // a better value is not out of line
		{[]float64{100, 101, 99, 100, 40}, true, []int{4}},
		{[]float64{100, 200}, false, nil}, // it is not known which is right
		{[]float64{100, 60, 150, 90, 170}, false, nil},
		{[]float64{10, 10, 10, 10.1}, false, nil},
		{nil, false, nil},
	} {
		var got []int
		for i, bad := range odd(tt.values, tt.up) {
			if bad {
				got = append(got, i)
			}
		}
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: %v, want %v", tt.values, got, tt.want)
		}
	}
	r := &Result{Memory: []Memory{{0, 0, 100, 90, false}, {1, 1, 100, 90, false}, {2, 2, 30, 91, false}, {0, 1, 30, 150, false}}}
	judge(r)
	if r.Memory[0].Odd || !r.Memory[2].Odd || r.Memory[3].Odd {
		t.Errorf("%+v", r.Memory)
	}
}

// TestPairs: all pairs of cores, and the threads of each, are chosen, and a stride visits each once.
func TestPairs(t *testing.T) {
	h, err := topology.Open("../../../test/topology/epyc-nps4.machine")
	if err != nil {
		t.Fatal(err)
	}
	var cpus []*topology.CPU
	for i := range h.CPUs {
		cpus = append(cpus, &h.CPUs[i])
	}
	pairs := choosePairs(cpus)
	kinds := map[string]int{}
	for _, p := range pairs {
		kinds[p.Kind]++
	}
	// 128 cores: 16 groups of 8 share a cache, two groups per node, four nodes per package.
	want := map[string]int{"core": 128, "cache": 16 * 28, "node": 8 * 64, "package": 2 * 6 * 256, "machine": 64 * 64}
	if !reflect.DeepEqual(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
	for _, n := range []int{1, 2, 3, 7, 100, 8256} {
		var seen []int
		for i, k := 0, 0; i < n; i, k = i+1, (k+stride(n))%n {
			seen = append(seen, k)
		}
		sort.Ints(seen)
		for i, k := range seen {
			if i != k {
				t.Fatalf("%d: %v", n, seen)
			}
		}
	}
}

func FuzzSendLat(f *testing.F) {
	f.Add(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n 8       1000          1.80           5.59         1.85\n")
	f.Fuzz(func(t *testing.T, s string) {
		if us, ok := parseSendLat(s); ok && !(us > 0) {
			t.Errorf("%q: %v", s, us)
		}
	})
}
