package kernelfetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/guest/image"
	"nearmetal/internal/host/cache"
)

const version = "6.8.0-48-generic"

// bzImage returns a minimal bzImage with a version.
func bzImage(version string) []byte {
	b := make([]byte, 8192)
	copy(b[0x202:], "HdrS")
	b[0x20e], b[0x20f] = 0x00, 0x02 // at 0x400
	copy(b[0x400:], version+" (buildd@x) #1\x00")
	return b
}

// archive makes a system for dpkg and apt, in which a package owns /boot/vmlinuz-VERSION, and an archive with that
// package, whose kernel has version inside. It returns the path of the package.
func archive(t *testing.T, inside string) (deb string) {
	t.Helper()
	for _, p := range []string{"apt-get", "dpkg-deb", "dpkg-query"} {
		if _, err := exec.LookPath(p); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal("this test needs ", p)
			}
			t.Skip("this test needs ", p)
		}
	}
	dir := t.TempDir()
	put := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	control := "Package: linux-image-" + version + "\nVersion: 6.8.0-48.48\nArchitecture: amd64\nMaintainer: n\nDescription: d\n"
	put("dpkg/status", strings.Replace(control, "Version", "Status: install ok installed\nVersion", 1)+"\n")
	put("dpkg/info/linux-image-"+version+".list", "/.\n/boot\n/boot/vmlinuz-"+version+"\n")
	put("dpkg/info/format", "1\n")
	put("root/DEBIAN/control", control)
	put("root/boot/vmlinuz-"+version, string(bzImage(inside)))
	put("root/boot/config", "x")
	os.MkdirAll(filepath.Join(dir, "archive"), 0o755)
	deb = filepath.Join(dir, "archive", "k.deb")
	run("dpkg-deb", "--root-owner-group", "-b", "root", deb)
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	put("archive/Packages", control+fmt.Sprintf("Filename: ./k.deb\nSize: %d\nSHA256: %x\n\n", len(b), sha256.Sum256(b)))
	put("sources.list", "deb [trusted=yes] file:"+dir+"/archive ./\n")
	os.MkdirAll(filepath.Join(dir, "lists/partial"), 0o755)
	os.MkdirAll(filepath.Join(dir, "cache/archives/partial"), 0o755)
	put("apt.conf", `Dir::Etc::SourceList "`+dir+`/sources.list"; Dir::Etc::SourceParts "-"; Dir::State::Lists "`+dir+`/lists";
Dir::State::status "`+dir+`/dpkg/status"; Dir::Cache "`+dir+`/cache"; APT::Architecture "amd64"; APT::Architectures "amd64"; APT::Sandbox::User "";
`)
	t.Setenv("APT_CONFIG", filepath.Join(dir, "apt.conf"))
	t.Setenv("DPKG_ADMINDIR", filepath.Join(dir, "dpkg"))
	run("apt-get", "-qq", "update")
	return deb
}

// closed returns a system whose kernel users cannot read, and a cache.
func closed(t *testing.T) (image.Finder, *cache.Dir) {
	t.Helper()
	root := t.TempDir()
	// A directory here, because root could read a closed file.
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "boot", "vmlinuz-"+version), 0o755),
		os.MkdirAll(filepath.Join(root, "lib/modules", version), 0o755),
		os.WriteFile(filepath.Join(root, "lib/modules", version, "modules.dep"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	d, err := cache.At(filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	return image.Finder{Root: root, Release: "x", Cache: d}, d
}

// TestFetch: a closed kernel is extracted from the distribution's package, by apt itself, and is found; a damaged
// copy is not used.
func TestFetch(t *testing.T) {
	archive(t, version)
	f, d := closed(t)
	if v, others, err := f.Closed(); v != version || others || err != nil {
		t.Fatalf("closed: %q, %v, %v", v, others, err)
	}
	if _, err := f.Find(""); err == nil || !strings.Contains(err.Error(), "nearmetal kernel fetch") {
		t.Errorf("before: %v", err)
	}
	got, err := Fetch(context.Background(), d, version)
	if err != nil || got.Package != "linux-image-"+version+"=6.8.0-48.48" {
		t.Fatalf("%+v, %v", got, err)
	}
	k, err := f.Find("")
	if err != nil || k.Version != version || filepath.Dir(k.Path) != d.Path() {
		t.Fatalf("after: %+v, %v", k, err)
	}
	if list, _ := os.ReadDir(d.Path()); len(list) != 1 {
		t.Errorf("the cache holds %v", list)
	}
	b, err := os.ReadFile(k.Path)
	if err == nil {
		b[5000]++
		err = os.WriteFile(k.Path, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if k, err := f.Find(""); err == nil {
		t.Errorf("damaged: %+v", k)
	}
}

// TestFetchRefused: no kernel is kept if the package is not the archive's, or its kernel has another version.
func TestFetchRefused(t *testing.T) {
	t.Run("changed", func(t *testing.T) {
		deb := archive(t, version)
		b, err := os.ReadFile(deb)
		if err == nil {
			b[len(b)-1]++
			err = os.WriteFile(deb, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		refused(t, version, "")
		if err := verify(deb, fmt.Sprintf("%x", sha256.Sum256(nil))); err == nil || !strings.Contains(err.Error(), "SHA-256") {
			t.Errorf("with another digest: %v", err)
		}
	})
	t.Run("another kernel", func(t *testing.T) {
		archive(t, "6.8.0-49-generic")
		refused(t, version, `it is kernel "6.8.0-49-generic"`)
	})
	t.Run("no package's", func(t *testing.T) {
		archive(t, version)
		refused(t, "6.8.0-1", "kernel 6.8.0-1 is not from an installed package")
		refused(t, "../x", "not a kernel version")
		refused(t, "-x", "not a kernel version")
	})
	t.Run("gone", func(t *testing.T) {
		os.Remove(archive(t, version))
		refused(t, version, "apt-get")
	})
	t.Run("no apt", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		refused(t, version, "by apt alone")
	})
}

func refused(t *testing.T, version, words string) {
	t.Helper()
	_, d := closed(t)
	_, err := Fetch(context.Background(), d, version)
	if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v; not %q", err, words)
	}
	if list, _ := os.ReadDir(d.Path()); len(list) != 0 {
		t.Errorf("left in the cache: %v", list)
	}
}
