package qemu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Memory is the host memory used by a QEMU process, in bytes.
type Memory struct {
	GuestBytes  uint64 // touched memory of the guest's RAM
	RegionBytes uint64 // touched memory of the region; it is shared, and counts in every VM
	RestBytes   uint64 // QEMU's own: its code, heap, translated code
}

// MemoryUse reads the memory use from /proc/PID/smaps. ramBytes are the sizes of the guest's memory backends (without
// NUMA nodes one: all its memory), regionBytes is the region's size, 0 for none.
func MemoryUse(pid int, ramBytes []uint64, regionBytes uint64) (Memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return Memory{}, err
	}
	defer f.Close()
	m, err := parseSmaps(f, ramBytes, regionBytes)
	if err != nil {
		return Memory{}, fmt.Errorf("/proc/%d/smaps: %w", pid, err)
	}
	return m, nil
}

// parseSmaps adds up the mappings. It recognises RAM by its size: an anonymous mapping, or a memfd, as long as one of
// the backends, or longer by at most 4 MiB (the kernel joins neighbours).
func parseSmaps(r io.Reader, ramBytes []uint64, regionBytes uint64) (Memory, error) {
	var m Memory
	ram := slices.Clone(ramBytes)
	into := &m.RestBytes
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 3 && f[0] == "Rss:" && f[2] == "kB" {
			kb, err := strconv.ParseUint(f[1], 10, 50)
			if err != nil {
				return Memory{}, fmt.Errorf("strange line %.80q", sc.Text())
			}
			*into += kb << 10
			continue
		}
		if len(f) < 5 || strings.HasSuffix(f[0], ":") {
			continue
		}
		lo, hi, ok := strings.Cut(f[0], "-")
		a, err1 := strconv.ParseUint(lo, 16, 64)
		b, err2 := strconv.ParseUint(hi, 16, 64)
		if !ok || err1 != nil || err2 != nil || b < a {
			return Memory{}, fmt.Errorf("strange line %.80q", sc.Text())
		}
		name := strings.Join(f[5:], " ")
		into = &m.RestBytes
		shared := strings.HasPrefix(f[1], "rw-s")
		if i := slices.IndexFunc(ram, func(n uint64) bool { return b-a >= n && b-a <= n+4*mib }); i >= 0 && (name == "" || strings.Contains(name, "memory-backend")) {
			ram = slices.Delete(ram, i, i+1)
			into = &m.GuestBytes
		} else if shared && regionBytes > 0 && b-a == regionBytes {
			into = &m.RegionBytes
		}
	}
	return m, sc.Err()
}
