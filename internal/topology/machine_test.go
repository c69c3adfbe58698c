package topology

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"nearmetal/internal/topology/machine"
	"nearmetal/test/hosttree"
)

const machines = "../../test/topology"

// eachMachine runs f for every described machine.
func eachMachine(t *testing.T, f func(t *testing.T, name string, m *machine.Machine)) {
	names, err := filepath.Glob(machines + "/*.machine")
	if err != nil || len(names) < 15 {
		t.Fatalf("%d machines in %s: %v", len(names), machines, err)
	}
	for _, n := range names {
		t.Run(strings.TrimSuffix(filepath.Base(n), ".machine"), func(t *testing.T) {
			r, err := os.Open(n)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			m, err := machine.Parse(r)
			if err != nil {
				t.Fatal(err)
			}
			f(t, n, m)
		})
	}
}

func unpack(t *testing.T, m *machine.Machine) string {
	t.Helper()
	dir := hosttree.Dir(t)
	for _, f := range m.Files() {
		p := filepath.Join(dir, f.Path)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if f.Link != "" {
			err = os.Symlink(f.Link, p)
		} else {
			err = os.WriteFile(p, []byte(f.Content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A machine is read identically from a description, from a directory, and, by way of hwloc, from XML. hwloc's reading
// of nearmetal's tree is the reference.
func TestMachines(t *testing.T) {
	lstopo, err := exec.LookPath("lstopo-no-graphics")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("lstopo-no-graphics is not installed (package hwloc-nox): hwloc judges our trees in CI")
	}
	eachMachine(t, func(t *testing.T, name string, m *machine.Machine) {
		h, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Repairs) > 0 {
			t.Errorf("repaired: %q", h.Repairs)
		}
		if len(h.CPUs) > 128 && os.Getenv("CI") != "true" {
			t.Log("not compared with hwloc outside CI: thousands of small files take seconds")
			return
		}
		if testing.Short() && len(h.CPUs) > 32 {
			t.Skip("short: not compared with hwloc")
		}
		dir := unpack(t, m)
		if len(h.CPUs) <= 64 { // larger trees need seconds if system calls are slow, and show nothing new
			readBack(t, h, dir)
		}
		if lstopo == "" {
			return
		}
		xml := filepath.Join(t.TempDir(), "h.xml")
		cmd := exec.Command(lstopo, "--input", dir, "--disallowed", xml)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("lstopo: %v: %s", err, out)
		}
		w, err := ReadHwloc(xml)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, h, w)
	})
}

// readBack reads the directory, and what is gathered from it, and expects h.
func readBack(t *testing.T, h *Host, dir string) {
	t.Helper()
	d, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, d) {
		t.Errorf("from the directory: %s", diff(d, h))
	}
	var one, two bytes.Buffer
	if err := Gather(dir, &one, h.Name); err != nil {
		t.Fatal(err)
	}
	if err := Gather(dir, &two, h.Name); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("gathered twice, not the same bytes (%v)", err)
	}
	g, err := ReadTar(&one, "x")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(h, g) {
		t.Errorf("from the gathered archive: %s", diff(g, h))
	}
}

// compare compares h with w, the host that hwloc read.
func compare(t *testing.T, h, w *Host) {
	t.Helper()
	p1, c1, n1 := h.Counts()
	p2, c2, n2 := w.Counts()
	if p1 != p2 || c1 != c2 || n1 != n2 {
		t.Errorf("packages, cores, CPUs: %d %d %d, hwloc has %d %d %d", p1, c1, n1, p2, c2, n2)
	}
	if len(h.Nodes) != len(w.Nodes) {
		t.Fatalf("%d nodes, hwloc has %d", len(h.Nodes), len(w.Nodes))
	}
	for i := range h.Nodes {
		a, b := h.Nodes[i], w.Nodes[i]
		if a.ID != b.ID || a.MemoryBytes != b.MemoryBytes || !reflect.DeepEqual(a.CPUs, b.CPUs) {
			t.Errorf("node %+v, hwloc has %+v", a, b)
		}
		if len(h.Nodes) > 1 && !reflect.DeepEqual(a.Distances, b.Distances) {
			t.Errorf("node %d distances %v, hwloc has %v", a.ID, a.Distances, b.Distances)
		}
	}
	group := func(h *Host, f func(*CPU) int) map[string]bool {
		sets := map[int][]int{}
		for i := range h.CPUs {
			if c := &h.CPUs[i]; c.Online {
				sets[f(c)] = append(sets[f(c)], c.ID)
			}
		}
		out := map[string]bool{}
		for _, s := range sets {
			out[FormatList(s)] = true
		}
		return out
	}
	for what, f := range map[string]func(*CPU) int{
		"package": func(c *CPU) int { return c.Package }, "core": func(c *CPU) int { return c.Core },
		"L3": func(c *CPU) int { return c.L3 },
	} {
		if a, b := group(h, f), group(w, f); !reflect.DeepEqual(a, b) {
			t.Errorf("%s groups %v, hwloc has %v", what, a, b)
		}
	}
}

func diff(a, b *Host) string {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	i := 0
	for i < len(x) && i < len(y) && x[i] == y[i] {
		i++
	}
	near := func(s []byte) []byte { return s[max(0, i-100):min(len(s), i+100)] }
	return fmt.Sprintf("...%s...\ninstead of\n...%s...", near(x), near(y))
}
