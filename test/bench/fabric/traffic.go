package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
)

// trafficBar is the least ratio of counting to not counting that counts as under 2 %.
const trafficBar = 0.98

// trafficPairs are the ratios of the table traffic: this provider without counting and with it, beside the same provider
// without; the second says what the machine's noise is. The last are there with -earlier: a provider that cannot count.
var trafficPairs = []struct{ ours, other, what string }{
	{"work-on", "work-off", "both ends on one core: counting on"},
	{"work-again", "work-off", "both ends on one core: the same provider again (the machine's noise)"},
	{"on", "off", "libfabric: counting on"},
	{"again", "off", "libfabric: the same provider again (the machine's noise)"},
	{"ompi-on", "ompi-off", "Open MPI: counting on"},
	{"ompi-again", "ompi-off", "Open MPI: the same provider again (the machine's noise)"},
	{"work-off", "work-was", "both ends on one core: counting off, beside the earlier provider"},
	{"off", "was", "libfabric: counting off, beside the earlier provider"},
	{"ompi-off", "ompi-was", "Open MPI: counting off, beside the earlier provider"},
}

// trafficCounted are the sizes of which instructions are counted. The counts have no verdict: most of what counting adds
// is done while the message is on its way.
var trafficCounted = []int{8, 1024, 65536}

// traffic measures what counting messages costs (NEARMETAL_TRAFFIC), off and on, in turns.
func traffic(b *bench) (*table, error) {
	t := newTable("counting messages: off, off again, on")
	sides := []struct {
		name string
		b    *bench
		env  []string
	}{
		{"off", b, nil}, {"again", b, nil},
		{"on", b, []string{"NEARMETAL_TRAFFIC=" + filepath.Join(b.tmp, "counts")}},
	}
	if *earlierBuild != "" {
		was, err := b.was()
		if err != nil {
			return nil, err
		}
		sides = append(sides, struct {
			name string
			b    *bench
			env  []string
		}{"was", was, nil})
	}
	_, err := exec.LookPath("valgrind")
	countable := err == nil
	if !countable {
		fmt.Println("traffic: instructions are left out: they need valgrind")
	}
	for _, s := range sides {
		t.ways = append(t.ways, s.b.work("work-"+s.name, s.env...), s.b.fabric(s.name, []string{"messages", "ivshmem"}, s.env...))
		if countable && s.name != "again" { // a count is the same each time
			t.ways = append(t.ways, s.b.count("count-"+s.name, trafficCounted, append([]string{"FI_IVSHMEM_CMA=0"}, s.env...)...))
		}
		w, err := named(openmpi, s.b, "ivshmem")
		if err != nil {
			fmt.Printf("traffic: Open MPI is left out: %v\n", err)
			continue
		}
		w.name, w.env = "ompi-"+s.name, append(slices.Clone(w.env), s.env...)
		t.ways = append(t.ways, w)
	}
	for _, w := range t.ways {
		t.columns = append(t.columns, w.name)
	}
	for _, p := range trafficPairs {
		if slices.Contains(t.columns, p.ours) && slices.Contains(t.columns, p.other) {
			t.compare(p.ours, p.other)
		}
	}
	return t, nil
}

// traffic says what counting costs: by the median of the ratios of all figures, which is not moved by one size that was
// disturbed, with the worst beside it.
func (v verdict) traffic(t *table) {
	for _, p := range trafficPairs {
		if m, text, ok := t.middle(ratio{p.ours, []string{p.other}}); ok {
			v.say(p.what+": within 2 %", text, m >= trafficBar)
		}
	}
}
