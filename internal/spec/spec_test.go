package spec

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"nearmetal/test/golden"
	"nearmetal/test/nobody"
)

// sameAgain checks that text, c's YAML, reads back as c.
func sameAgain(t *testing.T, c *Cluster, text []byte) {
	t.Helper()
	again, err := Parse("again.yaml", text)
	if err != nil {
		t.Fatalf("cannot read back:\n%s\n%v", text, err)
	}
	if !reflect.DeepEqual(c, again) {
		t.Fatalf("read back:\n%+v\nnot:\n%+v\nfrom:\n%s", again, c, text)
	}
}

func FuzzParse(f *testing.F) {
	for _, folder := range []string{"good", "bad"} {
		for _, data := range files(f, folder) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f.yaml", data)
		if err != nil {
			problems := err.(*Problems)
			if len(problems.List) == 0 || len(problems.List) > maxProblems {
				t.Fatalf("%d problems", len(problems.List))
			}
			for _, line := range problems.Lines() {
				if strings.ContainsAny(line, "\n\x00\x1b") || len(line) > 2000 {
					t.Fatalf("bad line %q", line)
				}
			}
			return
		}
		Defaults(c)
		if err := Validate(c); err != nil {
			t.Fatalf("right as a file, wrong as a value: %v", err)
		}
		names := VMNames(c)
		slices.Sort(names)
		if len(names) == 0 || len(names) > MaxVMs || len(slices.Compact(names)) != VMCount(c) {
			t.Fatalf("%d VMs", len(names))
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		sameAgain(t, c, text)
		if !reflect.DeepEqual(c, c.Clone()) {
			t.Fatal("the clone differs")
		}
		c.Resolve("/cwd")
		if _, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"0", "512MiB", "2GB ", "1.5GiB", "18446744073709551615", "16777216TiB", "1e9", "-1", "", "9e999999999GiB", "0.000000000000001K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			if len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("bad message %q", err)
			}
			// Text that a message asks the user to write must be right.
			if _, advice, ok := strings.Cut(err.Error(), ": write "); ok && !strings.Contains(advice, "such as") {
				if _, err := ParseSize(advice); err != nil {
					t.Fatalf("%q: bad advice %q", s, advice)
				}
			}
			return
		}
		if again, err := ParseSize(n.String()); err != nil || again != n {
			t.Fatalf("%q is %d, but its text %s is %d, %v", s, n, n, again, err)
		}
	})
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{
		"0": 0, "1": 1, "1024": KiB, "512MiB": 512 * MiB, "2GiB": 2 * GiB, "1TiB": TiB, "007KiB": 7 * KiB,
		"1G": GiB, "1g": GiB, "1GB": GiB, "512M": 512 * MiB, "512mB": 512 * MiB, "3T": 3 * TiB, "9kiB": 9 * KiB, "4K": 4 * KiB,
		"18446744073709551615": 1<<64 - 1, "16777215TiB": 16777215 * TiB,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for size, want := range map[Size]string{0: "0", 1023: "1023", KiB: "1KiB", 1536 * MiB: "1536MiB", 4 * GiB: "4GiB", 5 * TiB: "5TiB", GiB + 1: "1073741825"} {
		if got := size.String(); got != want {
			t.Errorf("%d: %s, not %s", uint64(size), got, want)
		}
	}
	for text, want := range map[string]string{
		"2GB ":                 `"2GB " is not a size: write 2GiB`,
		"1024B":                `"1024B" is not a size: write 1KiB`,
		"1Gi":                  `"1Gi" is not a size: write 1GiB`,
		"1GiBB":                `"1GiBB" is not a size: write a number with KiB, MiB, GiB or TiB, such as 2GiB`,
		"GB":                   `"GB" is not a size: write a number with KiB, MiB, GiB or TiB, such as 2GiB`,
		"2 GiB":                `"2 GiB" is not a size: write 2GiB`,
		"1.5g":                 `"1.5g" is not a size: write 1536MiB`,
		"0.3GiB":               `"0.3GiB" is not a size: write a number with KiB, MiB, GiB or TiB, such as 2GiB`,
		"GiB":                  `"GiB" is not a size: write a number with KiB, MiB, GiB or TiB, such as 2GiB`,
		"-1":                   `"-1" is not a size: write a number with KiB, MiB, GiB or TiB, such as 2GiB`,
		"16777216TiB":          `"16777216TiB" is too large for a size`,
		"18446744073709551616": `"18446744073709551616" is too large for a size`,
	} {
		if _, err := ParseSize(text); err == nil || err.Error() != want {
			t.Errorf("%s: %v, not %s", text, err, want)
		}
	}
	var c Cluster
	if err := json.Unmarshal([]byte(`{"vms":[{"memory":"3GiB"},{"memory":4096}]}`), &c); err != nil || c.VMs[0].Memory != 3*GiB || c.VMs[1].Memory != 4*KiB {
		t.Errorf("from JSON: %+v, %v", c.VMs, err)
	}
}

func TestVMNames(t *testing.T) {
	for _, test := range []struct {
		groups []Group
		want   string
	}{
		{nil, "[vm0]"},
		{[]Group{{Count: 2}}, "[vm0 vm1]"},
		{[]Group{{Name: "login"}, {Name: "node", Count: 3}}, "[login0 node0 node1 node2]"},
		{[]Group{{Count: -5}}, "[]"},
	} {
		if got := fmt.Sprint(VMNames(&Cluster{VMs: test.groups})); got != test.want {
			t.Errorf("%v: %s, not %s", test.groups, got, test.want)
		}
	}
	if n := len(VMNames(&Cluster{VMs: []Group{{Count: 1 << 40}}})); n != MaxVMs {
		t.Errorf("%d names", n)
	}
}

// TestDefaultShareReadOnly: a directory to which the caller may not write is shared read-only.
func TestDefaultShareReadOnly(t *testing.T) {
	dir := nobody.Dir(t)
	nobody.Do(t, func() {
		if s, ok := DefaultShare(dir); !ok || s != (Share{dir, dir, "ro"}) {
			t.Errorf("%+v, %v", s, ok)
		}
	})
}

func TestDefaultShare(t *testing.T) {
	shared := []string{"/home/u/project", "/home/u", "/root", "/srv/data", "/scratch/u", "/opt/app", "/tmp/job", "/var/tmp/job", "/var/home/u",
		"/library", "/users/u", "/mnt", "/varnish", "/home/u/.."}
	unshared := []string{"/", "/usr", "/usr/share/x", "/etc", "/bin", "/sbin", "/var", "/var/lib/x", "/boot", "/dev/shm/x", "/proc/1", "/sys",
		"/run/user/0", "/lib", "/lib64/x", "/opt", "/opt/", "/tmp", "/var/tmp", "/home/../usr", "relative", "", "/a\nb", "//"}
	for _, cwd := range shared {
		if s, ok := DefaultShare(cwd); !ok || s != (Share{filepath.Clean(cwd), filepath.Clean(cwd), "rw"}) {
			t.Errorf("%q: %+v, %v", cwd, s, ok)
		}
	}
	for _, cwd := range unshared {
		if s, ok := DefaultShare(cwd); ok || s != (Share{}) {
			t.Errorf("%q is shared: %+v", cwd, s)
		}
	}
}

func TestResolve(t *testing.T) {
	c := &Cluster{Root: "images/x", Kernel: "vmlinuz", QEMU: "qemu-kvm", Shares: []Share{{Path: "."}, {Path: "../data/", Target: "/d/"}, {Path: "/x"}}}
	c.Resolve("/home/u")
	want := &Cluster{Root: "/home/u/images/x", Kernel: "/home/u/vmlinuz", QEMU: "qemu-kvm",
		Shares: []Share{{Path: "/home/u", Target: "/home/u"}, {Path: "/home/data", Target: "/d"}, {Path: "/x", Target: "/x"}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("%+v", c)
	}
	c = &Cluster{Root: "host", QEMU: "./qemu"}
	c.Resolve("/w")
	if c.Root != "host" || c.QEMU != "/w/qemu" || c.Kernel != "" {
		t.Errorf("%+v", c)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"memory", "vcpus", "kvm", "tcg", "auto"}
	for word, want := range map[string]string{
		"memroy": "memory", "memoryy": "memory", "Memory": "memory", "vcpu": "vcpus", "kvn": "kvm", "vkm": "kvm",
		"network": "", "x": "", "": "", strings.Repeat("m", 1000): "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("%q: %q, not %q", word, got, want)
		}
	}
}

func TestSet(t *testing.T) {
	c := &Cluster{VMs: []Group{{Name: "a"}, {Name: "b"}}}
	for key, text := range map[string]string{"vms[].memory": "3GiB", "region.size": "0", "accel": "tcg", "placement.strict": "true", "network.mtu": "1500"} {
		if err := Set(c, key, text); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if c.VMs[0].Memory != 3*GiB || c.VMs[1].Memory != 3*GiB || c.Region.Size == nil || *c.Region.Size != 0 || c.Accel != "tcg" || !c.Placement.Strict || c.Network.MTU != 1500 {
		t.Errorf("%+v", c)
	}
	empty := &Cluster{}
	if err := Set(empty, "vms[].count", "4"); err != nil || VMCount(empty) != 4 {
		t.Errorf("%+v, %v", empty, err)
	}
	for _, bad := range [][2]string{{"vms[].count", "0"}, {"vms[].count", "x"}, {"accel", "kvn"}, {"accel", ""}, {"region.size", "3MiB"},
		{"nothing", "1"}, {"vms", "1"}, {"vms.count", "1"}, {"accel.x", "1"}, {"name", "a b"}, {"kernelArgs", "x"}} {
		if err := Set(&Cluster{}, bad[0], bad[1]); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

// TestDefaultsEverywhere: every default obeys its own field's rules, and a field without the zero value in its range
// has one.
func TestDefaultsEverywhere(t *testing.T) {
	var walk func(t *testing.T, at string, typ *Type)
	walk = func(t *testing.T, at string, typ *Type) {
		for i := range typ.Fields {
			f := &typ.Fields[i]
			inner := f.Type
			for inner.Kind == List || inner.Kind == Map {
				inner = inner.Elem
			}
			walk(t, at+"."+f.Key, inner)
			if f.Default == "" && f.Min != "" && !strings.HasPrefix(f.Min, "0") && !f.Type.Pointer {
				t.Errorf("%s.%s has a least value but no default", at, f.Key)
			}
			if f.Default != "" && !f.Type.Scalar() {
				t.Errorf("%s.%s is not a scalar, but has a default", at, f.Key)
			}
		}
	}
	walk(t, "", Schema())
	c := &Cluster{Shares: []Share{{Path: "/x"}}, VMs: []Group{{Devices: []Device{{}}}}}
	Defaults(c)
	if err := Validate(c); err != nil {
		t.Error(err)
	}
	if c.Shares[0].Mode != "rw" || c.VMs[0].Devices[0].Type != "vf" || c.VMs[0].Memory != 2*GiB || c.VMs[0].Name != "vm" || c.Region.Size != nil {
		t.Errorf("%+v", c)
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	c := &Cluster{Accel: "x", VMs: []Group{{Count: -1}}, Env: map[string]string{"a b": "c", "A": "\x00"}, Shares: []Share{{}}, KernelArgs: []string{"a b"}}
	err := Validate(c)
	if err == nil {
		t.Fatal("no error")
	}
	golden.Check(t, "testdata/validate.err", err.Error()+"\n")
	if err := Validate(&Cluster{}); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	if err := Validate(&Cluster{KernelArgs: make([]string, maxItems+1)}); err == nil {
		t.Error("a list without bound is right")
	}
}

// TestHostileFiles: large and deep files are rejected at once.
func TestHostileFiles(t *testing.T) {
	for name, text := range map[string]string{
		"large": strings.Repeat("# comment\n", MaxFile/10+1),
		"deep":  strings.Repeat("[", 100000),
		"deep2": "vms: " + strings.Repeat("{a: ", 20000),
		"long":  "kernelArgs: [" + strings.Repeat("a,", maxItems) + "a]",
		"env":   "env: {" + strings.Repeat("a: b,", maxItems) + "}",
		"many":  "vms: [" + strings.Repeat("{count: 1024},", 1000) + "]",
		"keys":  strings.Repeat("a: 1\n", 200000),
	} {
		_, err := Parse(name, []byte(text))
		if err == nil || len(err.Error()) > 8000 {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}

// TestSyntaxOfLargeFile has a mistake in a file that is too large for the search of its place.
func TestSyntaxOfLargeFile(t *testing.T) {
	_, err := Parse("f", []byte(strings.Repeat("# comment\n", 20000)+"name: a: b\n"))
	if err == nil || err.Error() != "f:20001:1: is not YAML: mapping values are not allowed in this context" {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestRead(t *testing.T) {
	if _, err := Read("endless", io.Reader(endless{})); err == nil || !strings.Contains(err.Error(), "larger than 1MiB") {
		t.Errorf("endless: %v", err)
	}
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := Load(path); err == nil || !strings.HasPrefix(err.Error(), "cannot read the cluster file: ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("accel: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || err.Error() != file+`:1:8: accel: "x" is not one of auto, kvm, tcg` {
		t.Errorf("%v", err)
	}
}

// TestClone changes every part of a copy.
func TestClone(t *testing.T) {
	size := MiB
	c := &Cluster{Env: map[string]string{"A": "b"}, VMs: []Group{{Name: "a", Devices: []Device{{PF: "x"}}}}, Region: Region{Size: &size}}
	d := c.Clone()
	d.Env["A"], d.VMs[0].Name, d.VMs[0].Devices[0].PF, *d.Region.Size = "c", "b", "y", 0
	if c.Env["A"] != "b" || c.VMs[0].Name != "a" || c.VMs[0].Devices[0].PF != "x" || size != MiB {
		t.Errorf("%+v", c)
	}
}

// TestOtherTypes decodes and encodes the kinds of fields that the file does not have yet.
func TestOtherTypes(t *testing.T) {
	type inner struct {
		Ratio float64 `yaml:"ratio" min:"0.5" max:"2" default:"1"`
	}
	type outer struct {
		Pins   [][]int          `yaml:"pins" min:"0" max:"9"`
		Unit   *inner           `yaml:"unit"`
		Counts map[string]int   `yaml:"counts" max:"5"`
		On     *bool            `yaml:"on" default:"true"`
		Small  uint8            `yaml:"small"`
		Sizes  map[string]*Size `yaml:"sizes"`
	}
	typ := typeOf(reflect.TypeOf(outer{}))
	read := func(text string) (*outer, error) {
		r := &reader{file: "f", places: map[string]place{}}
		o := &outer{}
		if n := r.document([]byte(text)); n != nil {
			r.value(n, typ, nil, reflect.ValueOf(o).Elem(), "")
		}
		if len(r.problems.List) > 0 {
			return nil, &r.problems
		}
		return o, nil
	}
	o, err := read("pins: [[1, 2], [3]]\nunit: {}\ncounts: {a: 1}\nsmall: 255\nsizes: {x: 2MiB}\n")
	if err != nil {
		t.Fatal(err)
	}
	fill(reflect.ValueOf(o).Elem(), typ, nil)
	if fmt.Sprint(o.Pins) != "[[1 2] [3]]" || o.Unit.Ratio != 1 || o.Counts["a"] != 1 || !*o.On || o.Small != 255 || *o.Sizes["x"] != 2*MiB {
		t.Errorf("%+v", o)
	}
	_, err = read("pins: [[1, 12], 3]\nunit: {ratio: .inf}\ncounts: {a: 6}\non: 1\nsmall: 256\nsizes: {x: 2}\n")
	golden.Check(t, "testdata/other.err", fmt.Sprint(err)+"\n")
}
