package load

import (
	"os"
	"path/filepath"
	"strconv"

	"nearmetal/internal/lazyregexp"
	"nearmetal/internal/region"
)

// Region is the memory that a VM shares with the other VMs of its cluster on this host.
type Region struct {
	Bytes uint64 `json:"bytes"`
	region.Use
}

// regionLink matches the open file that a region is, as the kernel names it below /proc/PID/fd.
var regionLink = lazyregexp.New(`/(#[0-9]+|nearmetal-[0-9a-f]{32}) \(deleted\)$`)

// ReadRegion fills in who uses the region that the process pid has open. What cannot be read stays unknown: the process
// is gone, is another user's, or has no region.
func (v *VM) ReadRegion(root string, pid int) {
	dir := filepath.Join(root, "proc", strconv.Itoa(pid), "fd")
	names, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, n := range names {
		path := filepath.Join(dir, n.Name())
		if to, err := os.Readlink(path); err != nil || !regionLink().MatchString(to) {
			continue
		}
		if r := readRegion(path); r != nil {
			v.Region = r
			return
		}
	}
}

// readRegion reads who uses the region in a file; nil where it is none.
func readRegion(path string) *Region {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return nil
	}
	h, offset, err := region.Read(f, uint64(st.Size()))
	if err != nil {
		return nil
	}
	u, err := h.ReadUse(f, offset)
	if err != nil {
		return nil
	}
	return &Region{Bytes: h.SizeBytes, Use: u}
}
