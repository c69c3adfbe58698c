package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// readLimits marks what the job may use: the affinity of this process (which the kernel keeps within the cgroup's
// cpuset), its allowed nodes, and the cgroup's memory and CPU time, for cgroup v1 and v2. A missing file means no
// limit.
func readLimits(t tree, h *Host) {
	status, _ := t.read("proc/self/status", fileMax)
	limitCPUs(h, field(status, "Cpus_allowed_list"), "affinity")
	limitNodes(h, field(status, "Mems_allowed_list"), "affinity")

	groups, _ := t.read("proc/self/cgroup", fileMax)
	for _, line := range strings.Split(groups, "\n") {
		id, rest, ok := strings.Cut(line, ":")
		controllers, dir, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		if id == "0" && controllers == "" {
			limitV2(t, h, dir)
			continue
		}
		for _, c := range strings.Split(controllers, ",") {
			limitV1(t, h, c, dir)
		}
	}
}

// field returns the value of a "Key:\tvalue" line.
func field(s, key string) string {
	for _, line := range strings.Split(s, "\n") {
		if v, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// limitCPUs disallows the CPUs that are not in a list.
func limitCPUs(h *Host, list, from string) {
	ids, err := ParseList(list, MaxCPUs)
	if err != nil || len(ids) == 0 {
		return
	}
	lost := 0
	for i := range h.CPUs {
		c := &h.CPUs[i]
		if c.Allowed && c.Online && !contains(ids, c.ID) {
			c.Allowed = false
			lost++
		}
	}
	if lost > 0 {
		h.Limits.From = append(h.Limits.From, fmt.Sprintf("%s: CPUs %s", from, clip(list)))
	}
}

// limitNodes disallows the nodes that are not in a list.
func limitNodes(h *Host, list, from string) {
	ids, err := ParseList(list, MaxNodes)
	if err != nil || len(ids) == 0 {
		return
	}
	lost := 0
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if n.Allowed && !contains(ids, n.ID) {
			n.Allowed = false
			lost++
		}
	}
	if lost > 0 {
		h.Limits.From = append(h.Limits.From, fmt.Sprintf("%s: memory of nodes %s", from, clip(list)))
	}
}

// limitMemory lowers the job's remaining memory to limit minus used, in bytes.
func limitMemory(h *Host, limit, used uint64, from string) {
	var physical uint64
	for _, n := range h.Nodes {
		physical += n.MemoryBytes
	}
	if limit >= physical { // v1 represents no limit by a very large number
		return
	}
	left := uint64(1) // 0 would mean no limit
	if limit > used {
		left = limit - used
	}
	if h.Limits.MemoryBytes == 0 || left < h.Limits.MemoryBytes {
		h.Limits.MemoryBytes = left
	}
	h.Limits.From = append(h.Limits.From, fmt.Sprintf("%s: memory %d MiB, %d MiB of it in use", from, limit>>20, used>>20))
}

// ancestors returns a cgroup's directory and its parents below mount, deepest first. In a cgroup namespace the path may
// lead above the mount, in which case the mount itself is the group.
func ancestors(mount, dir string) []string {
	dir = strings.Trim(dir, "/")
	if strings.Contains(dir, "..") {
		dir = ""
	}
	var out []string
	for depth := 0; dir != "" && depth < 64; depth++ {
		out = append(out, mount+"/"+dir)
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			break
		}
		dir = dir[:i]
	}
	return append(out, mount)
}

func bytesOf(t tree, name string) (uint64, bool) {
	s, err := t.read(name, 64)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 64)
	return n, err == nil
}

// limitV2 reads the unified hierarchy, used alone or together with v1.
func limitV2(t tree, h *Host, dir string) {
	mount := "sys/fs/cgroup"
	if _, err := t.read(mount+"/cgroup.controllers", 256); err != nil {
		mount = "sys/fs/cgroup/unified"
	}
	for i, d := range ancestors(mount, dir) {
		from := "cgroup v2 " + clip("/"+strings.TrimPrefix(strings.TrimPrefix(d, mount), "/"))
		if i == 0 {
			if s, err := t.read(d+"/cpuset.cpus.effective", fileMax); err == nil {
				limitCPUs(h, s, from)
			}
			if s, err := t.read(d+"/cpuset.mems.effective", fileMax); err == nil {
				limitNodes(h, s, from)
			}
		}
		if limit, ok := bytesOf(t, d+"/memory.max"); ok { // "max" is not a number and means no limit
			used, _ := bytesOf(t, d+"/memory.current")
			limitMemory(h, limit, used, from)
		}
		if s, err := t.read(d+"/cpu.max", 64); err == nil {
			if f := strings.Fields(s); len(f) == 2 {
				limitQuota(h, f[0], f[1], from)
			}
		}
	}
}

// limitV1 reads one controller of the v1 hierarchy.
func limitV1(t tree, h *Host, controller, dir string) {
	for i, d := range ancestors("sys/fs/cgroup/"+controller, dir) {
		from := "cgroup v1 " + controller
		switch controller {
		case "cpuset":
			if i > 0 {
				continue
			}
			for _, name := range []string{"/cpuset.effective_cpus", "/cpuset.cpus"} {
				if s, err := t.read(d+name, fileMax); err == nil {
					limitCPUs(h, s, from)
					break
				}
			}
			for _, name := range []string{"/cpuset.effective_mems", "/cpuset.mems"} {
				if s, err := t.read(d+name, fileMax); err == nil {
					limitNodes(h, s, from)
					break
				}
			}
		case "memory":
			if limit, ok := bytesOf(t, d+"/memory.limit_in_bytes"); ok {
				used, _ := bytesOf(t, d+"/memory.usage_in_bytes")
				limitMemory(h, limit, used, from)
			}
		case "cpu":
			quota, err1 := t.read(d+"/cpu.cfs_quota_us", 64)
			period, err2 := t.read(d+"/cpu.cfs_period_us", 64)
			if err1 == nil && err2 == nil {
				limitQuota(h, quota, period, from)
			}
		}
	}
}

// limitQuota lowers the CPU time of the job; "max" and -1 mean no limit.
func limitQuota(h *Host, quota, period, from string) {
	q, err1 := strconv.ParseFloat(strings.TrimSpace(quota), 64)
	p, err2 := strconv.ParseFloat(strings.TrimSpace(period), 64)
	if err1 != nil || err2 != nil || !(q > 0) || !(p > 0) || q > 1e12 || p > 1e12 {
		return
	}
	if v := q / p; h.Limits.CPUQuota == 0 || v < h.Limits.CPUQuota {
		h.Limits.CPUQuota = v
		h.Limits.From = append(h.Limits.From, fmt.Sprintf("%s: %.2g CPUs of time", from, v))
	}
}
