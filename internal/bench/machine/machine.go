// Package machine reads the description of the machine for a benchmark's record: processor, memory, kernel, versions,
// and the cores' theoretical peak.
package machine

import (
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/bench/record"
	"nearmetal/internal/host"
	"nearmetal/internal/topology"
)

// Root is the directory below which the host's files are read; tests set it.
var Root = "/"

// Facts returns the machine as recorded, and one CPU of each core that this process may use, in ascending order.
func Facts() (record.Host, []int) {
	h := record.Host{Versions: map[string]string{}}
	h.Name, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	h.CPU = field(read("proc/cpuinfo"), "model name")
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field(read("proc/meminfo"), "MemTotal"), " kB"), 10, 64); err == nil {
		h.MemoryBytes = kb << 10
	}
	nodes, _ := filepath.Glob(filepath.Join(Root, "sys/devices/system/node/node[0-9]*"))
	h.Nodes = max(1, len(nodes))
	usable, err := host.UsableCPUs()
	if err != nil {
		usable = []int{0}
	}
	h.Threads = len(usable)
	cores := firstThreads(usable)
	h.Cores = len(cores)
	return h, cores
}

// Of returns the part of the description that a host's topology contains: all but its kernel.
func Of(t *topology.Host) record.Host {
	h := record.Host{Name: t.Name, CPU: t.Model, Nodes: len(t.Nodes), Versions: map[string]string{}}
	cores := map[int]bool{}
	for i := range t.CPUs {
		if c := &t.CPUs[i]; c.Usable() {
			h.Threads++
			cores[c.Core] = true
		}
	}
	h.Cores = len(cores)
	for _, n := range t.Nodes {
		h.MemoryBytes += int64(n.MemoryBytes)
	}
	return h
}

// firstThreads returns the first usable CPU of each core.
func firstThreads(usable []int) []int {
	var out []int
	seen := map[string]bool{}
	for _, c := range usable {
		siblings := strings.TrimSpace(read("sys/devices/system/cpu/cpu" + strconv.Itoa(c) + "/topology/thread_siblings_list"))
		if siblings == "" {
			siblings = strconv.Itoa(c)
		}
		if !seen[siblings] {
			seen[siblings] = true
			out = append(out, c)
		}
	}
	sort.Ints(out)
	return out
}

func read(name string) string {
	text, err := os.ReadFile(filepath.Join(Root, name))
	if err != nil {
		return ""
	}
	return string(text)
}

// field returns the value of the first line "NAME : VALUE".
func field(text, name string) string {
	for _, line := range strings.Split(text, "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// PeakPerCore returns a core's theoretical peak of double precision in GFLOP/s: operations per cycle times the
// maximum frequency. A cycle has two fused multiply-adds of the widest vectors (AVX-512: 32 operations, AVX2 with
// FMA: 16; AVX without FMA: 8; SSE2: 4), as in Intel's Optimization Reference Manual and AMD's guides for Zen 2 and
// later; processors with one AVX-512 unit have half. 0: not known.
func PeakPerCore() float64 {
	info := read("proc/cpuinfo")
	flags := " " + field(info, "flags") + " "
	perCycle := 0.0
	switch {
	case strings.Contains(flags, " avx512f "):
		perCycle = 32
	case strings.Contains(flags, " avx2 ") && strings.Contains(flags, " fma "):
		perCycle = 16
	case strings.Contains(flags, " avx "):
		perCycle = 8
	case strings.Contains(flags, " sse2 "):
		perCycle = 4
	}
	khz, err := strconv.ParseFloat(strings.TrimSpace(read("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")), 64)
	if err == nil {
		return perCycle * khz / 1e6
	}
	mhz, err := strconv.ParseFloat(field(info, "cpu MHz"), 64)
	if err != nil {
		return 0
	}
	return perCycle * mhz / 1e3
}
