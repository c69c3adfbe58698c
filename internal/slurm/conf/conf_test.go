package conf

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	c, err := Parse(strings.NewReader(`# a comment
ClusterName=test   # another
PrologFlags=Alloc,Contain
plugstackconfig = "/etc/slurm/plug stack.conf"
NodeName=n[1-2] \
  CPUs=2 Gres=vf:mlx5:4
PrologFlags=Alloc
`), "slurm.conf")
	if err != nil {
		t.Fatal(err)
	}
	if v, l, ok := c.Last("prologflags"); !ok || v != "Alloc" || l.Where() != "slurm.conf:7" {
		t.Errorf("PrologFlags: %q %v %v", v, l, ok)
	}
	if v, _, _ := c.Last("PlugStackConfig"); v != "/etc/slurm/plug stack.conf" {
		t.Errorf("PlugStackConfig: %q", v)
	}
	nodes := c.Records("NodeName")
	if len(nodes) != 1 || nodes[0].Number != 5 {
		t.Fatalf("NodeName: %v", nodes)
	}
	if g, ok := nodes[0].Get("gres"); !ok || g != "vf:mlx5:4" {
		t.Errorf("Gres: %q", g)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nNonsense\n":      `f:2: "Nonsense" is not Key=Value`,
		"A=\"x\n":              "f:1: the quote of A is not closed",
		"include /no/such/f\n": "f:1: include: open /no/such/f: no such file or directory",
	} {
		_, err := Parse(strings.NewReader(text), "f")
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestIncludes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write("more.conf", "GresTypes=vf\n")
	c, err := Read(write("slurm.conf", "include more.conf\nA=1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if v, l, _ := c.Last("GresTypes"); v != "vf" || l.File != filepath.Join(dir, "more.conf") {
		t.Errorf("GresTypes: %q %v", v, l)
	}
	if _, err := Read(write("loop.conf", "include loop.conf\n")); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("a file that includes itself: %v", err)
	}
}

func TestExpand(t *testing.T) {
	for list, want := range map[string][]string{
		"n[1-3]":       {"n1", "n2", "n3"},
		"n[08-10],x":   {"n08", "n09", "n10", "x"},
		"r[1-2]c[1,3]": {"r1c1", "r1c3", "r2c1", "r2c3"},
	} {
		got, err := Expand(list)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v %v, want %v", list, got, err, want)
		}
	}
	for _, list := range []string{"", "n[", "n]", "n[3-1]", "n[a]", "n[0-4000000]", "a[0-9999]b[0-9999]", "n[1-2]]"} {
		if got, err := Expand(list); err == nil {
			t.Errorf("%q: no error, %d names", list, len(got))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("A=1\nNodeName=n[1-2] \\\n CPUs=2 # x\n")
	f.Add("A=\"b c\" D=e\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(strings.ToLower(text), "include") {
			return // files of this machine are not part of the input
		}
		c, err := Parse(strings.NewReader(text), "f")
		if err != nil {
			return
		}
		for _, l := range c.Lines {
			if len(l.Pairs) == 0 || l.Number < 1 {
				t.Fatalf("a line without pairs: %+v", l)
			}
		}
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("n[1-3,07],login")
	f.Add("r[1-2]c[1-2]")
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Expand(list)
		if err == nil && (len(names) == 0 || len(names) > maxHosts) {
			t.Fatalf("%d names", len(names))
		}
	})
}
