package rootimage

import (
	"archive/tar"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nearmetal/internal/host"
	"nearmetal/internal/host/cache"
)

func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("this test needs ", p)
			}
			t.Skip("this test needs ", p)
		}
	}
}

func at(t *testing.T) *cache.Dir {
	t.Helper()
	d, err := cache.At(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.RemoveTree(d.Path()) })
	return d
}

// tree returns a minimal root: bin/sh, and an inaccessible directory.
func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tree")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "bin"), 0o755), os.WriteFile(filepath.Join(dir, "bin/sh"), []byte("#!"), 0o755),
		os.MkdirAll(filepath.Join(dir, "closed/in"), 0o755), os.Symlink("/etc", filepath.Join(dir, "link")), os.Chmod(filepath.Join(dir, "closed"), 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "closed"), 0o755) })
	return dir
}

func do(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

// unpacked unpacks the image at path twice: the second time nothing is done.
func unpacked(t *testing.T, d *cache.Dir, path string, kind Kind) string {
	t.Helper()
	var said []string
	var dirs [2]string
	for i := range dirs {
		image, err := Find(path)
		if err != nil || image == nil || image.Kind != kind {
			t.Fatalf("%+v, %v, not %s", image, err, kind)
		}
		if dirs[i], err = image.Unpack(context.Background(), d, func(s string) { said = append(said, s) }); err != nil {
			t.Fatal(err)
		}
	}
	if dirs[0] != dirs[1] || len(said) != 1 || !strings.Contains(said[0], path) && kind != OCI {
		t.Errorf("%q, %q", dirs, said)
	}
	if _, err := os.Stat(filepath.Join(dirs[0], "closed/in")); err != nil {
		t.Error(err)
	}
	if to, err := os.Readlink(filepath.Join(dirs[0], "link")); to != "/etc" {
		t.Errorf("link: %q, %v", to, err)
	}
	list, err := os.ReadDir(d.Path())
	for _, e := range list {
		if !strings.HasPrefix(e.Name(), "root-") {
			t.Errorf("left in the cache: %s, %v", e.Name(), err)
		}
	}
	return dirs[0]
}

// TestSquashfs: a squashfs is unpacked once, and again when it has changed.
func TestSquashfs(t *testing.T) {
	needs(t, "mksquashfs", "unsquashfs")
	d, dir := at(t), tree(t)
	image := filepath.Join(t.TempDir(), "root.squashfs")
	do(t, "mksquashfs", dir, image, "-quiet", "-no-progress")
	first := unpacked(t, d, image, Squashfs)
	if err := os.WriteFile(filepath.Join(dir, "more"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, "mksquashfs", dir, image, "-quiet", "-no-progress", "-noappend")
	if second := unpacked(t, d, image, Squashfs); second == first {
		t.Error("the same folder for another image")
	} else if _, err := os.Stat(filepath.Join(second, "more")); err != nil {
		t.Error(err)
	}
	// A truncated image leaves nothing.
	b, err := os.ReadFile(image)
	if err == nil {
		err = os.WriteFile(image, b[:150], 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := Find(image)
	if err != nil {
		t.Fatal(err)
	}
	other := at(t)
	if _, err := i.Unpack(context.Background(), other, func(string) {}); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("half an image: %v", err)
	}
	if list, _ := os.ReadDir(other.Path()); len(list) != 0 {
		t.Errorf("left in the cache: %v", list)
	}
}

// TestOCI: an OCI image is unpacked by umoci, with a tag if it has several; an archive is first converted by skopeo.
func TestOCI(t *testing.T) {
	needs(t, "umoci")
	d, dir := at(t), tree(t)
	layout := filepath.Join(t.TempDir(), "layout")
	do(t, "umoci", "init", "--layout", layout)
	add := func(tag string) {
		do(t, "umoci", "new", "--image", layout+":"+tag)
		do(t, "umoci", "insert", "--rootless", "--image", layout+":"+tag, dir, "/")
	}
	add("one")
	unpacked(t, d, layout, OCI)
	add("two")
	i, err := Find(layout)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Unpack(context.Background(), d, func(string) {}); err == nil || !strings.Contains(err.Error(), layout+":TAG (TAG: one, two)") {
		t.Errorf("two images: %v", err)
	}
	unpacked(t, d, layout+":two", OCI)
	if i, err = Find(layout + ":three"); err != nil {
		t.Fatal(err)
	}
	if _, err := i.Unpack(context.Background(), d, func(string) {}); err == nil || !strings.Contains(err.Error(), `no tag "three"`) {
		t.Errorf("no such image: %v", err)
	}
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Log("without skopeo, archives are left out")
		return
	}
	for _, transport := range []string{"oci-archive", "docker-archive"} {
		archive := filepath.Join(t.TempDir(), transport+".tar")
		to := transport + ":" + archive
		if transport == "docker-archive" {
			to += ":nearmetal/test:1"
		}
		do(t, "skopeo", "--insecure-policy", "copy", "-q", "oci:"+layout+":one", to)
		unpacked(t, d, archive, Archive)
	}
}

// TestRefused: an input that is not a root is rejected in one line, and a missing unpacker is named with its package.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, text := range []string{"", "hsq", "hello", strings.Repeat("\x00", 600)} {
		if i, err := Find(file("strange", text)); i != nil || err == nil || !strings.Contains(err.Error(), "neither squashfs") {
			t.Errorf("%q: %+v, %v", text, i, err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "none"), dir + ":tag"} {
		if i, err := Find(path); i != nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %+v, %v", path, i, err)
		}
	}
	if i, err := Find("/dev/null"); i != nil || err == nil {
		t.Errorf("a device: %+v, %v", i, err)
	}
	if i, err := Find(dir); i != nil || err != nil {
		t.Errorf("a folder: %+v, %v", i, err)
	}
	path := os.Getenv("PATH")
	t.Setenv("PATH", dir)
	for text, want := range map[string]string{
		"hsqs":                                 "squashfs-tools",
		"QFI\xfb":                              "guestfish",
		strings.Repeat("x", 32) + "SIF_MAGIC":  "squashfs-tools",
		strings.Repeat("x", 257) + "ustar\x00": "skopeo",
	} {
		i, err := Find(file("image", text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Unpack(context.Background(), at(t), func(string) {}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is missing") {
			t.Errorf("%s: %v, not %s", i.Kind, err, want)
		}
	}
	t.Setenv("PATH", path)
	f, err := os.Create(filepath.Join(dir, "plain.tar"))
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "bin/sh", Mode: 0o755, Format: tar.FormatUSTAR}), w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := archiveKind(f.Name()); err == nil || !strings.Contains(err.Error(), "no OCI image") {
		t.Errorf("a plain archive: %v", err)
	}
}

// TestGuestfs: libguestfs emulates if this host's KVM does not work, unless the user has chosen.
func TestGuestfs(t *testing.T) {
	t.Setenv("LIBGUESTFS_BACKEND_SETTINGS", "network_bridge=br0")
	if env := guestfs(); env != nil {
		t.Errorf("over what the user has set: %q", env)
	}
	os.Unsetenv("LIBGUESTFS_BACKEND_SETTINGS") // t.Setenv restores it
	accel, _, err := host.DetectAccel("auto")
	if err != nil {
		t.Fatal(err)
	}
	if env := guestfs(); (accel == host.TCG) != slices.Equal(env, []string{"LIBGUESTFS_BACKEND_SETTINGS=force_tcg"}) {
		t.Errorf("with %s: %q", accel, env)
	}
}
