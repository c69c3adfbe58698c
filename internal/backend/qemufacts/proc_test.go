package qemufacts

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"nearmetal/test/golden"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// maps reads a pair of captured files.
func maps(t *testing.T, name string) []vma {
	t.Helper()
	list, err := parseSmaps(open(t, "testdata/"+name+".smaps"))
	if err != nil {
		t.Fatal(err)
	}
	if err := parseNumaMaps(open(t, "testdata/"+name+".numa_maps"), list); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestMappings(t *testing.T) {
	for _, name := range []string{"two-nodes", "huge"} {
		var b strings.Builder
		for _, v := range maps(t, name) {
			fmt.Fprintf(&b, "%x-%x shared %v file %q %s %d pages of %d, %d huge, %s %v\n",
				v.start, v.end, v.shared, v.path, v.dev, v.inode, v.pageBytes, v.hugeBytes, v.policy, v.onNode)
		}
		golden.Check(t, "testdata/"+name+".mappings", b.String())
	}
}

func TestStrangeMappings(t *testing.T) {
	for _, text := range []string{
		"Rss: 4 kB\n",
		"zz-10 rw-p 0 0:0 0\n",
		"20-10 rw-p 0 0:0 0\n",
		"10-20 rw 0 0:0 0\n",
		"10-20 rw-p 0 0:0 -1\n",
		"10-20 rw-p 0 0:0 0\nRss: -4 kB\n",
		"10-20 rw-p 0 0:0 0\nRss: 99999999999999999999 kB\n",
		strings.Repeat("x", 1<<17),
	} {
		if list, err := parseSmaps(strings.NewReader(text)); err == nil {
			t.Errorf("%.40q: %v", text, list)
		}
	}
	for _, text := range []string{"10\n", "zz default\n", strings.Repeat("x", 1<<17)} {
		if err := parseNumaMaps(strings.NewReader(text), nil); err == nil {
			t.Errorf("%.40q is taken", text)
		}
	}
}

func TestCover(t *testing.T) {
	list := []vma{
		{start: 0x1000, end: 0x3000, pageBytes: 4096, policy: "bind:0", onNode: map[int]uint64{0: 4096}},
		{start: 0x3000, end: 0x5000, pageBytes: 4096, policy: "bind:0", onNode: map[int]uint64{0: 4096, 1: 4096}},
		{start: 0x5000, end: 0x6000, pageBytes: 4096, policy: "default"},
		{start: 0x8000, end: 0x9000, pageBytes: 4096, policy: "default"},
	}
	m := cover(list, 0x1000, 0x4000)
	if m == nil || m.Policy != "bind:0" || m.OnNode[0] != 8192 || m.OnNode[1] != 4096 {
		t.Errorf("two of one policy: %+v", m)
	}
	if m := cover(list, 0x1000, 0x5000); m == nil || m.Policy != "several" {
		t.Errorf("several policies: %+v", m)
	}
	for _, at := range []uint64{0, 0x4000, 0x6000, 0x8000, 0x9000} {
		if m := cover(list, at, 0x3000); m != nil {
			t.Errorf("0x3000 bytes from %#x are not all mapped: %+v", at, m)
		}
	}
}

func FuzzMappings(f *testing.F) {
	smaps, _ := os.ReadFile("testdata/two-nodes.smaps")
	numa, _ := os.ReadFile("testdata/two-nodes.numa_maps")
	f.Add(string(smaps), string(numa))
	f.Add("10-20 rw-p 0 0:0 0\nKernelPageSize: 4 kB\n", "10 bind:0 N0=1 N-1=4 N=3 kernelpagesize_kB=0\n")
	f.Fuzz(func(t *testing.T, smaps, numa string) {
		list, err := parseSmaps(strings.NewReader(smaps))
		if err != nil {
			return
		}
		parseNumaMaps(strings.NewReader(numa), list)
		for i := range list {
			if m := cover(list, list[i].start, list[i].end-list[i].start); m != nil {
				m.Present()
			}
		}
	})
}
