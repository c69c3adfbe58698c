package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/spec"
)

// place creates the file path with the mode 0755 below dir.
func place(t *testing.T, dir, path, text string) string {
	t.Helper()
	path = filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	host := &spec.Cluster{Root: "host"}
	dir := t.TempDir()
	exe := place(t, dir, "bin/nearmetal", "")
	if _, why := Find(host, exe); !strings.Contains(why, "make install") {
		t.Errorf("none: %q", why)
	}
	installed := place(t, dir, "lib/nearmetal/libfabric/libivshmem-fi.so", "no library")
	if got, why := Find(host, exe); got != installed || why != "" {
		t.Errorf("%q %q", got, why)
	}
	link := filepath.Join(t.TempDir(), "nm")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	if got, _ := Find(host, link); got != installed {
		t.Errorf("by a link: %q", got)
	}
	built := t.TempDir()
	want := place(t, built, "c/fabric/libivshmem-fi.so", "")
	if got, _ := Find(host, place(t, built, "nearmetal", "")); got != want {
		t.Errorf("as make leaves it: %q", got)
	}
	// A file that is not a readable library is not used with another root, which may not suit it.
	if got, why := Find(&spec.Cluster{Root: t.TempDir()}, exe); got != "" || why == "" {
		t.Errorf("another root: %q %q", got, why)
	}
}

func TestFindUCX(t *testing.T) {
	dir := t.TempDir()
	fabric := place(t, dir, "lib/nearmetal/libfabric/libivshmem-fi.so", "")
	if got, why := FindUCX(&spec.Cluster{Root: "host"}, fabric); got != "" || !strings.Contains(why, "make install") {
		t.Errorf("none: %q %q", got, why)
	}
	want := place(t, dir, "lib/nearmetal/ucx/libnearmetal-ucx.so", "no library")
	if got, why := FindUCX(&spec.Cluster{Root: "host"}, fabric); got != want || why != "" {
		t.Errorf("%q %q", got, why)
	}
	if _, why := FindUCX(&spec.Cluster{Root: t.TempDir()}, fabric); why == "" {
		t.Error("another root: what is not a library is taken")
	}
}

func TestLacks(t *testing.T) {
	needs := []string{"GLIBC_2.2.5", "GLIBC_2.34"}
	root := t.TempDir()
	if why := lacks(root, needs); !strings.Contains(why, "no glibc") {
		t.Errorf("none: %q", why)
	}
	place(t, root, "usr/lib64/libc.so.6", "GLIBC_2.2.5\x00GLIBC_2.33\x00GLIBC_2.340\x00")
	if why := lacks(root, needs); !strings.Contains(why, "without GLIBC_2.34,") {
		t.Errorf("an older one: %q", why)
	}
	place(t, root, "usr/lib64/libc.so.6", "GLIBC_2.2.5\x00GLIBC_2.34\x00")
	if why := lacks(root, needs); why != "" {
		t.Error(why)
	}
	// Links are resolved within that root: /usr/lib64 is not the host's here.
	other := t.TempDir()
	place(t, other, "usr/lib64/libc.so.6", "GLIBC_2.2.5\x00GLIBC_2.34\x00")
	if err := os.Symlink("/usr/lib64", filepath.Join(other, "lib64")); err != nil {
		t.Fatal(err)
	}
	if b, err := readBelow(other, "lib64/libc.so.6"); err != nil || len(b) != 23 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Checks the C library versions that this test's program needs, or another program of the host if this one is static.
func TestLibcVersions(t *testing.T) {
	for _, p := range []string{"/bin/sh", "/usr/bin/env"} {
		list, err := libcVersions(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range list {
			if !strings.HasPrefix(v, "GLIBC_") {
				t.Errorf("%s: %q", p, v)
			}
		}
		if len(list) > 0 {
			if why := lacks("/", list); why != "" {
				t.Errorf("the host itself: %s", why)
			}
		}
	}
	if _, err := libcVersions(place(t, t.TempDir(), "x", "no ELF file")); err == nil {
		t.Error("text is not a library")
	}
}
