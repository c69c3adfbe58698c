package host

import (
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
)

// AvailableMemory returns the memory that new processes can use without swapping, in bytes: MemAvailable, or less if
// a cgroup's limit is lower.
func AvailableMemory() (uint64, error) { return Host{}.AvailableMemory() }

// AvailableMemory is the function AvailableMemory, below h.Root.
func (h Host) AvailableMemory() (uint64, error) {
	avail, found := uint64(0), false
	h.eachLine("/proc/meminfo", func(line string) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			if kb, err := strconv.ParseUint(f[1], 10, 54); err == nil {
				avail, found = kb<<10, true
			}
		}
	})
	if !found {
		return 0, errors.New("/proc/meminfo: no MemAvailable")
	}
	dirs, v2 := h.cgroupDirs("memory")
	for _, dir := range dirs {
		if free, ok := h.cgroupFree(dir, v2); ok && free < avail {
			avail = free
		}
	}
	return avail, nil
}

// cgroupFree returns the rest of a cgroup's limit: limit minus use, where page cache that can be dropped does not
// count as use. ok is false without a limit.
func (h Host) cgroupFree(dir string, v2 bool) (free uint64, ok bool) {
	limits, usage, cache := []string{"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file"
	if v2 {
		limits, usage, cache = []string{"memory.max", "memory.high"}, "memory.current", "inactive_file"
	}
	limit := uint64(math.MaxUint64)
	for _, name := range limits {
		if n, found := h.readUint(dir + "/" + name); found && n < limit {
			limit = n
		}
	}
	used, found := h.readUint(dir + "/" + usage)
	if limit == math.MaxUint64 || !found {
		return 0, false
	}
	h.eachLine(dir+"/memory.stat", func(line string) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == cache {
			if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				used -= min(used, n)
			}
		}
	})
	return limit - min(limit, used), true
}

// readUint reads a file with one number; ok is false for "max" and any other text.
func (h Host) readUint(path string) (uint64, bool) {
	b, err := os.ReadFile(h.path(path))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}
