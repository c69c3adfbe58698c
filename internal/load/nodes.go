package load

import (
	"bufio"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"nearmetal/internal/lazyregexp"
)

// regionFile matches the files that package region makes: without a name (the kernel shows the inode's number), or
// briefly with one.
var regionFile = lazyregexp.New(` file=/\S*/(#[0-9]+|nearmetal-[0-9a-f]{32})\\040\(deleted\)`)

// ReadNodes reads from numa_maps below root ("/") on which nodes the memory of process pid is. The kernel walks all of
// the process's pages and blocks its page faults in the meantime, so do not call ReadNodes every second. Values that
// cannot be read stay unknown.
func (v *VM) ReadNodes(root string, pid int) {
	f, err := os.Open(filepath.Join(root, "proc", strconv.Itoa(pid), "numa_maps"))
	if err != nil {
		return
	}
	defer f.Close()
	nodes, region := map[int]uint64{}, uint64(0)
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		pages, size := map[int]uint64{}, uint64(4)
		for _, w := range strings.Fields(sc.Text()) {
			key, value, ok := strings.Cut(w, "=")
			if !ok {
				continue
			}
			n, err := strconv.ParseUint(value, 10, 48)
			if err != nil {
				continue
			}
			if key == "kernelpagesize_kB" {
				size = n
			} else if node, err := strconv.ParseUint(strings.TrimPrefix(key, "N"), 10, 16); err == nil && key[0] == 'N' {
				pages[int(node)] += n
			}
		}
		for node, n := range pages {
			nodes[node] += n * size << 10
			if regionFile().MatchString(sc.Text()) {
				region += n * size << 10
			}
		}
	}
	if sc.Err() != nil || len(nodes) == 0 {
		return
	}
	v.Nodes, v.RegionBytes = nil, &region
	for node, n := range nodes {
		v.Nodes = append(v.Nodes, Node{node, n})
	}
	sort.Slice(v.Nodes, func(i, j int) bool { return v.Nodes[i].Node < v.Nodes[j].Node })
}
