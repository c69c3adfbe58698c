package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Instructions of a message, both of its ends in one thread, counted by valgrind's callgrind. A count does not
// depend on where the host puts the cores, nor on what else runs: it shows a difference of a tenth of a percent, where
// times of one build differ by several percent. What it does not show is what an instruction waits for.

// counted and countedCMA are the sizes of which instructions are counted; from 8 KiB on CMA reads.
var (
	counted    = []int{0, 8, 64, 128, 256, 328, 512, 1024, 4096, 16384, 65536}
	countedCMA = []int{8192, 16384, 65536}
)

const (
	countRuns = 2               // one is enough; the second shows that it is
	countMost = 5 * time.Minute // of one size
)

// messageWays are the ways of the table message. What is counted makes a copy in one way: which is faster is measured
// otherwise, and so depends on the machine. (FI_IVSHMEM_PAST is what FI_IVSHMEM_NT was called in earlier providers.)
var messageWays = []struct {
	name, what string
	sizes      []int
	env        []string
}{
	{"now", "libfabric, no CMA", counted, []string{"FI_IVSHMEM_CMA=0"}},
	{"now-cma", "libfabric, CMA", countedCMA, []string{"FI_IVSHMEM_CMA=1", "FI_IVSHMEM_CMA_MIN=8192"}},
}

// message returns the table with the instructions and the time of a message, both its ends on one core: over this
// provider, over that of -earlier, and once more over this one, which says what the time's noise is.
func message(b *bench) (*table, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, fmt.Errorf("it needs valgrind: %w", err)
	}
	t := newTable("instructions and time of a message, both its ends on one core")
	sides := map[string]*bench{"": b, "-again": b}
	if *earlierBuild != "" {
		was, err := b.was()
		if err != nil {
			return nil, err
		}
		sides["-was"] = was
	}
	for _, m := range messageWays {
		for _, side := range []string{"", "-was", "-again"} {
			b := sides[side]
			if b == nil {
				continue
			}
			timed := b.work(m.name+side, m.env...)
			timed.keep = func(k key) bool { return k.bytes >= m.sizes[0] }
			t.ways = append(t.ways, timed)
			if side != "-again" {
				t.ways = append(t.ways, b.count(timed.name, m.sizes, m.env...))
			}
			t.columns = append(t.columns, timed.name)
			if side != "" {
				t.compare(m.name, timed.name)
			}
		}
	}
	return t, nil
}

// message says how this provider's instructions and times compare with the earlier one's, and its times with themselves.
func (v verdict) message(t *table) {
	for _, m := range messageWays {
		for _, what := range []string{"instructions", "work"} {
			for _, side := range []string{"-was", "-again"} {
				words := map[string]string{"-was": "the earlier provider", "-again": "itself"}[side]
				if all, text := t.among(what, ratio{m.name, []string{m.name + side}}); len(all) > 0 {
					v.say(fmt.Sprintf("%s, %s: within 2 %% of %s", m.what, what, words), text, slices.Min(all) >= earlierBar)
				}
			}
		}
	}
}

// among returns a column's ratios of one figure at all sizes, and says what they are.
func (t *table) among(what string, r ratio) (all []float64, text string) {
	least, at := 0.0, 0
	for _, k := range t.keys() {
		if f, _, ok := t.ratio(k, r); ok && k.what == what {
			all = append(all, f)
			if len(all) == 1 || f < least {
				least, at = f, k.bytes
			}
		}
	}
	m, _ := median(all)
	return all, fmt.Sprintf("%.3f in the middle of %d sizes; %.3f at worst, at %d B", m, len(all), least, at)
}

// count is the way whose figures are counts of instructions, for messages of these sizes.
func (b *bench) count(name string, sizes []int, env ...string) *way {
	w := b.fabric(name, []string{"count", "ivshmem"}, append([]string{"FI_IVSHMEM_TEST=1", "FI_IVSHMEM_NT=0", "FI_IVSHMEM_PAST=0"}, env...)...)
	w.command = append([]string{"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no", "--toggle-collect=work_counted"}, w.command...)
	w.counted = sizes
	return w
}

// anywhere runs a way once, wherever the cores are.
func anywhere(run func() (map[key]float64, error)) (map[key]float64, float64, error) {
	figures, err := run()
	return figures, 0, err
}

var (
	collected  = regexp.MustCompile(`Collected : (\d+)`)
	messagesOf = regexp.MustCompile(`counted \d+ (\d+)`)
)

// instructions runs the command once for each size.
func (w *way) instructions() (map[key]float64, error) {
	figures := map[key]float64{}
	for _, size := range w.counted {
		ctx, cancel := context.WithTimeout(context.Background(), countMost)
		defer cancel()
		cmd := exec.CommandContext(ctx, w.command[0], append(slices.Clone(w.command[1:]), strconv.Itoa(size))...)
		cmd.Env = environ(w.env...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		all, of := collected.FindSubmatch(errs.Bytes()), messagesOf.FindSubmatch(out.Bytes())
		if err != nil || all == nil || of == nil {
			return nil, fmt.Errorf("%d B: %v\n%s", size, err, errs.String())
		}
		n, _ := strconv.ParseFloat(string(all[1]), 64)
		by, _ := strconv.ParseFloat(string(of[1]), 64)
		figures[key{"instructions", size}] = n / by
	}
	return figures, nil
}
