package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
)

// worst returns the least ratio of the sizes from and to bytes, at which size that is, of
// how many sizes, and how many more have no ratio.
func worst(t *table, r ratio, what string, from, to int) (least float64, at, n, blank int) {
	for _, k := range t.keys() {
		if k.what != what || k.bytes < from || k.bytes > to {
			continue
		}
		v, _, ok := t.ratio(k, r)
		if !ok {
			blank++
			continue
		}
		if n == 0 || v < least {
			least, at = v, k.bytes
		}
		n++
	}
	return least, at, n, blank
}

// has reports whether a table is to have a ratio, measured or not.
func (t *table) has(r ratio) bool {
	for _, other := range r.to {
		if slices.Contains(t.columns, other) {
			return slices.Contains(t.columns, r.ours)
		}
	}
	return false
}

// verdict prints the goals, what was measured, and whether they are reached.
type verdict struct{ w *tabwriter.Writer }

func (v verdict) say(goal, figure string, reached bool) {
	word := "yes"
	if !reached {
		word = "NO"
	}
	fmt.Fprintf(v.w, "%s\t%s\t%s\n", goal, figure, word)
}

// ratio says whether the worst of a column's ratios is bar at least. One that is blank does
// not reach it.
func (v verdict) ratio(t *table, goal string, bar float64, r ratio, what string, from, to int) {
	least, at, n, blank := worst(t, r, what, from, to)
	if !t.has(r) || n+blank == 0 {
		return
	}
	if n == 0 {
		v.say(goal, "not measured", false)
		return
	}
	figure := fmt.Sprintf("%.2f", least)
	if least < bar && figure == fmt.Sprintf("%.2f", bar) {
		figure = fmt.Sprintf("%.4f", least) // what is missed is seen
	}
	if n > 1 {
		figure += fmt.Sprintf(" at worst, at %d B of %d sizes", at, n)
	}
	if blank > 0 {
		figure += fmt.Sprintf(", %d more without a ratio", blank)
	}
	v.say(goal, figure, least >= bar && blank == 0)
}

func verdicts(tables []*table) {
	v := verdict{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	fmt.Println()
	fmt.Fprintln(v.w, "to reach\tmeasured\treached")
	for _, t := range tables {
		switch t.name {
		case "libfabric":
			v.ratio(t, "libfabric: 8 B latency at most 1.5 times a cache line's ping-pong (1/1.5 = 0.67)", 1/1.5,
				ratio{"ivshmem", []string{"2copies"}}, "latency", 8, 8)
			v.peers(t, ratio{"ivshmem", []string{"shm"}}, ratio{"ivshmem-nocma", []string{"shm-nocma"}})
		case "openmpi":
			v.ratio(t, "Open MPI: 0 to 256 B latency at most half of libfabric shm's (ratio 2)", 2,
				ratio{"ivshmem", []string{"shm"}}, "latency", 0, 256)
			v.ratio(t, "Open MPI: 0 to 256 B latency no slower than sm", 1, ratio{"ivshmem", []string{"sm"}}, "latency", 0, 256)
			v.ratio(t, "Open MPI: 0 to 256 B latency no slower than UCX (next goal)", 1, ratio{"ivshmem", []string{"ucx"}}, "latency", 0, 256)
			v.ratio(t, "Open MPI: message rate of 8 B, window 64, against UCX posix", 1, ratio{"ivshmem", []string{"ucx"}}, "rate", 8, 8)
			v.ratio(t, "Open MPI: MPI_Put of 8 B no slower than with sm", 1, ratio{"ivshmem", []string{"sm"}}, "put", 8, 8)
			v.peers(t, ratio{"ivshmem", []string{"shm", "sm", "ucx"}}, ratio{"ivshmem-nocma", []string{"sm-nocma", "ucx-nocma"}})
		case "mpich", "intel":
			v.ratio(t, t.name+": 0 to 256 B latency no slower than its own", 1, ratio{"ivshmem", []string{"own"}}, "latency", 0, 256)
			v.ratio(t, t.name+": message rate of 8 B against its own", 1, ratio{"ivshmem", []string{"own"}}, "rate", 8, 8)
			v.peers(t, ratio{"ivshmem", []string{"own"}}, ratio{"ivshmem-nocma", []string{"own-nocma"}})
		case "puts":
			v.puts(t)
		case "core":
			v.core(t)
		case "message":
			v.message(t)
		case "earlier":
			v.earlier(t, earlierFabric)
		case "earlier-work":
			v.earlier(t, earlierWork)
		case "earlier-mpi":
			v.earlier(t, earlierMPI)
		case "traffic":
			v.traffic(t)
		case "ucp", "openmpi-ucx":
			v.ucx(t)
		case "ucp-window":
			v.memcpy(t, "UCX: put to memory in the region at least 0.9 of memcpy", "put")
			v.memcpy(t, "UCX: get of memory in the region at least 0.9 of memcpy", "get")
		case "ucp-scale":
			v.ucxScale(t)
		case "scale":
			v.scale(t)
		}
	}
	v.w.Flush()
}

// peers says how the bandwidths compare.
func (v verdict) peers(t *table, with, without ratio) {
	v.ratio(t, t.name+": bandwidth 4 KiB to 8 MiB with CMA, to the best peer with it", 1, with, "bandwidth", 4096, 8<<20)
	v.ratio(t, t.name+": bandwidth 4 KiB to 8 MiB without CMA, to the best peer without", 1, without, "bandwidth", 4096, 8<<20)
}

// memcpy says whether what, put or get, reaches 0.9 of memcpy at each size.
func (v verdict) memcpy(t *table, goal, what string) {
	least, at, n := 0.0, 0, 0
	for _, k := range t.keys() {
		if k.what != what+"-bandwidth" {
			continue
		}
		var each []float64
		for _, p := range t.pairs("ivshmem", k, "ivshmem", key{what + "-memcpy", k.bytes}) {
			each = append(each, p[0]/p[1])
		}
		if m, ok := median(each); ok {
			if n == 0 || m < least {
				least, at = m, k.bytes
			}
			n++
		}
	}
	if n > 0 {
		v.say(goal, fmt.Sprintf("%.2f at worst, at %d B of %d sizes", least, at, n), least >= 0.9)
	}
}

func (v verdict) puts(t *table) {
	v.memcpy(t, "put to memory in the region: within 10 % of memcpy (ratio 0.9)", "put")
	if m, _, ok := t.median("ivshmem", key{"put", 8}); ok {
		v.say("libfabric: put of 8 B to memory in the region in at most 0.11 us", fmt.Sprintf("%.3f us", m), m <= 0.11)
	}
}

// core: within 5 % or 100 ns of the core provider used directly.
func (v verdict) core(t *table) {
	n, bad, blank, least, at := 0, 0, 0, 0.0, ""
	for _, k := range t.keys() {
		more, _ := t.difference("ivshmem", k, "tcp", k)
		r, _, ok := t.ratio(k, ratio{"ivshmem", []string{"tcp"}})
		n++
		if !ok {
			bad++
			blank++
			continue
		}
		if r >= 0.95 || (k.what == "latency" && more <= 0.1) {
			continue
		}
		bad++
		if least == 0 || r < least {
			least, at = r, fmt.Sprintf("; %.2f at worst: %s %d B", r, k.what, k.bytes)
		}
	}
	if blank > 0 {
		at += fmt.Sprintf("; %d without a ratio", blank)
	}
	if n > 0 {
		v.say("core provider alone: within 5 % or 100 ns of it used directly", fmt.Sprintf("%d of %d figures%s", n-bad, n, at), bad == 0)
	}
}

func (v verdict) scale(t *table) {
	if m, _, ok := t.median("ivshmem", key{"choice", 0}); ok {
		v.say("a channel's choice: under 5 ns", fmt.Sprintf("%.1f ns", m), m < 5)
	}
	if m, ok := t.difference("ivshmem", key{"latency-crowd", 8}, "ivshmem", key{"latency-alone", 8}); ok {
		v.say("1,022 idle peers: under 10 ns more at 8 B", fmt.Sprintf("%.1f ns", m*1e3), m*1e3 < 10)
	}
	if m, ok := t.difference("ivshmem", key{"start", 64}, "shm", key{"start", 64}); ok {
		v.say("64 processes of libfabric: under 100 ms more than with shm", fmt.Sprintf("%.0f ms", m), m < 100)
	}
	for _, c := range []struct{ ours, other, goal string }{
		{"mpi-ivshmem", "mpi-shm", "64 ranks of Open MPI: under 100 ms more than with libfabric's shm"},
		{"mpi-ivshmem", "mpi-sm", "64 ranks of Open MPI: under 100 ms more than with sm, without libfabric"},
		{"mpi-run", "mpi-unset", "64 ranks of Open MPI, as nearmetal run sets it: under 100 ms more than with nothing set"},
	} {
		if m, ok := t.difference(c.ours, key{"start", 0}, c.other, key{"start", 0}); ok {
			v.say(c.goal, fmt.Sprintf("%.0f ms", m), m < 100)
		}
	}
}
