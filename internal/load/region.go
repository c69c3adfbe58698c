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

// regionLink matches the name that the kernel shows below /proc/PID/fd for an open region.
var regionLink = lazyregexp.New(`/(#[0-9]+|nearmetal-[0-9a-f]{32}) \(deleted\)$`)

// ReadRegion reads which ranks use the region that process pid has open. The use stays unknown if the process has
// ended, is another user's, or has no region.
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

// readRegion reads which ranks use the region in a file. It returns nil if the file is not a region.
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
