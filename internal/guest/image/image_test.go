package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kernels returns the kernels to test with: this machine's, and those of the root directories in NEARMETAL_TEST_ROOTS
// (unpacked kernel packages of other distributions, after depmod).
func kernels(t *testing.T) []Kernel {
	t.Helper()
	if testing.Short() {
		t.Skip("short: needs this machine's kernel")
	}
	k, err := FindKernel("")
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("no kernel on this machine: %v", err)
		}
		t.Fatal(err)
	}
	list := []Kernel{k}
	for _, root := range filepath.SplitList(os.Getenv("NEARMETAL_TEST_ROOTS")) {
		k, err := Finder{Root: root}.Find("")
		if err != nil {
			t.Fatalf("%s: %v", root, err)
		}
		list = append(list, k)
	}
	return list
}

// TestMain makes a cache for the tests, so that a kernel is unpacked once for most of them.
func TestMain(m *testing.M) {
	if os.Getenv(unreadableRoot) != "" {
		os.Exit(m.Run()) // a child of TestUnreadable: it may write nowhere, and needs no cache
	}
	dir, err := os.MkdirTemp("", "nearmetal-image-test")
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_CACHE_HOME", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// testAgent replaces the agent if only its bytes matter.
var testAgent = []byte("\x7fELF agent")

// request returns a request whose notices fail the test unless they contain one of allowed.
func request(t *testing.T, k Kernel, allowed ...string) Request {
	return Request{Kernel: k, Agent: testAgent, Notice: func(line string) {
		for _, a := range allowed {
			if strings.Contains(line, a) {
				t.Log(line)
				return
			}
		}
		t.Errorf("unexpected notice: %s", line)
	}}
}

func TestRealKernels(t *testing.T) {
	for _, k := range kernels(t) {
		t.Run(k.Version, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			start := time.Now()
			img, err := Open(request(t, k))
			if err != nil {
				t.Fatal(err)
			}
			cold := time.Since(start)
			defer img.Close()
			start = time.Now()
			warm, err := Open(request(t, k))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("made in %v, from the cache in %v", cold, time.Since(start))
			defer warm.Close()
			if !img.PVH() || !warm.PVH() {
				t.Error("no PVH entry found: a distribution's kernel has one")
			}
			f, err := elf.NewFile(warm.KernelFile())
			if err != nil || f.Machine != elf.EM_X86_64 {
				t.Errorf("kernel: %v", err)
			}
			config := []byte("name vm0\n")
			initrd, err := warm.WithConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			defer initrd.Close()
			checkInitramfs(t, initrd, config)
		})
	}
}

// checkInitramfs unpacks an initramfs with cpio(1) and checks its contents.
func checkInitramfs(t *testing.T, initrd *os.File, config []byte) {
	t.Helper()
	if _, err := initrd.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(initrd)
	if err != nil {
		t.Fatal(err)
	}
	entries := readCpio(t, b)
	t.Logf("initramfs: %d bytes", len(b))
	if got := entries["init"]; got.mode != 0o100755 || !bytes.Equal(got.data, testAgent) {
		t.Errorf("init: mode %o, %d bytes", got.mode, len(got.data))
	}
	if got := entries["nearmetal/config"]; !bytes.Equal(got.data, config) {
		t.Errorf("config: %q", got.data)
	}
	if got := entries["dev/console"]; got.mode != 0o020600 || got.major != 5 || got.minor != 1 {
		t.Errorf("dev/console: %+v", got)
	}
	order := strings.Fields(string(entries["nearmetal/modules"].data))
	t.Log("modules:", strings.Join(order, " "))
	loaded := map[string]bool{}
	for _, p := range order {
		m, ok := entries[strings.TrimPrefix(p, "/")]
		if !ok || !bytes.HasPrefix(m.data, []byte("\x7fELF")) {
			t.Errorf("%s: not there, or no ELF object", p)
		}
		// All dependencies that a module names must be loaded before it, or be built in.
		for _, need := range moduleNeeds(t, m.data) {
			if _, ours := entries["nearmetal/ko/"+need+".ko"]; ours && !loaded[need] {
				t.Errorf("%s is loaded before %s, which it needs", p, need)
			}
		}
		loaded[strings.TrimSuffix(filepath.Base(p), ".ko")] = true
	}
}

// moduleNeeds reads "depends=a,b" in a module's .modinfo.
func moduleNeeds(t *testing.T, ko []byte) []string {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Section(".modinfo").Data()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(s, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ",")
		}
	}
	return nil
}

func TestCacheRebuilt(t *testing.T) {
	k := kernels(t)[0]
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	img, err := Open(request(t, k))
	if err != nil {
		t.Fatal(err)
	}
	img.Close()
	list, err := filepath.Glob(filepath.Join(home, "nearmetal", "*"))
	if err != nil || len(list) != 2 {
		t.Fatalf("in the cache: %v, %v", list, err)
	}
	for _, p := range list {
		f, err := os.OpenFile(p, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte("damaged"), 100000)
		f.Close()
	}
	notices := 0
	r := request(t, k, "corrupted")
	inner := r.Notice
	r.Notice = func(line string) { notices++; inner(line) }
	if img, err = Open(r); err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if notices != 2 {
		t.Errorf("%d notices of 2 damaged entries", notices)
	}
	if _, err := elf.NewFile(img.KernelFile()); err != nil {
		t.Error(err)
	}
}

func TestNoCacheDirectory(t *testing.T) {
	k := kernels(t)[0]
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o600)
	t.Setenv("XDG_CACHE_HOME", file)
	// The fallback in /var/tmp is real; the test only requires an image without a complaint.
	fallback := fmt.Sprintf("/var/tmp/nearmetal-%d", os.Getuid())
	if _, err := os.Lstat(fallback); errors.Is(err, os.ErrNotExist) {
		t.Cleanup(func() { os.RemoveAll(fallback) })
	}
	img, err := Open(request(t, k))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if !img.PVH() {
		t.Error("no PVH")
	}
}

func TestOldEntriesDropped(t *testing.T) {
	k := kernels(t)[0]
	home := os.Getenv("XDG_CACHE_HOME")
	for i := 0; i < 9; i++ {
		r := request(t, k)
		r.Agent = append(bytes.Clone(testAgent), byte(i))
		img, err := Open(r)
		if err != nil {
			t.Fatal(err)
		}
		img.Close()
	}
	list, _ := filepath.Glob(filepath.Join(home, "nearmetal", "initramfs-*"))
	if len(list) != keep["initramfs"] {
		t.Errorf("%d initramfs in the cache, want %d", len(list), keep["initramfs"])
	}
}

func TestDevdaxModules(t *testing.T) {
	k := kernels(t)[0]
	r := request(t, k)
	r.Devdax = true
	img, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	initrd, err := img.WithConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer initrd.Close()
	checkInitramfs(t, initrd, nil)
}

func TestErrors(t *testing.T) {
	k := kernels(t)[0]
	r := request(t, k)
	r.Modules = []string{"no-such-module"}
	if _, err := Open(r); err == nil || !strings.Contains(err.Error(), "has no module no_such_module in "+k.Modules) ||
		!strings.Contains(err.Error(), "linux-modules-extra-"+k.Version) {
		t.Errorf("missing module: %v", err)
	}
	bad := filepath.Join(t.TempDir(), "vmlinuz")
	os.WriteFile(bad, bytes.Repeat([]byte("x"), 5000), 0o600)
	r = request(t, Kernel{Path: bad, Version: k.Version, Modules: k.Modules})
	if _, err := Open(r); err == nil || !strings.Contains(err.Error(), "not a Linux bzImage") {
		t.Errorf("no bzImage: %v", err)
	}
	img, err := Open(request(t, k))
	if err != nil {
		t.Fatal(err)
	}
	defer img.Close()
	if _, err := img.WithConfig(make([]byte, maxConfig+1)); err == nil {
		t.Error("a configuration that is too large: no error")
	}
}

// TestCloseFrees: a mapping of the kernel's image, such as QEMU's, retains no memory after Close.
func TestCloseFrees(t *testing.T) {
	img, err := Open(request(t, kernels(t)[0]))
	if err != nil {
		t.Fatal(err)
	}
	dup, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", img.KernelFile().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer dup.Close()
	var before, after unix.Stat_t
	unix.Fstat(int(dup.Fd()), &before)
	if err := img.Close(); err != nil {
		t.Fatal(err)
	}
	unix.Fstat(int(dup.Fd()), &after)
	if before.Blocks == 0 || after.Blocks != 0 || after.Size != before.Size {
		t.Errorf("%d blocks before, %d after", before.Blocks, after.Blocks)
	}
	if err := img.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestKernelAgrees compares the ELF image with that extracted by the kernel's own script, with xz(1).
func TestKernelAgrees(t *testing.T) {
	k := kernels(t)[0]
	bz, err := os.ReadFile(k.Path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := payload(bz)
	if err != nil {
		t.Fatal(err)
	}
	if compressionOf(p) != compXZ {
		t.Skipf("the kernel is compressed with %s here: nothing to compare with", compressionOf(p))
	}
	cmd := exec.Command("xz", "-dc", "--single-stream")
	cmd.Stdin = bytes.NewReader(p)
	want, _ := cmd.Output() // it complains about the size that follows
	got, err := vmlinux(bz)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v; with xz %d", len(got), err, len(want))
	}
}
