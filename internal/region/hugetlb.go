package region

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mount is a mounted hugetlbfs.
type mount struct {
	dir       string
	pageBytes uint64
}

// hugetlbMount returns the hugetlbfs mount with pages of the requested size, or an error if there is none.
func hugetlbMount(o Options) (mount, error) {
	var dirs []string
	if o.Dir != "" {
		dirs = []string{o.Dir}
	} else {
		b, err := os.ReadFile("/proc/mounts")
		if err != nil {
			return mount{}, fmt.Errorf("region: cannot look for hugetlbfs: %w", err)
		}
		dirs = hugetlbDirs(string(b))
	}
	var best mount
	var refused string
	for _, d := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(d, &st); err != nil || st.Type != unix.HUGETLBFS_MAGIC || st.Bsize <= 0 {
			continue
		}
		m := mount{d, uint64(st.Bsize)}
		if o.HugePageBytes != 0 && m.pageBytes != o.HugePageBytes || m.pageBytes > o.SizeBytes {
			continue
		}
		if unix.Access(d, unix.W_OK|unix.X_OK) != nil {
			refused = d
			continue
		}
		if best.dir == "" || m.pageBytes < best.pageBytes {
			best = m
		}
	}
	if best.dir != "" {
		return best, nil
	}
	size, opt := "", ""
	if o.HugePageBytes != 0 {
		size = fmt.Sprintf(" with pages of %d bytes", o.HugePageBytes)
		opt = fmt.Sprintf(" -o pagesize=%d", o.HugePageBytes)
	}
	if refused != "" {
		return mount{}, fmt.Errorf("region: %s is a hugetlbfs mount, but you may not write there; ask for write permission (mount -o remount,gid=…,mode=1770 %s)", refused, refused)
	}
	if o.Dir != "" {
		return mount{}, fmt.Errorf("region: %s is not a hugetlbfs mount%s that fits %d bytes", o.Dir, size, o.SizeBytes)
	}
	return mount{}, fmt.Errorf("region: no hugetlbfs mount%s that fits %d bytes; as root: mkdir -p /dev/hugepages && mount -t hugetlbfs%s none /dev/hugepages", size, o.SizeBytes, opt)
}

// hugetlbDirs returns the mount points of hugetlbfs in the text of /proc/mounts.
func hugetlbDirs(mounts string) []string {
	var dirs []string
	for _, line := range strings.Split(mounts, "\n") {
		if f := strings.Fields(line); len(f) >= 3 && f[2] == "hugetlbfs" {
			dirs = append(dirs, unescape(f[1]))
		}
	}
	return dirs
}

// unescape decodes the octal escapes of /proc/mounts (getmntent(3)).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// checkFree returns an error with a remedy if the pool has too few free pages for size bytes.
func (m mount) checkFree(size uint64) error {
	base := fmt.Sprintf("/sys/kernel/mm/hugepages/hugepages-%dkB/", m.pageBytes>>10)
	free, err := readCount(base + "free_hugepages")
	if err != nil {
		return nil // fallocate will report a shortage
	}
	reserved, _ := readCount(base + "resv_hugepages")
	over, _ := readCount(base + "nr_overcommit_hugepages")
	surplus, _ := readCount(base + "surplus_hugepages")
	need := size / m.pageBytes
	have := free - min(reserved, free) + over - min(surplus, over)
	if need <= have {
		return nil
	}
	total, _ := readCount(base + "nr_hugepages")
	how := fmt.Sprintf("sysctl vm.nr_hugepages=%d", total+need-have)
	if def, err := meminfo("/proc/meminfo"); err == nil && def["Hugepagesize:"] != m.pageBytes {
		how = fmt.Sprintf("echo %d > %snr_hugepages", total+need-have, base)
	}
	return fmt.Errorf("region: %d huge pages of %d bytes are needed and %d are free; as root: %s", need, m.pageBytes, have, how)
}

func readCount(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}
