package e2e

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nearmetal/internal/guest/image"
)

// elsewhere puts a kernel below root/boot whose header names a version that this host has no modules of: this host's kernel,
// with another digit. It returns its path and its version.
func elsewhere(t *testing.T, root string) (path, version string, of image.Kernel) {
	t.Helper()
	of, err := image.FindKernel("")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(of.Path)
	if err != nil {
		t.Fatal(err)
	}
	digit := strings.IndexAny(of.Version, "0123456789")
	version = of.Version[:digit] + string('0'+(of.Version[digit]-'0'+1)%10) + of.Version[digit+1:]
	path = filepath.Join(root, "boot", "vmlinuz-"+version)
	b = bytes.Replace(b, []byte(of.Version+" ("), []byte(version+" ("), 1)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)); err != nil {
		t.Fatal(err)
	}
	return path, version, of
}

// A kernel that is below another root boots with that root's modules, or with those of a directory that is named. Without any it
// has to have all built in, which this one has not: the VM does not start, and the error says what was missing.
func TestKernelElsewhere(t *testing.T) {
	root := t.TempDir()
	path, version, of := elsewhere(t, root)
	r := nm(t, "run", "--name", "k", "--memory", "512MiB", "--kernel", path, "--boot-timeout", "60s", "--", "true")
	r.want(t, 125, path+" has no modules in /lib/modules/"+version, "virtio_console", "--kernel-modules")

	nm(t, "run", "--name", "k", "--memory", "512MiB", "--kernel", path, "--kernel-modules", of.Modules, "--", "uname", "-r").want(t, 0, of.Version)

	modules := filepath.Join(root, "lib", "modules", version)
	if err := os.MkdirAll(filepath.Dir(modules), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", of.Modules, modules).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	nm(t, "run", "--name", "k", "--memory", "512MiB", "--kernel", path, "--", "uname", "-r").want(t, 0, of.Version)
}
