package host

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// SlowStrings reports whether the C library's memcpy is slow on this machine's CPU if it uses `rep movsb`, which it
// does if the CPU reports fast string instructions (erms): on AMD's Zen 3 and Zen 4, family 25 (glibc bug 30994).
// Between two cores, back-to-back copies of 8 KiB reached 8 to 24 GB/s with it and 22 to 25 without: medians of five
// batches each (UCX, docs/ucx.md).
func SlowStrings() bool { return Host{}.SlowStrings() }

// SlowStrings is the function SlowStrings, below h.Root.
func (h Host) SlowStrings() bool {
	cpu, err := h.cpuFields("vendor_id", "cpu family", "flags")
	return err == nil && cpu["vendor_id"] == "AuthenticAMD" && cpu["cpu family"] == "25" && slices.Contains(strings.Fields(cpu["flags"]), "erms")
}

// cpuFlags returns the first CPU's flags in /proc/cpuinfo.
func (h Host) cpuFlags() (map[string]bool, error) {
	cpu, err := h.cpuFields("flags")
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, name := range strings.Fields(cpu["flags"]) {
		set[name] = true
	}
	return set, nil
}

// cpuFields returns the first CPU's fields with these names in /proc/cpuinfo, if present.
func (h Host) cpuFields(names ...string) (map[string]string, error) {
	f, err := os.Open(h.path("/proc/cpuinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fields := map[string]string{}
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 0, 16<<10), 1<<20)
	for sc.Scan() && len(fields) < len(names) {
		key, val, ok := strings.Cut(sc.Text(), ":")
		if key = strings.TrimSpace(key); ok && slices.Contains(names, key) {
			fields[key] = strings.TrimSpace(val)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("/proc/cpuinfo: %w", err)
	}
	return fields, nil
}
