package measure

import (
	"math"

	"nearmetal/internal/stats"
)

// A value is out of line if it is worse than the median of its kind by half and by more than five times the values'
// usual spread (their median absolute deviation). A kind of fewer than three is not judged, because it is not known
// which of two is right.
const (
	oddRatio  = 1.5
	oddSpread = 5
	oddLeast  = 3
)

// odd returns for each value whether it is out of line; up means that more is better.
func odd(values []float64, up bool) []bool {
	list := make([]bool, len(values))
	if len(values) < oddLeast {
		return list
	}
	m := stats.Median(values)
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - m)
	}
	spread := stats.Median(away)
	for i, v := range values {
		worse, ratio := v-m, v/m
		if up {
			worse, ratio = m-v, m/v
		}
		list[i] = m > 0 && ratio > oddRatio && worse > oddSpread*spread
	}
	return list
}

// judge marks the values that are out of line.
func judge(r *Result) {
	kinds := map[string][]int{}
	for i, p := range r.Pairs {
		kinds[p.Kind] = append(kinds[p.Kind], i)
	}
	for _, list := range kinds {
		mark(list, false, func(i int) float64 { return r.Pairs[i].Ns }, func(i int) { r.Pairs[i].Odd = true })
	}
	// Local and remote memory are two kinds; a node without CPUs is remote to all.
	var local, remote []int
	for i, m := range r.Memory {
		if m.CPUNode == m.Node {
			local = append(local, i)
		} else {
			remote = append(remote, i)
		}
	}
	for _, list := range [][]int{local, remote} {
		set := func(i int) { r.Memory[i].Odd = true }
		mark(list, true, func(i int) float64 { return r.Memory[i].MBps }, set)
		mark(list, false, func(i int) float64 { return r.Memory[i].Ns }, set)
	}
	all := make([]int, len(r.CPUs))
	for i := range all {
		all[i] = i
	}
	for _, get := range []func(CPU) float64{
		func(c CPU) float64 { return c.Syscall }, func(c CPU) float64 { return c.Fault }, func(c CPU) float64 { return c.TimerMid },
	} {
		mark(all, false, func(i int) float64 { return get(r.CPUs[i]) }, func(i int) { r.CPUs[i].Odd = true })
	}
	var devices []int
	for i, d := range r.RDMA {
		if d.Error == "" {
			devices = append(devices, i)
		}
	}
	mark(devices, false, func(i int) float64 { return r.RDMA[i].Us }, func(i int) { r.RDMA[i].Odd = true })
}

func mark(list []int, up bool, get func(int) float64, set func(int)) {
	values := make([]float64, len(list))
	for k, i := range list {
		values[k] = get(i)
	}
	for k, bad := range odd(values, up) {
		if bad {
			set(list[k])
		}
	}
}
