package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

var earlierBuild = flag.String("earlier", "", "folder of an earlier C build: its provider is compared with this one (tables earlier, earlier-work, earlier-mpi, message)")

// earlierTables are those that are made with -earlier alone, unless -only names them.
var earlierTables = []string{"earlier", "earlier-work", "earlier-mpi", "message"}

// earlierBar is the least ratio of this provider to the earlier one that counts as no slower: 2 %.
const earlierBar = 0.98

// Beside each column of the tables earlier, earlier-work and earlier-mpi stands the earlier provider's twice, under its name with these
// ends. The ratio of the two is the machine's noise.
const (
	wasEnd   = "-was"
	againEnd = "-again"
)

// earlierColumn is this provider's column of such a table: what it measures, and how it is made.
type earlierColumn struct {
	name, what string
	way        func(*bench) (*way, error)
}

// earlierFabric are the columns over libfabric.
var earlierFabric = []earlierColumn{
	{"work", "libfabric, both ends on one core", func(b *bench) (*way, error) { return b.work(""), nil }},
	{"lf", "libfabric, CMA", func(b *bench) (*way, error) {
		return b.fabric("", []string{"messages", "ivshmem"}), nil
	}},
	{"lf-nocma", "libfabric, no CMA", func(b *bench) (*way, error) {
		return b.fabric("", []string{"messages", "ivshmem"}, "FI_IVSHMEM_CMA=0"), nil
	}},
	{"puts", "fi_write to the region", func(b *bench) (*way, error) {
		w := b.fabric("", []string{"puts", "ivshmem"}, "FI_IVSHMEM_RANKS=16")
		w.keep = func(k key) bool { return k.what != "put-memcpy" } // which is not a provider's
		return w, nil
	}},
}

// earlierWork is the first of them. Alone, the two providers' runs stand close to each other, and many take little time: so
// it shows a difference of 1 or 2 %.
var earlierWork = earlierFabric[:1]

// earlierMPI are the columns over MPI libraries.
var earlierMPI = []earlierColumn{
	{"ompi", "Open MPI, CMA", func(b *bench) (*way, error) { return named(openmpi, b, "ivshmem") }},
	{"ompi-nocma", "Open MPI, no CMA", func(b *bench) (*way, error) { return named(openmpi, b, "ivshmem-nocma") }},
	{"mpich", "MPICH", func(b *bench) (*way, error) { return named(mpich, b, "ivshmem") }},
}

// work is the way with both ends of each message in one thread on one core, through the region: where the host puts
// the cores does not move its figures.
func (b *bench) work(name string, env ...string) *way {
	return b.fabric(name, []string{"work", "ivshmem"}, append([]string{"FI_IVSHMEM_CMA=0"}, env...)...)
}

// was returns the bench with the provider of -earlier. It returns an error if there is no such provider.
func (b *bench) was() (*bench, error) {
	was := *b
	var err error
	if was.provider, err = filepath.Abs(filepath.Join(*earlierBuild, "fabric")); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(was.provider, "libivshmem-fi.so")); err != nil {
		return nil, fmt.Errorf("there is no earlier provider: %w", err)
	}
	return &was, nil
}

// earlier returns a maker of the table that compares this build's provider with that of -earlier in these columns, in
// turns, and that one with itself. The maker returns an error if there is no such provider.
func earlier(columns []earlierColumn) func(*bench) (*table, error) {
	return func(b *bench) (*table, error) {
		if *earlierBuild == "" {
			return nil, fmt.Errorf("it needs -earlier, the folder of an earlier build")
		}
		was, err := b.was()
		if err != nil {
			return nil, err
		}
		t := newTable("this provider, an earlier one (was), and that one once more (again), in turns")
		for _, c := range columns {
			var ways []*way
			for _, side := range []struct {
				end string
				b   *bench
			}{{"", b}, {wasEnd, was}, {againEnd, was}} {
				w, err := c.way(side.b)
				if err != nil {
					// An MPI that is not there must not cost the others their figures.
					fmt.Printf("%s is left out: %v\n", c.what, err)
					break
				}
				w.name = c.name + side.end
				ways = append(ways, w)
			}
			if len(ways) < 3 {
				continue
			}
			t.ways = append(t.ways, ways...)
			t.columns = append(t.columns, c.name, c.name+wasEnd, c.name+againEnd)
			t.compare(c.name, c.name+wasEnd).compare(c.name+againEnd, c.name+wasEnd)
		}
		return t, nil
	}
}

// named returns the way of that name of a table's maker.
func named(maker func(*bench) (*table, error), b *bench, name string) (*way, error) {
	t, err := maker(b)
	if err != nil {
		return nil, err
	}
	for _, w := range t.ways {
		if w.name == name {
			return w, nil
		}
	}
	return nil, fmt.Errorf("there is no way %s", name)
}

// earlier says whether this provider is no slower than the earlier one, with the noise beside it: the ratios of the earlier
// one to itself.
func (v verdict) earlier(t *table, columns []earlierColumn) {
	for _, c := range columns {
		now, noise := ratio{c.name, []string{c.name + wasEnd}}, ratio{c.name + againEnd, []string{c.name + wasEnd}}
		m, text, ok := t.middle(now)
		moved, again, ok2 := t.middle(noise)
		if !ok || !ok2 {
			continue
		}
		slower := t.slower(now, noise)
		v.say(fmt.Sprintf("%s: within 2 %% of the earlier provider", c.what), text, m >= min(earlierBar, moved) && len(slower) == 0)
		v.say("  the earlier provider beside itself", again, true)
		if len(slower) > 0 {
			v.say("  slower by over 2 % and by more than the noise", strings.Join(slower, ", "), false)
		}
	}
}

// slower names the figures of a column that are slower than the other column's by more than 2 %, and by more than
// any figure of the noise. Slower is one whose median and whose best run both say so. What else runs on the machine only
// takes time. So it moves the best of many runs least.
func (t *table) slower(now, noise ratio) (names []string) {
	bar, _ := t.worst(noise)
	bar = min(bar, earlierBar)
	for _, k := range t.keys() {
		m, _, ok := t.ratio(k, now)
		best, ok2 := t.best(k, now)
		if ok && ok2 && m < bar && best < bar {
			names = append(names, fmt.Sprintf("%s %d B: %.3f, %.3f of the best runs", k.what, k.bytes, m, best))
		}
	}
	return names
}

// best returns the ratio of the best run of a column to the best one of the first other column, both of one state
// of the machine. Above 1 ours is the better.
func (t *table) best(k key, r ratio) (float64, bool) {
	var mine, theirs []float64
	for _, p := range t.pairs(r.ours, k, r.to[0], k) {
		mine, theirs = append(mine, p[0]), append(theirs, p[1])
	}
	if len(mine) == 0 {
		return 0, false
	}
	if k.moreIsBetter() {
		return slices.Max(mine) / slices.Max(theirs), true
	}
	return slices.Min(theirs) / slices.Min(mine), true
}

// middle returns the median of a column's ratios of all figures, and says it with the worst one.
func (t *table) middle(r ratio) (m float64, text string, ok bool) {
	var all []float64
	for _, k := range t.keys() {
		if f, _, ok := t.ratio(k, r); ok {
			all = append(all, f)
		}
	}
	least, at := t.worst(r)
	m, ok = median(all)
	return m, fmt.Sprintf("%.3f in the middle of %d figures; %.3f at worst, at %s", m, len(all), least, at), ok
}

// worst returns the least of a column's ratios, and of which figure it is.
func (t *table) worst(r ratio) (least float64, at string) {
	for _, k := range t.keys() {
		if f, _, ok := t.ratio(k, r); ok && (at == "" || f < least) {
			least, at = f, fmt.Sprintf("%s %d B", k.what, k.bytes)
		}
	}
	return least, at
}
