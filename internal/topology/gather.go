package topology

import (
	"archive/tar"
	"fmt"
	"io"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/lazyregexp"
)

// gathered maps directory patterns to the attributes that a captured tree has below them. Nothing else is captured: no
// addresses of network cards, no serial numbers, no command lines, no names of users or jobs.
var gathered = map[string][]string{
	cpuDir:                 {"online", "offline", "present", "possible", "isolated"},
	cpuDir + "/cpu#":       {"online", "cpu_capacity"},
	"sys/devices/cpu_core": {"cpus"}, "sys/devices/cpu_atom": {"cpus"}, "sys/devices/cpu_lowpower": {"cpus"},
	cpuDir + "/cpu#/topology": {"core_id", "die_id", "physical_package_id", "thread_siblings", "thread_siblings_list",
		"core_siblings", "core_siblings_list", "core_cpus", "core_cpus_list", "die_cpus", "die_cpus_list",
		"package_cpus", "package_cpus_list", "cluster_id", "cluster_cpus", "cluster_cpus_list"},
	cpuDir + "/cpu#/cache/index#": {"level", "type", "size", "coherency_line_size", "ways_of_associativity",
		"number_of_sets", "shared_cpu_map", "shared_cpu_list"},
	nodeDir:                               {"online", "possible", "has_cpu", "has_memory", "has_normal_memory"},
	nodeDir + "/node#":                    {"cpumap", "cpulist", "distance", "meminfo"},
	nodeDir + "/node#/hugepages/*":        {"nr_hugepages", "free_hugepages", "surplus_hugepages"},
	nodeDir + "/node#/access0/initiators": {"read_bandwidth", "read_latency", "write_bandwidth", "write_latency"},
	"sys/kernel/mm/hugepages/*":           {"nr_hugepages", "free_hugepages"},
}

// gatheredPCI are the attributes of a PCI function. The links driver, iommu_group, physfn and virtfn# and the names of
// interfaces are captured in addition.
var gatheredPCI = []string{"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "revision", "numa_node",
	"local_cpus", "local_cpulist", "resource", "sriov_totalvfs", "sriov_numvfs", "current_link_speed",
	"current_link_width", "max_link_speed", "max_link_width"}

// Gather writes the files of the tree below root that describe its topology as a tar archive. The archive is sorted and
// has no times, owners or host name (its host name is name), so that the same machine always yields the same bytes.
func Gather(root string, w io.Writer, name string) error {
	t, err := openDir(root)
	if err != nil {
		return fmt.Errorf("topology: %w", err)
	}
	if !validName(name) {
		return fmt.Errorf("topology: name %q: letters, digits, '.', '_' and '-'", clip(name))
	}
	files, links := map[string]string{}, map[string]string{}
	for dir, names := range gathered {
		for _, d := range expand(t, dir) {
			take(t, files, d, names)
		}
	}
	gatherPCI(t, files, links)
	gatherProc(t, files, name)

	var all []string
	for n := range files {
		all = append(all, n)
	}
	for n := range links {
		all = append(all, n)
	}
	sort.Strings(all)
	tw := tar.NewWriter(w)
	for _, n := range all {
		hdr := &tar.Header{Name: n, Mode: 0o444, ModTime: time.Unix(0, 0), Format: tar.FormatPAX, Typeflag: tar.TypeReg, Size: int64(len(files[n]))}
		if target, ok := links[n]; ok {
			hdr.Typeflag, hdr.Linkname, hdr.Size, hdr.Mode = tar.TypeSymlink, target, 0, 0o777
		}
		if err := tw.WriteHeader(hdr); err != nil {
			return fmt.Errorf("topology: gather: %w", err)
		}
		if _, err := io.WriteString(tw, files[n]); err != nil {
			return fmt.Errorf("topology: gather: %w", err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("topology: gather: %w", err)
	}
	return nil
}

// ReadTar reads a host from an archive that Gather made. It detects gzip compression.
func ReadTar(r io.Reader, name string) (*Host, error) {
	t, err := readTar(r)
	if err != nil {
		return nil, fmt.Errorf("topology: %s: %w", name, err)
	}
	return readTree(t, name)
}

// take reads those of the attributes that exist.
func take(t tree, files map[string]string, dir string, names []string) {
	for _, n := range names {
		if s, err := t.read(dir+"/"+n, fileMax); err == nil {
			files[dir+"/"+n] = s
		}
	}
}

// expand returns the directories that match a pattern, in which "#" matches digits, and a last "*" any name.
func expand(t tree, pattern string) []string {
	i := strings.IndexAny(pattern, "#*")
	if i < 0 {
		return []string{pattern}
	}
	j := strings.LastIndexByte(pattern[:i], '/')
	rest := ""
	part := pattern[j+1:]
	if k := strings.IndexByte(part, '/'); k >= 0 {
		part, rest = part[:k], part[k:]
	}
	names, err := t.list(pattern[:j])
	if err != nil {
		return nil
	}
	var out []string
	for _, n := range names {
		prefix := strings.TrimRight(part, "#*")
		tail := strings.TrimPrefix(n, prefix)
		if !strings.HasPrefix(n, prefix) {
			continue
		}
		if _, err := strconv.Atoi(tail); err != nil && strings.HasSuffix(part, "#") {
			continue
		}
		out = append(out, expand(t, pattern[:j+1]+n+rest)...)
	}
	return out
}

var virtfn = lazyregexp.New(`^virtfn[0-9]+$`)

// gatherPCI captures the PCI functions, at their paths in sysfs.
func gatherPCI(t tree, files, links map[string]string) {
	const bus = "sys/bus/pci/devices"
	names, _ := t.list(bus)
	for _, n := range names {
		at, err := t.resolve(bus + "/" + n)
		if !ValidAddress(n) || err != nil || len(files) > 1<<20 {
			continue
		}
		if at != bus+"/"+n { // a capture may have directories there
			links[bus+"/"+n] = relative(bus, at)
		}
		take(t, files, at, gatheredPCI)
		entries, _ := t.list(at)
		for _, e := range entries {
			switch {
			case e == "driver" || e == "iommu_group" || e == "physfn" || virtfn().MatchString(e):
				if to, err := t.resolve(at + "/" + e); err == nil {
					links[at+"/"+e] = relative(at, to)
					if e == "driver" || e == "iommu_group" {
						files[to+"/.keep"] = "" // the tar archive has no directories, so the directory needs a file
					}
				}
			case e == "net" || e == "infiniband":
				for _, c := range children(t, at+"/"+e) {
					files[at+"/"+e+"/"+c+"/.keep"] = ""
				}
			}
		}
	}
}

// relative returns the text of a link in directory dir to a path of the same tree.
func relative(dir, to string) string {
	return strings.Repeat("../", strings.Count(path.Clean(dir), "/")+1) + to
}

// allowed returns the lines of proc/self/status that list the CPUs and nodes the job may use.
func (h *Host) allowed() string {
	var cpus, nodes []int
	for i := range h.CPUs {
		if h.CPUs[i].Allowed {
			cpus = append(cpus, h.CPUs[i].ID)
		}
	}
	for i := range h.Nodes {
		if h.Nodes[i].Allowed {
			nodes = append(nodes, h.Nodes[i].ID)
		}
	}
	return fmt.Sprintf("Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n", FormatList(cpus), FormatList(nodes))
}

// gatherProc captures from proc the description of the machine and the job's limits.
func gatherProc(t tree, files map[string]string, name string) {
	files["proc/sys/kernel/hostname"] = name + "\n"
	h := &Host{}
	readModel(t, h)
	if s, err := t.read("proc/cpuinfo", fileMax); err == nil {
		var keep []string
		for _, line := range strings.Split(s, "\n") {
			key, _, ok := strings.Cut(line, ":")
			switch strings.TrimSpace(key) {
			case "processor", "vendor_id", "cpu family", "model name", "CPU implementer", "CPU architecture", "physical id", "core id", "address sizes":
				keep = append(keep, line)
			default:
				if !ok && strings.TrimSpace(line) == "" {
					keep = append(keep, "")
				}
			}
		}
		files["proc/cpuinfo"] = strings.Join(keep, "\n")
	}
	if s, err := t.read("proc/meminfo", fileMax); err == nil {
		files["proc/meminfo"] = s
	}
	gpus, _ := t.list("proc/driver/nvidia/gpus")
	for _, gpu := range gpus {
		file := "proc/driver/nvidia/gpus/" + gpu + "/numa_status"
		if s, err := t.read(file, 4096); err == nil && ValidAddress(gpu) {
			files[file] = "Node: " + field(s, "Node") + "\n"
		}
	}
	files["proc/mounts"] = "sysfs /sys sysfs rw 0 0\n" // hwloc looks for it
	if s, err := t.read("proc/self/status", fileMax); err == nil {
		files["proc/self/status"] = fmt.Sprintf("Cpus_allowed_list:\t%s\nMems_allowed_list:\t%s\n",
			field(s, "Cpus_allowed_list"), field(s, "Mems_allowed_list"))
	}
	// The cgroup's name may be a user's or a job's, so its limits are captured as if it were the root group.
	all := &Host{}
	if readCPUs(t, all) != nil || readNodes(t, all) != nil {
		return
	}
	readLimits(t, all)
	own := &Host{CPUs: slices.Clone(all.CPUs), Nodes: slices.Clone(all.Nodes)}
	for i := range own.CPUs {
		own.CPUs[i].Allowed = true
	}
	for i := range own.Nodes {
		own.Nodes[i].Allowed = true
	}
	limitCPUs(own, field(files["proc/self/status"], "Cpus_allowed_list"), "")
	limitNodes(own, field(files["proc/self/status"], "Mems_allowed_list"), "")
	if a, b := all.allowed(), own.allowed(); a != b { // a capture's process had other limits than its cgroup
		files["proc/self/status"] = a
	}
	if all.Limits.MemoryBytes > 0 || all.Limits.CPUQuota > 0 {
		files["proc/self/cgroup"] = "0::/\n"
		files["sys/fs/cgroup/cgroup.controllers"] = "cpuset cpu memory\n"
		if m := all.Limits.MemoryBytes; m > 0 {
			files["sys/fs/cgroup/memory.max"] = fmt.Sprintf("%d\n", m)
			files["sys/fs/cgroup/memory.current"] = "0\n"
		}
		if q := all.Limits.CPUQuota; q > 0 {
			files["sys/fs/cgroup/cpu.max"] = fmt.Sprintf("%d 100000\n", int(q*100000))
		}
	}
}
