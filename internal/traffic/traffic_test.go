package traffic

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// counts returns the text that a rank writes.
func counts(rank, pid int, self string, to ...string) string {
	return fmt.Sprintf("nearmetal-traffic 1\nself %d %d host %s\n%send\n", rank, pid, self, strings.Join(to, ""))
}

func read(t *testing.T, vm, text string) []Counts {
	t.Helper()
	c, err := Read(strings.NewReader(text), vm)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// example returns the matrix of two VMs on one host, and one elsewhere. Peers are found by either of their addresses.
func example(t *testing.T) *Matrix {
	list := read(t, "vm0", counts(0, 10, "slot:aa:0:1 core:01",
		"to slot:aa:1:1 region 1000 10 1 0 0 0 0\n", "to slot:aa:1:1 cma 2000000 0 0 0 0 1 0\n", "to core:02 fabric 3000000 0 0 0 0 1 0\n"))
	list = append(list, read(t, "vm1", counts(1, 10, "slot:aa:1:1", "to slot:aa:9:9 region 5 1 0 0 0 0 0\n")+
		counts(-1, 11, "slot:aa:2:1"))...)
	return Of(append(list, read(t, "vm2", counts(2, 10, "core:02"))...))
}

func TestMatrix(t *testing.T) {
	m := example(t)
	if fmt.Sprint(m.Ranks) != "[{0 vm0} {1 vm1} {2 vm2} {3 vm1}]" {
		t.Error(m.Ranks)
	}
	if got := fmt.Sprint(m.Pairs); got != "[{0 1 cma 1 2000000 [0 0 0 0 1 0]} {0 1 region 11 1000 [10 1 0 0 0 0]} "+
		"{0 2 fabric 1 3000000 [0 0 0 0 1 0]} {1 -1 region 1 5 [1 0 0 0 0 0]}]" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%q", m.BetweenVMs()); got != `[["vm" "vm0" "vm1" "vm2"] ["vm0" "·" "1000 B region, 1953.1 KiB cma" "2929.7 KiB fabric"] ["vm1" "·" "·" "·"] ["vm2" "·" "·" "·"]]` {
		t.Error(got)
	}
	var b strings.Builder
	if m.VMs(&b); strings.Count(b.String(), "\n") != 5 || !strings.HasPrefix(b.String(), "What VMs (rows) sent to VMs (columns)") {
		t.Errorf("of the VMs: %s", b.String())
	}
	b.Reset()
	if Of(read(t, "vm0", counts(0, 10, "core:01"))).VMs(&b); b.Len() > 0 {
		t.Errorf("of one VM: %s", b.String())
	}
	quiet := Of(append(read(t, "vm0", counts(0, 10, "core:01")), read(t, "vm1", counts(1, 11, "core:02"))...))
	for what, write := range map[string]func(io.Writer) error{"the VMs": quiet.VMs, "the ranks": quiet.Text} {
		b.Reset()
		if write(&b); b.String() != "The ranks sent each other no messages over nearmetal's provider.\n" {
			t.Errorf("of %s, which sent nothing: %s", what, b.String())
		}
	}
	b.Reset()
	m.Advise(map[string]Place{"vm0": {Host: "a"}, "vm2": {Host: "b"}})
	m.Text(&b)
	for _, part := range []string{"\n0     vm0  ·  ", "channel  messages", "\nfabric          1", "60% of the bytes go over the network, most of them between ranks 0 (vm0) and 2 (vm2), 100% of these: put them on one host"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %q in:\n%s", part, b.String())
		}
	}
}

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		places map[string]Place
		want   string
	}{
		{map[string]Place{"vm0": {Host: "a"}, "vm2": {Host: "a"}}, "both are on one host"},
		{map[string]Place{"vm0": {Host: "a"}, "vm2": {Host: "b", Far: true}}, "the device of rank 2's VM"},
		{nil, "put them on one host"},
	} {
		m := example(t)
		if m.Advise(c.places); !strings.Contains(m.Advice, c.want) {
			t.Errorf("%q, want %q", m.Advice, c.want)
		}
	}
	same := Of(read(t, "vm0", counts(0, 1, "core:01", "to core:02 fabric 8000 1 0 0 0 0 0\n")+counts(1, 2, "core:02")))
	if same.Advise(nil); !strings.Contains(same.Advice, "both are on one host") {
		t.Error(same.Advice)
	}
	for line, want := range map[string]string{
		"to slot:aa:1:1 region 8000 1000 0 0 0 0 0\n":   "all messages are of at most 64 B",
		"to slot:aa:1:1 region 8000 0 0 0 1000 0 0\n":   "16 KiB to 256 KiB",
		"to slot:aa:1:1 region 8000 0 0 0 0 0 1000\n":   "larger than 4096 KiB",
		"to slot:aa:1:1 region 8000 999 0 0 0 0 1000\n": "",
		"to slot:aa:1:1 region 8000 999 0 0 0 0 0\n":    "",
	} {
		m := Of(read(t, "vm0", counts(0, 1, "slot:aa:0:1", line)+counts(1, 2, "slot:aa:1:1")))
		m.Advise(nil)
		if want == "" && m.Advice != "" || !strings.Contains(strings.ReplaceAll(m.Advice, "4 MiB", "4096 KiB"), want) {
			t.Errorf("%s: %q, want %q", line, m.Advice, want)
		}
	}
}

// Counts from a VM are hostile input.
func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"x\n":                                                                           "line 1: expected: nearmetal-traffic 1",
		"nearmetal-traffic 1\nto a region 1\n":                                          "line 2: expected",
		"nearmetal-traffic 1\nself 1 1 h\n":                                             "cut off",
		"nearmetal-traffic 1\nself 9999999 1 h\nend\n":                                  "not a rank",
		"nearmetal-traffic 1\nself 1 -1 h\nend\n":                                       "not a process",
		"nearmetal-traffic 1\nself 1 1 h a b c\nend\n":                                  "expected: self",
		counts(0, 1, "a", "to b wire 1 0 0 0 0 0 0\n"):                                  "not a channel",
		counts(0, 1, "a", "to b region -1 0 0 0 0 0 0\n"):                               "not a count",
		counts(0, 1, "a", "to b region 99999999999999999999 0 0 0 0 0 0\n"):             "not a count",
		counts(0, 1, "a", "to b region 1 0 0 0 0 0\n"):                                  "expected: to",
		"nearmetal-traffic 1\nself 1 1 h " + strings.Repeat("a", 2*maxLine) + "\nend\n": "too long",
		strings.Repeat(counts(0, 1, "a"), MaxBytes/len(counts(0, 1, "a"))+2):            "",
	} {
		_, err := Read(strings.NewReader(text), "vm0")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
	m := Of(read(t, "vm0", counts(0, 1, "a", strings.Repeat("to b region 9007199254740992 9007199254740992 0 0 0 0 0\n", 4))))
	if m.Pairs[0].Bytes != maxCount || m.Pairs[0].Messages != maxCount {
		t.Error(m.Pairs)
	}
	if c := read(t, "", counts(0, 1, "a")[:25]+"0 1 \x1b[31mx\n"+"end\n"); c[0].VM != "31mx" {
		t.Errorf("%q", c[0].VM)
	}
}

func TestReadDir(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "host.1.0"), []byte(counts(0, 1, "a")), 0o600)
	os.WriteFile(filepath.Join(dir, ".hidden"), []byte("x"), 0o600)
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	if c, err := ReadDir(dir); err != nil || len(c) != 1 || c[0].VM != "host" {
		t.Error(c, err)
	}
	var b strings.Builder
	if Of(nil).Text(&b); !strings.Contains(b.String(), "No rank left counts") {
		t.Error(b.String())
	}
}

// For many ranks the pairs with most bytes are listed.
func TestManyRanks(t *testing.T) {
	var list []Counts
	for i := range 20 {
		list = append(list, read(t, "vm0", counts(i, i, fmt.Sprintf("slot:a:%d:1", i), fmt.Sprintf("to slot:a:%d:1 region %d 1 0 0 0 0 0\n", (i+1)%20, 1000+i)))...)
	}
	var b strings.Builder
	Of(list).Text(&b)
	if Of(list).BetweenVMs() != nil {
		t.Error("a table of one VM")
	}
	if s := b.String(); !strings.HasPrefix(s, "20 ranks, 20 pairs") || !strings.Contains(s, "\n19     0  1019 B         1\n") || strings.Contains(s, "\n3  ") {
		t.Error(s)
	}
}

// A matrix from a file is checked before it is shown.
func TestCheck(t *testing.T) {
	if err := example(t).Check(); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(m *Matrix){
		"twice":             func(m *Matrix) { m.Ranks = append(m.Ranks, m.Ranks[0]) },
		"does not exist":    func(m *Matrix) { m.Ranks[0].Rank = -1 },
		"no such ranks":     func(m *Matrix) { m.Pairs[0].From = 99 },
		"other size class":  func(m *Matrix) { m.Pairs[0].Classes = nil },
		"at most 4096 and ": func(m *Matrix) { m.Ranks = make([]Rank, MaxRanks+1) },
	} {
		m := example(t)
		spoil(m)
		if err := m.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Counts that ranks wrote in VMs, which may be hostile, are read or rejected with a one-line error. Accepted counts add
// up, and their text is clean.
func FuzzRead(f *testing.F) {
	f.Add("nearmetal-traffic 1\nself 0 10 host slot:aa:0:1 core:01\nto slot:aa:1:1 region 1000 10 1 0 0 0 0\nend\n" +
		counts(-1, 11, "slot:aa:1:1"))
	f.Add("nearmetal-traffic 1\nself 0 1 h a b c\nend\n")
	f.Add("nearmetal-traffic 1\nself 1048576 1 \x1b[2J\nto a cma 9007199254740992 9007199254740992 0 0 0 0 0\nend\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Read(strings.NewReader(text), "")
		if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*maxLine) {
			t.Fatalf("%d bytes of error: %q", len(err.Error()), err)
		}
		m := Of(list)
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		m.Advise(nil)
		var b strings.Builder
		if err := m.Text(&b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsRune(b.String(), '\x1b') {
			t.Fatalf("%q", b.String())
		}
	})
}
