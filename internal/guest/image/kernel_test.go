package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// boot makes a root directory with kernels; those whose version starts with + also have modules.
func boot(t *testing.T, versions ...string) string {
	t.Helper()
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "boot"), 0o755)
	for _, v := range versions {
		name, with := strings.CutPrefix(v, "+")
		if err := os.WriteFile(filepath.Join(root, "boot/vmlinuz-"+name), bzImageOf(nil), 0o644); err != nil {
			t.Fatal(err)
		}
		if with {
			dir := filepath.Join(root, "lib/modules", name)
			os.MkdirAll(dir, 0o755)
			os.WriteFile(filepath.Join(dir, "modules.dep"), nil, 0o644)
		}
	}
	return root
}

func TestFind(t *testing.T) {
	tests := []struct {
		name     string
		versions []string
		running  string
		want     string // version
		err      string
	}{
		{"newest", []string{"+6.1.0-9-amd64", "+6.1.0-10-amd64", "+5.10.0-30-amd64"}, "x", "6.1.0-10-amd64", ""},
		{"running first", []string{"+6.1.0-9-amd64", "+6.1.0-10-amd64"}, "6.1.0-9-amd64", "6.1.0-9-amd64", ""},
		{"running has no modules", []string{"6.1.0-9-amd64", "+6.1.0-10-amd64"}, "6.1.0-9-amd64", "6.1.0-10-amd64", ""},
		{"newest has no modules", []string{"+6.1.0-9-amd64", "6.1.0-10-amd64"}, "x", "6.1.0-9-amd64", ""},
		{"none", nil, "x", "", "no kernel to start VMs with"},
		{"no modules at all", []string{"6.1.0-9-amd64"}, "x", "", "no modules of kernel 6.1.0-9-amd64"},
		{"strange names", []string{"+6.1.0 evil", "+6.1.0-9.old"}, "x", "", "linux-image-amd64 on Debian"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k, err := Finder{Root: boot(t, tt.versions...), Release: tt.running}.Find("")
			if k.Version != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %+v, %v", k, err)
			}
		})
	}
}

// TestFindBesideModules: if /boot's kernel cannot be read, the copy in the directory of its modules is used: with a
// closed file, as on some Red Hat systems (a directory here, because root reads a closed file), and with an empty
// /boot, as in images of such systems.
func TestFindBesideModules(t *testing.T) {
	for _, inBoot := range []bool{true, false} {
		root := boot(t, "+5.14.0-427.el9.x86_64")
		closed := filepath.Join(root, "boot/vmlinuz-5.14.0-427.el9.x86_64")
		if err := os.Remove(closed); err != nil {
			t.Fatal(err)
		}
		if inBoot {
			if err := os.Mkdir(closed, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		f := Finder{Root: root, Release: "x"}
		if k, err := f.Find(""); err == nil {
			t.Errorf("there is none: %+v", k)
		}
		beside := filepath.Join(root, "lib/modules/5.14.0-427.el9.x86_64/vmlinuz")
		if err := os.WriteFile(beside, bzImageOf(nil), 0o644); err != nil {
			t.Fatal(err)
		}
		k, err := f.Find("")
		if err != nil || k.Path != beside || k.Version != "5.14.0-427.el9.x86_64" || k.Modules != filepath.Dir(beside) {
			t.Errorf("%+v, %v", k, err)
		}
	}
}

func TestFindNamed(t *testing.T) {
	root := boot(t, "+6.9.0-test", "5.5.5-other")
	f := Finder{Root: root}
	k, err := f.Find(filepath.Join(root, "boot/vmlinuz-5.5.5-other")) // its header has 6.9.0-test
	if err != nil || k.Version != "6.9.0-test" {
		t.Errorf("%+v, %v", k, err)
	}
	text := filepath.Join(root, "text")
	os.WriteFile(text, []byte("no kernel"), 0o644)
	for path, want := range map[string]string{
		"/no/such/kernel": "no such file",
		text:              "not a Linux bzImage",
		root:              "not a regular file",
	} {
		if _, err := f.Find(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	// Without any modules everything that a VM needs has to be built in, and the error of a VM that does not start
	// mentions that.
	os.RemoveAll(filepath.Join(root, "lib"))
	k, err = f.Find(filepath.Join(root, "boot/vmlinuz-6.9.0-test"))
	if err != nil || k.Modules != "" || k.Version != "6.9.0-test" {
		t.Errorf("no modules: %+v, %v", k, err)
	}
	if err := k.Mounts("9p"); err != nil {
		t.Error(err)
	}
	late := k.Explain(os.ErrDeadlineExceeded)
	if !errors.Is(late, os.ErrDeadlineExceeded) || !strings.Contains(late.Error(), "virtio_console") || strings.Contains(late.Error(), "\n") {
		t.Error(late)
	}
	k.Modules = "/lib/modules/6.9.0-test"
	if err := k.Explain(os.ErrDeadlineExceeded); err != os.ErrDeadlineExceeded {
		t.Error(err)
	}
}

// TestFindInAnotherRoot: a kernel of another root gets the modules of that root, not this host's of the same version,
// also by a link to it and if it is in the directory of its modules. Modules of a third user are ignored.
func TestFindInAnotherRoot(t *testing.T) {
	const v = "6.9.0-test"
	f := Finder{Root: boot(t, "+"+v)}
	other := boot(t, "+"+v)
	path, modules := filepath.Join(other, "boot/vmlinuz-"+v), filepath.Join(other, "lib/modules", v)
	beside, link := filepath.Join(modules, "vmlinuz"), filepath.Join(t.TempDir(), "vmlinuz")
	if err := errors.Join(os.WriteFile(beside, bzImageOf(nil), 0o644), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, beside, link} {
		if k, err := f.Find(p); err != nil || k.Modules != modules || k.Path != p {
			t.Errorf("%s: %+v, %v", p, k, err)
		}
	}
	if os.Geteuid() == 0 {
		os.Chown(filepath.Join(modules, "modules.dep"), 65534, 65534)
		if k, err := f.Find(path); err != nil || k.Modules != f.path("/lib/modules/"+v) {
			t.Errorf("another user's modules: %+v, %v", k, err)
		}
	}
	// The directory is given by name, and may have any.
	named := t.TempDir()
	f.Modules = named
	if _, err := f.Find(path); err == nil || !strings.Contains(err.Error(), "no modules: ") {
		t.Errorf("an empty directory: %v", err)
	}
	os.WriteFile(filepath.Join(named, "modules.dep"), nil, 0o644)
	if k, err := f.Find(path); err != nil || k.Modules != named || k.Version != v {
		t.Errorf("%+v, %v", k, err)
	}
}

// TestHostileKernels: files that are not kernels, or not modules, produce one line, and none blocks.
func TestHostileKernels(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	huge, err := os.Create(at("huge"))
	if err != nil {
		t.Fatal(err)
	}
	huge.Write(bzImageOf(nil))
	if err := errors.Join(huge.Truncate(1<<40), huge.Close(), syscall.Mkfifo(at("pipe"), 0o600), os.Symlink(at("loop"), at("loop")),
		os.WriteFile(at("empty"), nil, 0o600), os.Mkdir(at("modules"), 0o700), syscall.Mkfifo(at("modules/modules.dep"), 0o600)); err != nil {
		t.Fatal(err)
	}
	one := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, want := range map[string]string{"pipe": "not a regular file", "loop": "too many levels", "empty": "not a Linux bzImage"} {
		_, err := Finder{Root: dir}.Find(at(name))
		one(name, err, want)
	}
	_, err = Finder{Root: dir}.Find("/dev/zero")
	one("/dev/zero", err, "not a regular file")
	k, err := Finder{Root: dir}.Find(at("huge"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(Request{Kernel: k, Agent: []byte("agent")})
	one("huge", err, "bytes are more than")
	_, err = Finder{Root: dir, Modules: at("modules")}.Find(at("huge"))
	one("modules.dep is a pipe", err, "not a regular file")
}

// unreadableRoot is the environment variable by which TestUnreadable passes the root to its child.
const unreadableRoot = "NEARMETAL_TEST_UNREADABLE"

// TestUnreadable covers Ubuntu's case: a kernel of mode 0600. Root can read it nevertheless, so as root the test runs
// itself again as another user.
func TestUnreadable(t *testing.T) {
	root := os.Getenv(unreadableRoot)
	if root == "" && os.Geteuid() == 0 {
		root = boot(t, "+6.8.0-generic")
		os.Chmod(filepath.Join(root, "boot/vmlinuz-6.8.0-generic"), 0o600)
		os.Chmod(root, 0o755) // and the directory that contains all of the test's
		os.Chmod(filepath.Dir(root), 0o755)
		exe := filepath.Join(root, "image.test")
		if b, err := os.ReadFile(os.Args[0]); err != nil || os.WriteFile(exe, b, 0o755) != nil {
			t.Fatal("the test program cannot be copied")
		}
		cmd := exec.Command(exe, "-test.run=^TestUnreadable$", "-test.v")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), unreadableRoot+"="+root)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	if root == "" {
		root = boot(t, "+6.8.0-generic")
		os.Chmod(filepath.Join(root, "boot/vmlinuz-6.8.0-generic"), 0)
	}
	for _, want := range []string{"", filepath.Join(root, "boot/vmlinuz-6.8.0-generic")} {
		_, err := Finder{Root: root, Release: "x"}.Find(want)
		if err == nil || !strings.Contains(err.Error(), "chmod 0644") || !strings.Contains(err.Error(), "dpkg-statoverride") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestNewer(t *testing.T) {
	order := []string{"6.12.0-1", "6.2.0", "6.1.0-10-amd64", "6.1.0-9-cloud-amd64", "6.1.0-9-amd64", "6.1.0-09", "5.19"}
	for i := range order {
		for j := range order {
			if got := newer(order[i], order[j]); got && i >= j || !got && i < j && order[i] != "6.1.0-9-amd64" {
				t.Errorf("newer(%s, %s) = %v", order[i], order[j], got)
			}
		}
	}
}
