package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const depFixture = `kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs/netfs.ko
kernel/net/9p/9pnet.ko:
kernel/fs/netfs/netfs.ko:
kernel/drivers/net/virtio-net.ko.zst: kernel/drivers/net/net_failover.ko.zst kernel/net/core/failover.ko.zst

kernel/drivers/net/net_failover.ko.zst: kernel/net/core/failover.ko.zst
kernel/net/core/failover.ko.zst:
kernel/broken.ko: kernel/gone.ko
`

func fixtureIndex(t *testing.T) *moduleIndex {
	t.Helper()
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(depFixture), 0o644)
	os.WriteFile(filepath.Join(dir, "modules.builtin"), []byte("kernel/drivers/virtio/virtio_pci.ko\n"), 0o644)
	ix, err := readModuleIndex(Kernel{Version: "6.9.0-test", Modules: dir})
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func TestResolve(t *testing.T) {
	ix := fixtureIndex(t)
	mods, err := ix.resolve([]string{"virtio_pci", "9p", "virtio_net", "9pnet"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range mods {
		names = append(names, m.name)
	}
	if got, want := strings.Join(names, " "), "netfs 9pnet 9p failover net_failover virtio_net"; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
	for name, want := range map[string]string{
		"overlay": "kernel 6.9.0-test has no module overlay in ",
		"broken":  "has no module gone (needed by broken)",
	} {
		if _, err := ix.resolve([]string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadIndex(t *testing.T) {
	for _, text := range []string{
		"kernel/a.ko\n",             // no colon
		"../../etc/passwd.ko: \n",   // outside
		"/etc/shadow.ko:\n",         // absolute
		"kernel/a.ko: ../../x.ko\n", // outside
		"kernel/a.txt:\n",           // not a module
		strings.Repeat("x", 2<<20),  // no end of line
		"kernel/a\x00b.ko:\n",       // NUL
	} {
		dir := t.TempDir()
		os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(text), 0o644)
		if _, err := readModuleIndex(Kernel{Version: "1", Modules: dir}); err == nil || !strings.Contains(err.Error(), "modules.dep: ") {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// TestModuleCompressions reads a module in every compression that a distribution uses.
func TestModuleCompressions(t *testing.T) {
	for _, file := range []string{"module.ko", "module.ko.xz", "module.ko.zst", "module.ko.gz"} {
		b, err := module{name: "module", path: filepath.Join("testdata", file)}.read()
		if err != nil || string(b) != "\x7fELF this stands for a kernel module" {
			t.Errorf("%s: %q, %v", file, b, err)
		}
	}
	bad := filepath.Join(t.TempDir(), "x.ko")
	os.WriteFile(bad, []byte("no module"), 0o644)
	if _, err := (module{"x", bad}).read(); err == nil || !strings.Contains(err.Error(), "module x: ") {
		t.Errorf("no ELF: %v", err)
	}
}

func FuzzModulesDep(f *testing.F) {
	f.Add(depFixture)
	f.Add("a.ko: a.ko\nb.ko: c.ko\nc.ko: b.ko\n")
	f.Add(":::\n")
	f.Fuzz(func(t *testing.T, s string) {
		ix := &moduleIndex{kernel: Kernel{Version: "1", Modules: "/m"}, files: map[string]string{}, deps: map[string][]string{}, builtin: map[string]bool{}}
		if ix.parseDep(strings.NewReader(s)) != nil {
			return
		}
		for name := range ix.files {
			mods, err := ix.resolve([]string{name})
			if err != nil {
				continue
			}
			seen := map[string]bool{}
			for _, m := range mods {
				if seen[m.name] || !strings.HasPrefix(m.path, "/m/") {
					t.Fatalf("%q: %v", s, mods)
				}
				seen[m.name] = true
			}
		}
	})
}
