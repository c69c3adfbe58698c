package topology

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"nearmetal/test/hosttree"
)

// lstopoObject is an object of hwloc's XML, parsed without the package's own reader.
type lstopoObject struct {
	Type    string         `xml:"type,attr"`
	ID      int            `xml:"os_index,attr"`
	CPUs    string         `xml:"cpuset,attr"`
	Memory  uint64         `xml:"local_memory,attr"`
	Size    uint64         `xml:"cache_size,attr"`
	Kind    int            `xml:"cache_type,attr"`
	Level   int            `xml:"depth,attr"`
	Subtype string         `xml:"subtype,attr"`
	Objects []lstopoObject `xml:"object"`
}

// facts are the facts on which this package and lstopo must agree after reading a tree, each as one line.
type facts map[string]bool

// lstopoFacts returns the facts that lstopo reads in the tree below dir, and writes its XML to file. nodes are the CPUs
// of each node.
func lstopoFacts(t *testing.T, dir, file string) (facts, map[int][]int) {
	t.Helper()
	cmd := exec.Command("lstopo-no-graphics", "--input", dir, "--if", "fsroot", "--disallowed", file)
	cmd.Env = append(os.Environ(), "HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES=1", "HWLOC_HIDE_ERRORS=2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("lstopo refuses the tree: %v: %s", err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var top lstopoObject
	if err := xml.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	f, nodes := facts{}, map[int][]int{}
	var walk func(o *lstopoObject)
	walk = func(o *lstopoObject) {
		var cpus []int
		for i, words := 0, strings.Split(o.CPUs, ","); i < len(words); i++ {
			w, _ := strconv.ParseUint(strings.TrimPrefix(words[len(words)-1-i], "0x"), 16, 32)
			for b := 0; b < 32; b++ {
				if w>>b&1 == 1 {
					cpus = append(cpus, i*32+b)
				}
			}
		}
		switch {
		case o.Type == "PU":
			f[fmt.Sprintf("CPU %d", o.ID)] = true
		case o.Type == "Core":
			f["core "+FormatList(cpus)] = true
		case o.Type == "Package":
			f["package "+FormatList(cpus)] = true
		case o.Type == "NUMANode":
			f[fmt.Sprintf("node %d: %d bytes", o.ID, o.Memory)] = true
			nodes[o.ID] = cpus
		case strings.HasSuffix(o.Type, "Cache") && o.Type[0] == 'L':
			kind := []string{"Unified", "Data", "Instruction"}[o.Kind]
			f[fmt.Sprintf("cache L%d %s %d: %s", o.Level, kind, o.Size, FormatList(cpus))] = true
		}
		for i := range o.Objects {
			walk(&o.Objects[i])
		}
	}
	walk(&top)
	return f, nodes
}

func (h *Host) facts() facts {
	f, cores, packages := facts{}, map[int][]int{}, map[int][]int{}
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Online {
			f[fmt.Sprintf("CPU %d", c.ID)] = true
			cores[c.Core] = append(cores[c.Core], c.ID)
			packages[c.Package] = append(packages[c.Package], c.ID)
		}
	}
	for _, ids := range cores {
		f["core "+FormatList(ids)] = true
	}
	for _, ids := range packages {
		f["package "+FormatList(ids)] = true
	}
	for _, n := range h.Nodes {
		f[fmt.Sprintf("node %d: %d bytes", n.ID, n.MemoryBytes)] = true
	}
	for _, c := range h.Caches {
		f[fmt.Sprintf("cache L%d %s %d: %s", c.Level, c.Type, c.SizeBytes, FormatList(c.CPUs))] = true
	}
	return f
}

// agree compares the host read from the tree below dir, and the one read from lstopo's XML of it, with lstopo's facts,
// and returns the differences.
func agree(t *testing.T, h *Host, dir string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "h.xml")
	want, nodes := lstopoFacts(t, dir, file)
	x, err := ReadHwloc(file)
	if err != nil {
		return []string{err.Error()}
	}
	sane(t, x)
	out := differ(h, want, nodes)
	for _, s := range differ(x, want, nodes) {
		out = append(out, "by way of XML: "+s)
	}
	return out
}

func differ(h *Host, want facts, nodes map[int][]int) []string {
	have := h.facts()
	cores, packages, cpus := false, 0, 0
	for s := range want {
		cores = cores || strings.HasPrefix(s, "core ")
		if list, ok := strings.CutPrefix(s, "package "); ok {
			ids, _ := ParseList(list, MaxCPUs)
			packages += len(ids)
		}
		if strings.HasPrefix(s, "CPU ") {
			cpus++
		}
	}
	if packages != cpus { // hwloc omitted packages that contradict others
		drop := func(s string, _ bool) bool { return strings.HasPrefix(s, "package ") }
		maps.DeleteFunc(have, drop)
		want = maps.Clone(want)
		maps.DeleteFunc(want, drop)
	}
	var out []string
	for s := range want {
		if !have[s] {
			out = append(out, "lstopo only: "+s)
		}
	}
	for s := range have {
		if !want[s] && (cores || !strings.HasPrefix(s, "core ")) {
			out = append(out, "nearmetal only: "+s)
		}
	}
	homeless := map[int]bool{}
	for i := range h.CPUs {
		if c := &h.CPUs[i]; c.Online && c.Node < 0 {
			homeless[c.ID] = true
		}
	}
	for i := range h.Nodes {
		n := &h.Nodes[i]
		if len(n.CPUs) > 0 {
			if !slices.Equal(n.CPUs, nodes[n.ID]) {
				out = append(out, fmt.Sprintf("node %d has CPUs %s, in lstopo %s", n.ID, FormatList(n.CPUs), FormatList(nodes[n.ID])))
			}
			continue
		}
		// hwloc shows a node without CPUs with the CPUs near to it, all of which have nodes of their own.
		for _, id := range nodes[n.ID] {
			if homeless[id] {
				out = append(out, fmt.Sprintf("node %d has no CPUs, in lstopo cpu%d", n.ID, id))
			}
		}
	}
	sort.Strings(out)
	return out
}

// sameGathered reads what is gathered from a directory, and expects the same host.
func sameGathered(t *testing.T, h *Host, dir string) {
	t.Helper()
	var b bytes.Buffer
	if err := Gather(dir, &b, "x"); err != nil {
		t.Fatal(err)
	}
	g, err := ReadTar(&b, "x")
	if err != nil {
		t.Fatal(err)
	}
	g.Name, g.Limits.From = h.Name, h.Limits.From
	if !reflect.DeepEqual(g, h) {
		t.Errorf("gathered: %s", diff(g, h))
	}
}

func needLstopo(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("lstopo-no-graphics"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("lstopo-no-graphics is not installed (package hwloc-nox): hwloc judges how trees are read in CI")
		}
		t.Skip("lstopo-no-graphics is not installed (package hwloc-nox)")
	}
}

// Every captured tree of the test data, and every archive (.tar, .tar.gz, .tar.bz2) in the directory NEARMETAL_TREES,
// is read as lstopo reads it: CPUs, packages, cores, nodes with their memory and CPUs, caches.
func TestAsLstopo(t *testing.T) {
	needLstopo(t)
	var archives []string
	for _, dir := range []string{machines, "testdata", os.Getenv("NEARMETAL_TREES")} {
		for _, end := range []string{".tar", ".tar.gz", ".tar.bz2"} {
			names, _ := filepath.Glob(filepath.Join(dir, "*"+end))
			if dir != "" {
				archives = append(archives, names...)
			}
		}
	}
	agreed := 0
	for _, name := range archives {
		t.Run(filepath.Base(name), func(t *testing.T) {
			dir := hosttree.Dir(t)
			if out, err := exec.Command("tar", "-C", dir, "-xf", name).CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
			for k := 0; k < 2; k++ {
				if _, err := os.Stat(filepath.Join(dir, "sys")); err == nil {
					break
				}
				if names, _ := os.ReadDir(dir); len(names) == 1 {
					dir = filepath.Join(dir, names[0].Name())
				}
			}
			h, err := Read(dir)
			if err != nil {
				t.Fatal(err)
			}
			a, err := Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if a.Name = h.Name; !reflect.DeepEqual(a, h) {
				t.Errorf("the archive: %s", diff(a, h))
			}
			sameGathered(t, h, dir)
			for _, s := range agree(t, h, dir) {
				t.Error(s)
			}
			if !t.Failed() {
				agreed++
			}
		})
	}
	t.Logf("%d of %d trees agree", agreed, len(archives))
}
