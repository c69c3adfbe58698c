package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers read from files (the kernel's own limit is 8192).
const maxCPU = 65535

// UsableCPUs returns the CPUs that this process may use, ascending: online and in its affinity (which the kernel
// keeps within its cgroup's set).
func UsableCPUs() ([]int, error) { return Host{}.UsableCPUs() }

// UsableCPUs is the function UsableCPUs, below h.Root.
func (h Host) UsableCPUs() ([]int, error) {
	allowed := ""
	h.eachLine("/proc/self/status", func(line string) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			allowed = strings.TrimSpace(list)
		}
	})
	if allowed == "" {
		return nil, errors.New("/proc/self/status: no Cpus_allowed_list")
	}
	cpus, err := parseCPUList(allowed)
	if err != nil {
		return nil, fmt.Errorf("/proc/self/status: Cpus_allowed_list: %w", err)
	}
	for _, f := range h.cpuSets() {
		b, err := os.ReadFile(h.path(f))
		if err != nil || strings.TrimSpace(string(b)) == "" {
			continue // older kernels, captured trees: the affinity applies
		}
		set, err := parseCPUList(strings.TrimSpace(string(b)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		cpus = intersect(cpus, set)
	}
	if len(cpus) == 0 {
		return nil, errors.New("no CPU is both online and in this process's affinity")
	}
	return cpus, nil
}

// cpuSets returns the files that bound the affinity.
func (h Host) cpuSets() []string {
	files := []string{"/sys/devices/system/cpu/online"}
	if dirs, v2 := h.cgroupDirs("cpuset"); len(dirs) > 0 {
		name := "/cpuset.effective_cpus"
		if v2 {
			name = "/cpuset.cpus.effective"
		}
		files = append(files, dirs[0]+name)
	}
	return files
}

// parseCPUList parses the kernel's list format, "0-3,8,10-11", ascending.
func parseCPUList(s string) ([]int, error) {
	var cpus []int
	last := -1
	for _, part := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		if !isRange {
			hi = lo
		}
		a, err1 := strconv.Atoi(lo)
		b, err2 := strconv.Atoi(hi)
		if err1 != nil || err2 != nil || a <= last || b < a || b > maxCPU {
			return nil, fmt.Errorf("not a CPU list: %.60q", s)
		}
		for c := a; c <= b; c++ {
			cpus = append(cpus, c)
		}
		last = b
	}
	return cpus, nil
}

// intersect returns the members of both ascending lists.
func intersect(a, b []int) []int {
	var both []int
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			both = append(both, a[0])
			a, b = a[1:], b[1:]
		}
	}
	return both
}
