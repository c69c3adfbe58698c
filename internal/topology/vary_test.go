package topology

import (
	"fmt"
	"math/rand"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"nearmetal/internal/topology/machine"
	"nearmetal/test/hosttree"
)

// edits change a tree into the form that other kernels, captures and machines produce. Paths have no leading slash.
var edits = map[string]func(r *rand.Rand, files map[string]string){
	"NULs": func(r *rand.Rand, files map[string]string) {
		for name := range files {
			if strings.HasPrefix(name, "sys/") && r.Intn(3) == 0 {
				files[name] += "\x00"
			}
		}
	},
	"names before Linux 5.3": func(_ *rand.Rand, files map[string]string) {
		for name, s := range files {
			dir, base := path.Split(name)
			if old := map[string]string{"core_cpus": "thread_siblings", "package_cpus": "core_siblings", "die_cpus": "", "die_id": ""}; strings.HasSuffix(dir, "/topology/") {
				if to, ok := old[base]; ok {
					delete(files, name)
					if to != "" {
						files[dir+to] = s
					}
				}
			}
		}
	},
	"CPUs offline": func(r *rand.Rand, files map[string]string) {
		online, _ := ParseList(files[cpuDir+"/online"], MaxCPUs)
		var kept []int
		for _, id := range online {
			if r.Intn(4) > 0 {
				kept = append(kept, id)
			}
		}
		if len(kept) == 0 {
			return
		}
		files[cpuDir+"/online"] = FormatList(kept) + "\n"
		for name := range files {
			if m := cpuPath.FindStringSubmatch(name); m != nil {
				if id, _ := strconv.Atoi(m[2]); !slices.Contains(kept, id) {
					delete(files, name)
					files[cpuDir+"/cpu"+m[2]+"/online"] = "0\n"
				}
			}
		}
	},
	"no list of online CPUs": func(_ *rand.Rand, files map[string]string) { delete(files, cpuDir+"/online") },
	"a node without CPUs": func(r *rand.Rand, files map[string]string) {
		if dir := someNode(r, files); files[dir+"/cpumap"] != "" {
			files[dir+"/cpumap"], files[dir+"/cpulist"] = "00000000\n", "\n"
		}
	},
	"a node without memory": func(r *rand.Rand, files map[string]string) {
		if dir := someNode(r, files); files[dir+"/cpumap"] != "" {
			files[dir+"/meminfo"] = "Node 0 MemTotal: 0 kB\nNode 0 MemFree: 0 kB\n"
		}
	},
	"a node that is not listed": func(r *rand.Rand, files map[string]string) {
		ids, _ := ParseList(files[nodeDir+"/online"], MaxNodes)
		if len(ids) > 1 {
			k := r.Intn(len(ids))
			files[nodeDir+"/online"] = FormatList(append(ids[:k:k], ids[k+1:]...)) + "\n"
		}
	},
	"no nodes": func(_ *rand.Rand, files map[string]string) {
		files["proc/meminfo"] = "MemTotal:       2097152 kB\nMemFree:        1048576 kB\n"
		for name := range files {
			if strings.HasPrefix(name, nodeDir+"/") {
				delete(files, name)
			}
		}
	},
	"caches without CPUs": func(r *rand.Rand, files map[string]string) {
		index := fmt.Sprintf("/index%d/shared_cpu_map", r.Intn(4))
		for name := range files {
			if strings.HasSuffix(name, index) {
				files[name] = "00000000\n"
			}
		}
	},
	"the first cache missing": func(_ *rand.Rand, files map[string]string) {
		for name := range files {
			if strings.Contains(name, "/cache/index0/") {
				delete(files, name)
			}
		}
	},
	"holes in the numbers of nodes": func(_ *rand.Rand, files map[string]string) {
		renumber(files, nodePath, func(id int) int { return 3*id + 1 }, nodeDir+"/online", nodeDir+"/possible")
	},
	"holes in the numbers of CPUs": func(_ *rand.Rand, files map[string]string) {
		to := func(id int) int { return id + id/3 + 1 }
		lists := []string{}
		for name, s := range files {
			switch path.Base(name) {
			case "cpumap", "core_cpus", "thread_siblings", "package_cpus", "core_siblings", "die_cpus", "shared_cpu_map", "local_cpus":
				set, _ := parseMask(s, MaxCPUs)
				words := make([]uint32, 1)
				for _, id := range set {
					for len(words) <= to(id)/32 {
						words = append(words, 0)
					}
					words[to(id)/32] |= 1 << (to(id) % 32)
				}
				text := ""
				for _, w := range words {
					text = fmt.Sprintf(",%08x", w) + text
				}
				files[name] = text[1:] + "\n"
			case "cpulist", "local_cpulist", "online", "offline", "present", "possible", "isolated":
				if !cpuPath.MatchString(name) && (strings.HasPrefix(name, cpuDir) || strings.HasSuffix(name, "cpulist")) {
					lists = append(lists, name)
				}
			}
		}
		renumber(files, cpuPath, to, lists...)
	},
}

var (
	cpuPath  = regexp.MustCompile(`^(` + cpuDir + `/cpu)([0-9]+)(/.*)$`)
	nodePath = regexp.MustCompile(`^(` + nodeDir + `/node)([0-9]+)(/.*)$`)
)

func someNode(r *rand.Rand, files map[string]string) string {
	ids, _ := ParseList(files[nodeDir+"/online"], MaxNodes)
	if len(ids) == 0 {
		return nodeDir + "/node0"
	}
	return fmt.Sprintf("%s/node%d", nodeDir, ids[r.Intn(len(ids))])
}

// renumber moves the directories that match pattern, and changes the numbers in lists.
func renumber(files map[string]string, pattern *regexp.Regexp, to func(int) int, lists ...string) {
	moved := map[string]string{}
	for name, s := range files {
		if m := pattern.FindStringSubmatch(name); m != nil {
			id, _ := strconv.Atoi(m[2])
			delete(files, name)
			moved[m[1]+strconv.Itoa(to(id))+m[3]] = s
		}
	}
	for name, s := range moved {
		files[name] = s
	}
	for _, name := range lists {
		if ids, err := ParseList(files[name], MaxCPUs); err == nil && files[name] != "" {
			for i := range ids {
				ids[i] = to(ids[i])
			}
			files[name] = FormatList(ids) + "\n"
		}
	}
}

// Trees of other kernels and machines are read as lstopo reads them. NEARMETAL_TREE_CASES is their number.
func TestVariedAsLstopo(t *testing.T) {
	needLstopo(t)
	n := 24
	if s := os.Getenv("NEARMETAL_TREE_CASES"); s != "" {
		n, _ = strconv.Atoi(s)
	} else if testing.Short() {
		n = 6
	}
	var small [][]machine.File
	eachMachine(t, func(_ *testing.T, _ string, m *machine.Machine) {
		h, err := FromMachine(m)
		if err == nil && len(h.CPUs) <= 32 {
			small = append(small, m.Files())
		}
	})
	var names []string
	for name := range edits {
		names = append(names, name)
	}
	sort.Strings(names)
	agreed := 0
	for seed := 0; seed < n; seed++ {
		r := rand.New(rand.NewSource(int64(seed)))
		files := map[string]string{}
		for _, f := range small[seed%len(small)] {
			if f.Link == "" {
				files[f.Path] = f.Content
			}
		}
		var done []string
		for _, k := range r.Perm(len(names))[:1+r.Intn(4)] {
			if names[k] == "NULs" {
				continue
			}
			edits[names[k]](r, files)
			done = append(done, names[k])
		}
		if r.Intn(3) == 0 { // the last edit, because it removes what other edits parse
			edits["NULs"](r, files)
			done = append(done, "NULs")
		}
		t.Run(fmt.Sprintf("%d: %s", seed, strings.Join(done, ", ")), func(t *testing.T) {
			dir := hosttree.Dir(t)
			for name, s := range files {
				p := filepath.Join(dir, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(s), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			h, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			sane(t, h)
			sameGathered(t, h, dir)
			for _, s := range agree(t, h, dir) {
				t.Error(s)
			}
			if !t.Failed() {
				agreed++
			}
		})
	}
	t.Logf("%d of %d trees agree", agreed, n)
}
