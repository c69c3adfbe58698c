package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/host/hugepage"
	"nearmetal/internal/spec"
	"nearmetal/internal/topology"
	"nearmetal/internal/topology/machine"
)

// Checks that the pages of a job are those of its plan on the nodes of its cores, bounded by its memory.
func TestPages(t *testing.T) {
	r := Request{VMs: 2, VCPUs: 1, Memory: 256 << 20, Pages: "2MiB"}
	needs, err := Pages(r, Allocation{Node: "n1", Bytes: 2 << 30, Accel: "tcg"})
	sum := 0
	for _, n := range needs {
		sum += n.Pages
		if n.PageBytes != 2<<20 {
			t.Errorf("%+v", n)
		}
	}
	if err != nil || sum != 256 {
		t.Errorf("%+v, %v", needs, err)
	}
	for want, c := range map[string]struct {
		r     Request
		bytes uint64
	}{
		"add --mem=":                    {Request{Memory: 1 << 40, Pages: "2MiB"}, 1 << 30},
		"Slurm does not count memory":   {Request{Pages: "2MiB"}, 0},
		"root does not read the file":   {Request{Pages: "1GiB", File: "/etc/shadow"}, 1 << 30},
		"is not a size of pages at all": {},
	} {
		needs, err := Pages(c.r, Allocation{Node: "n1", Bytes: c.bytes, Accel: "tcg"})
		if c.r.Pages == "" {
			if err != nil || needs != nil {
				t.Errorf("ordinary pages: %v, %v", needs, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %+v, %v", c.r, needs, err)
		}
	}
	for cpus, want := range map[string]string{"0-3,8": "0,1,4", "": "", "7": "3"} {
		if got, err := CoresOf(cpus, 2); err != nil || got != want {
			t.Errorf("%q: %q, %v", cpus, got, err)
		}
	}
}

// Checks that on a host of two nodes each VM's pages are on the node of its vCPUs, and that a demand that no node can
// satisfy is reported.
func TestPagesOfNodes(t *testing.T) {
	f, err := os.Open("../../../test/topology/dl380g8.machine")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := machine.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range m.Files() {
		p := filepath.Join(dir, f.Path)
		err := os.MkdirAll(filepath.Dir(p), 0o755)
		if err == nil && f.Link != "" {
			err = os.Symlink(f.Link, p)
		} else if err == nil {
			err = os.WriteFile(p, []byte(f.Content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	h, err := topology.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.Nodes { // none yet
		h.Nodes[i].Pools = []topology.Pool{{PageBytes: 2 << 20}}
	}
	c, err := (&Request{VMs: 2, VCPUs: 4, Memory: 1 << 30, Pages: "2MiB", Policy: "spread"}).Cluster("/")
	if err != nil {
		t.Fatal(err)
	}
	spec.Defaults(c)
	needs, err := planned(c, h, 2<<20)
	if err != nil || len(needs) != 2 || needs[0] != (hugepage.Need{Node: 0, PageBytes: 2 << 20, Pages: 512}) || needs[1].Node != 1 || needs[1].Pages != 512 {
		t.Errorf("%+v, %v", needs, err)
	}
	c.Placement.Pages = "1GiB"
	if needs, err := planned(c, h, 1<<30); err == nil || !strings.Contains(err.Error(), "1GiB") && !strings.Contains(err.Error(), "1 GiB") {
		t.Errorf("%+v, %v", needs, err)
	}
}
