package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

var earlierBuild = flag.String("earlier", "", "folder of an earlier C build: its provider is compared with this one (table earlier)")

// earlierBar is the least ratio of this provider to the earlier one that counts as no slower: 2 %.
const earlierBar = 0.98

// earlierPairs are the columns of the table earlier: this provider's, and the earlier one's beside it.
var earlierPairs = []struct{ ours, earlier, what string }{
	{"work", "work-was", "libfabric, both ends on one core"},
	{"lf", "lf-was", "libfabric, CMA"},
	{"lf-nocma", "lf-nocma-was", "libfabric, no CMA"},
	{"puts", "puts-was", "fi_write to the region"},
	{"ompi", "ompi-was", "Open MPI, CMA"},
	{"ompi-nocma", "ompi-nocma-was", "Open MPI, no CMA"},
	{"mpich", "mpich-was", "MPICH"},
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

// earlier returns the table that compares this build's provider with that of -earlier, over
// libfabric, Open MPI and MPICH, in turns. It returns an error if there is no such provider.
func earlier(b *bench) (*table, error) {
	if *earlierBuild == "" {
		return nil, fmt.Errorf("it needs -earlier, the folder of an earlier build")
	}
	was, err := b.was()
	if err != nil {
		return nil, err
	}
	columns := map[string]func(*bench) (*way, error){
		"work": func(b *bench) (*way, error) { return b.work(""), nil },
		"lf":   func(b *bench) (*way, error) { return b.fabric("", []string{"messages", "ivshmem"}), nil },
		"lf-nocma": func(b *bench) (*way, error) {
			return b.fabric("", []string{"messages", "ivshmem"}, "FI_IVSHMEM_CMA=0"), nil
		},
		"puts": func(b *bench) (*way, error) {
			return b.fabric("", []string{"puts", "ivshmem"}, "FI_IVSHMEM_RANKS=16"), nil
		},
		"ompi":       func(b *bench) (*way, error) { return named(openmpi, b, "ivshmem") },
		"ompi-nocma": func(b *bench) (*way, error) { return named(openmpi, b, "ivshmem-nocma") },
		"mpich":      func(b *bench) (*way, error) { return named(mpich, b, "ivshmem") },
	}
	t := newTable("this provider and an earlier one (was) in turns")
	for _, p := range earlierPairs {
		now, err := columns[p.ours](b)
		if err != nil {
			// An MPI that is not there must not cost the others their figures.
			fmt.Printf("%s is left out: %v\n", p.what, err)
			continue
		}
		before, err := columns[p.ours](was)
		if err != nil {
			return nil, err
		}
		now.name, before.name = p.ours, p.earlier
		t.ways = append(t.ways, now, before)
		t.columns = append(t.columns, p.ours, p.earlier)
		t.compare(p.ours, p.earlier)
	}
	return t, nil
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

// earlier says whether this provider is no slower than the earlier one: by the worst figure, and by
// the median of the ratios of all, which is not moved by one size that was disturbed.
func (v verdict) earlier(t *table) {
	for _, p := range earlierPairs {
		r := ratio{p.ours, []string{p.earlier}}
		if _, text, ok := t.middle(r); ok {
			least, _ := t.worst(r)
			v.say(fmt.Sprintf("%s: within 2 %% of the earlier provider", p.what), text, least >= earlierBar)
		}
	}
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
