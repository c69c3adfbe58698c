package host

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// cgroupDirs returns the directories of this process's cgroup for a controller, from its own up to the topmost one
// that is mounted; v2 reports that they are of the unified hierarchy. There are none if neither hierarchy uses the
// controller.
func (h Host) cgroupDirs(controller string) (dirs []string, v2 bool) {
	// /proc/self/cgroup: "4:memory:/a/b" for v1, "0::/a/b" for v2.
	var v1Path, v2Path string
	var haveV1, haveV2 bool
	h.eachLine("/proc/self/cgroup", func(line string) {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 {
			return
		}
		if f[0] == "0" && f[1] == "" {
			v2Path, haveV2 = f[2], true
		}
		if slices.Contains(strings.Split(f[1], ","), controller) {
			v1Path, haveV1 = f[2], true
		}
	})
	// /proc/self/mountinfo: "id parent major:minor root mountpoint options … - fstype source superoptions".
	h.eachLine("/proc/self/mountinfo", func(line string) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 || dirs != nil {
			return
		}
		root, mount := f[3], f[4]
		switch {
		case haveV1 && g[0] == "cgroup" && slices.Contains(strings.Split(g[2], ","), controller):
			dirs = walkUp(mount, root, v1Path)
			v2 = false
		case !haveV1 && haveV2 && g[0] == "cgroup2":
			dirs = walkUp(mount, root, v2Path)
			v2 = true
		}
	})
	return dirs, v2
}

// walkUp lists the directories from a cgroup's own up to its mount point. In a container the mount contains only a
// part (root) of the hierarchy, and the path may be outside of it: then only the mount point exists.
func walkUp(mount, root, path string) []string {
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "."
	}
	var dirs []string
	for ; rel != "."; rel = filepath.Dir(rel) {
		dirs = append(dirs, filepath.Join(mount, rel))
	}
	return append(dirs, mount)
}

// eachLine calls f with each line of a file; an unreadable file has no lines.
func (h Host) eachLine(path string, f func(line string)) {
	file, err := os.Open(h.path(path))
	if err != nil {
		return
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(make([]byte, 0, 4096), 1<<20)
	for sc.Scan() {
		f(sc.Text())
	}
}

// CgroupDirs returns the directories of this process's cgroup for a controller ("memory"), from its own up to the
// topmost one that is mounted, and whether they are of version 2. There are none if no hierarchy uses the controller.
func (h Host) CgroupDirs(controller string) (dirs []string, v2 bool) { return h.cgroupDirs(controller) }
