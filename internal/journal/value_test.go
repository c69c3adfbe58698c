package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// A value is restored in the boot in which it was written; after another boot only if it is set at each boot.
func TestValueAndBoot(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "/sys/kernel/mm/ksm/run")
	os.MkdirAll(filepath.Dir(path), 0o755)
	for _, tt := range []struct {
		name, boot string
		lasting    bool
		want       string
	}{
		{"this boot", bootOf(t), false, "0"},
		{"another boot", "0-0", false, "1"},
		{"another boot, lasting", "0-0", true, "0"},
	} {
		os.WriteFile(path, []byte("1\n"), 0o644)
		c := Value(root, "/sys/kernel/mm/ksm/run", "0", tt.lasting)
		c.Args["boot"] = tt.boot
		j := open(t, filepath.Join(t.TempDir(), "journal"))
		record(t, j, c)
		if _, err := j.UndoAll(); err != nil {
			t.Fatal(err)
		}
		if got, _ := ReadValue(path); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func bootOf(t *testing.T) string {
	t.Helper()
	return Value("", "/sys/x", "", false).Args["boot"]
}

func TestReadValue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for text, want := range map[string]string{
		"always [madvise] never\n": "madvise", "1\n": "1", "": "", "a b\nc\n": "a b", "[x": "[x", "8589934592\n": "8589934592",
	} {
		os.WriteFile(path, []byte(text), 0o644)
		if got, err := ReadValue(path); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if err := os.Symlink("/etc/hostname", path+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadValue(path + "-link"); err == nil {
		t.Error("a link was followed")
	}
	if err := WriteValue(path+"-link", "x"); err == nil {
		t.Error("a link was written through")
	}
}

func TestBadValues(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "journal"))
	for _, c := range []Change{
		Value("", "/etc/passwd", "x", false), Value("", "/sys/../etc/passwd", "x", false), Value("rel", "/sys/x", "x", false),
		Value("", "/sys/x", "a\nb", false), Directory("rel"), {Kind: "memlock", Args: map[string]string{"pid": "9", "start": "1", "soft": "x", "hard": "1"}},
	} {
		if _, err := j.Record(c); err == nil {
			t.Errorf("%v was taken", c)
		}
	}
}

// Pages that a program allocated on demand are not part of the requested number, nor those that it still uses of a
// reduced pool.
func TestReadHugePages(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "nr_hugepages")
	for _, tt := range []struct{ all, surplus, want string }{
		{"5\n", "", "5"}, {"5\n", "0\n", "5"}, {"5\n", "3\n", "2"}, {"5\n", "6\n", "0"}, {"5\n", "x\n", "5"}, {"x\n", "3\n", "x"},
	} {
		os.WriteFile(path, []byte(tt.all), 0o644)
		os.Remove(filepath.Join(dir, "surplus_hugepages"))
		if tt.surplus != "" {
			os.WriteFile(filepath.Join(dir, "surplus_hugepages"), []byte(tt.surplus), 0o644)
		}
		if got, err := ReadValue(path); got != tt.want || err != nil {
			t.Errorf("%q, %q on demand: %q, %v; want %q", tt.all, tt.surplus, got, err, tt.want)
		}
	}
}
