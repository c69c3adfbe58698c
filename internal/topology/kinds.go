package topology

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// kindNames are the names of the sets of cores that x86 kernels define, fastest first.
var kindNames = []struct{ dir, coreType, name string }{
	{"cpu_core", "IntelCore", "P-cores"},
	{"cpu_atom", "IntelAtom", "E-cores"},
	{"cpu_lowpower", "IntelLowPower", "low-power E-cores"},
}

// readKinds marks the kinds of cores of a hybrid machine: on x86 by the sets of its performance counters, on Arm by the
// capacity in the scheduler's units.
func readKinds(t tree, h *Host) {
	kinds := map[string][]int{}
	var names []string
	for _, k := range kindNames {
		if ids, ok, err := listOf(t, "sys/devices/"+k.dir+"/cpus", MaxCPUs); ok && err == nil {
			kinds[k.name] = ids
			names = append(names, k.name)
		}
	}
	if len(kinds) == 0 && h.Arch != "x86_64" {
		capacity := map[int]int{}
		for i := range h.CPUs {
			if v, ok := number(t, fmt.Sprintf("%s/cpu%d/cpu_capacity", cpuDir, h.CPUs[i].ID)); ok && v > 0 && h.CPUs[i].Online {
				capacity[h.CPUs[i].ID] = v
			}
		}
		kinds, names = byCapacity(capacity)
	}
	h.setKinds(kinds, names)
}

// byCapacity groups CPUs by capacity. Cores of one kind differ a little if some have higher clock rates, so a group
// includes cores within a fifth of its fastest core.
func byCapacity(capacity map[int]int) (kinds map[string][]int, names []string) {
	ids := make([]int, 0, len(capacity))
	for id := range capacity {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool {
		a, b := capacity[ids[i]], capacity[ids[j]]
		return a > b || a == b && ids[i] < ids[j]
	})
	kinds = map[string][]int{}
	most, name := 0, ""
	for _, id := range ids {
		if c := capacity[id]; most == 0 || c*5 < most*4 {
			most, name = c, "cores of capacity "+strconv.Itoa(c)
			names = append(names, name)
		}
		kinds[name] = append(kinds[name], id)
	}
	for _, ids := range kinds {
		sort.Ints(ids)
	}
	return kinds, names
}

// setKinds marks the CPUs' kinds; names are sorted, fastest first. It marks nothing if there is only one kind. An online
// CPU without a kind counts with the slowest, as a repair.
func (h *Host) setKinds(kinds map[string][]int, names []string) {
	var found []string
	at := make([]int, len(h.CPUs))
	for _, name := range names {
		some := false
		for i := range h.CPUs {
			if c := &h.CPUs[i]; c.Online && contains(kinds[name], c.ID) {
				if !some {
					found = append(found, name)
				}
				some, at[i] = true, len(found)
			}
		}
	}
	if len(found) < 2 {
		return
	}
	for i := range h.CPUs {
		if h.CPUs[i].Online && at[i] == 0 {
			h.repair("CPU", h.CPUs[i].ID, "of no kind on a machine with several: counted with the slowest")
			at[i] = len(found)
		}
	}
	h.Kinds = found
	for i := range h.CPUs {
		h.CPUs[i].Kind = max(0, at[i]-1)
	}
}

// KindCPUs returns the online CPUs of a kind.
func (h *Host) KindCPUs(kind int) []int {
	var ids []int
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Online && c.Kind == kind {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// defaultHugePage reads the default size of huge pages in bytes; 0: unknown.
func defaultHugePage(t tree) uint64 {
	s, _ := t.read("proc/meminfo", fileMax)
	if n := meminfo(s)["Hugepagesize"]; n > 0 && n&(n-1) == 0 {
		return n
	}
	s, _ = t.read("proc/cmdline", fileMax)
	size := uint64(0)
	for _, f := range strings.Fields(s) {
		v, ok := strings.CutPrefix(f, "default_hugepagesz=")
		if !ok || v == "" {
			continue
		}
		shift := strings.IndexByte("KMG", v[len(v)-1]&^0x20)
		if shift >= 0 {
			v = v[:len(v)-1]
		}
		if n, err := strconv.ParseUint(v, 10, 32); err == nil && n > 0 && n&(n-1) == 0 {
			size = n << (10 * (shift + 1))
		}
	}
	return size
}
