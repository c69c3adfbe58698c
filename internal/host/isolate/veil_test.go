package isolate

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// user is an account that does not exist.
const user = 12345

// asUser runs the calling test again as an ordinary user, if it runs as root.
func asUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	t.Run("user", func(t *testing.T) {
		dir, err := os.MkdirTemp("/tmp", "nm-isolate-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		program := filepath.Join(dir, "isolate.test")
		in, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
		if err == nil {
			_, err = io.Copy(out, in)
		}
		if err := errors.Join(err, out.Close(), os.Chmod(dir, 0o755)); err != nil {
			t.Fatal(err)
		}
		name, _, _ := strings.Cut(t.Name(), "/")
		cmd := exec.Command(program, "-test.v", "-test.run", "^"+name+"$")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		text, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(text), "--- PASS: "+name) {
			t.Errorf("as user %d: %v\n%s", user, err, text)
		}
	})
}

// tmpDir makes a directory of this user in /tmp itself.
func tmpDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "nm-isolate-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// newVeil makes a veil that ends with the test, or skips the test if the host does not permit it.
func newVeil(t *testing.T, dirs, hidden []string) *Veil {
	t.Helper()
	v, err := NewVeil(dirs, hidden)
	var no *NoNamespace
	if errors.As(err, &no) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// through returns the path of a file behind a veil.
func through(dir *os.File, path string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path)
}

// TestVeil accesses the export of / as a guest does, through the directory of a veil.
func TestVeil(t *testing.T) {
	defer asUser(t)
	own := tmpDir(t)
	write(t, own+"/file")
	runtimeDir := tmpDir(t)
	write(t, runtimeDir+"/record.json")
	ln, err := net.Listen("unix", runtimeDir+"/control.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	other := "/proc/1/cmdline" // if no other user's file can be made
	if os.Geteuid() == 0 {
		dir := tmpDir(t)
		other = dir + "/file"
		write(t, other)
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, user, user)); err != nil {
			t.Fatal(err)
		}
	}
	v := newVeil(t, []string{"/", own}, []string{runtimeDir})
	root := v.Dirs()[0]

	for _, path := range []string{
		fmt.Sprintf("/proc/%d/environ", os.Getpid()), "/proc/self/environ", "/proc/version", "/sys/kernel", "/dev/null", "/dev/shm",
		runtimeDir + "/record.json", runtimeDir + "/control.sock", other,
	} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("the attack aims at nothing: %v", err)
		}
		if _, err := os.Lstat(through(root, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s can be reached: %v", path, err)
		}
	}
	for _, path := range []string{"/proc", "/sys", "/dev", "/run"} {
		if list, err := os.ReadDir(through(root, path)); err != nil || len(list) > 0 {
			t.Errorf("%s holds %v, %v", path, list, err)
		}
	}
	for _, path := range []string{through(root, own+"/file"), through(v.Dirs()[1], "file"), through(root, "etc/passwd")} {
		if _, err := os.ReadFile(path); err != nil {
			t.Errorf("what shall be seen: %v", err)
		}
	}
	if err := os.WriteFile(through(root, "/tmp/new"), nil, 0o644); err == nil {
		t.Error("/tmp of the view can be written")
	}
	// The host's own namespace is not affected.
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Error(err)
	}
}

// TestVeilOwners: the owners of files are unchanged: a guest sees the files of root as root's.
func TestVeilOwners(t *testing.T) {
	defer asUser(t)
	v := newVeil(t, []string{"/"}, nil)
	var a, b unix.Stat_t
	if err := errors.Join(unix.Stat("/etc/passwd", &a), unix.Stat(through(v.Dirs()[0], "etc/passwd"), &b)); err != nil {
		t.Fatal(err)
	}
	if a.Uid != b.Uid || a.Gid != b.Gid || a.Ino != b.Ino {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestVeilRefresh: files that the user later makes, replaces and removes in /tmp appear after a Refresh.
func TestVeilRefresh(t *testing.T) {
	defer asUser(t)
	first := tmpDir(t)
	write(t, first+"/file")
	v := newVeil(t, []string{"/"}, nil)
	root := v.Dirs()[0]
	sees := func(path string, want bool) {
		t.Helper()
		if _, err := os.ReadFile(through(root, path)); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
	refresh := func() {
		t.Helper()
		if err := v.Refresh(); err != nil {
			t.Fatal(err)
		}
	}
	sees(first+"/file", true)
	second := tmpDir(t)
	write(t, second+"/file")
	sees(second+"/file", false)
	refresh()
	sees(second+"/file", true)
	// Replaced by another one with the same name.
	if err := errors.Join(os.RemoveAll(first), os.Mkdir(first, 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, first+"/another")
	refresh()
	sees(first+"/another", true)
	os.RemoveAll(second)
	refresh()
	if _, err := os.Lstat(through(root, second)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed directory: %v", err)
	}
	link := first + "-link"
	os.Symlink("/proc", link)
	t.Cleanup(func() { os.Remove(link) })
	refresh()
	if to, err := os.Readlink(through(root, link)); err != nil || to != "/proc" {
		t.Errorf("%q, %v", to, err)
	}
}

// TestVeilOutlives: the covers stay while the namespace's file is open, after the process that made them has ended.
func TestVeilOutlives(t *testing.T) {
	defer asUser(t)
	v := newVeil(t, []string{"/"}, nil)
	dup := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), f.Name())
	}
	root, ns := dup(v.Dirs()[0]), dup(v.Namespace())
	defer root.Close()
	defer ns.Close()
	v.Close()
	for _, path := range []string{"/proc/version", "/dev/null"} {
		if _, err := os.Lstat(through(root, path)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s can be reached: %v", path, err)
		}
	}
	if err := v.Refresh(); err == nil {
		t.Error("Refresh of a closed veil: no error")
	}
}

// undumpable makes this process one that others of its user cannot inspect, like the owner of a cluster with a
// secret.
func undumpable(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) })
}

// TestUndumpable: a process with a secret makes veils and jails like any other.
func TestUndumpable(t *testing.T) {
	defer asUser(t)
	share := tmpDir(t)
	write(t, share+"/file")
	undumpable(t)
	v := newVeil(t, []string{"/"}, nil)
	if _, err := os.Lstat(through(v.Dirs()[0], "/proc/version")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/proc can be reached: %v", err)
	}
	if _, err := os.ReadFile(through(v.Dirs()[0], share+"/file")); err != nil {
		t.Errorf("what shall be seen: %v", err)
	}
	trees, err := NewTreeVeil([]string{"/"}, nil, nil)
	namespaces(t, err)
	defer trees.Close()
	tree, err := trees.Tree(0)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if got := jailed(t, Jail{Files: []JailFile{{File: tree, Reopen: true, At: "/export"}}}, "read", "/export/etc/passwd"); !strings.HasSuffix(got, "done\n") {
		t.Error(got)
	}
	for _, network := range []bool{false, true} {
		if got := jailed(t, Jail{Network: network}, "read", "/etc/passwd"); !strings.HasPrefix(got, "refused: ") {
			t.Error(got)
		}
	}
	// Making them does not make this process accessible to others.
	if os.Geteuid() != 0 {
		out, err := exec.Command("cat", fmt.Sprintf("/proc/%d/maps", os.Getpid())).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("another process of the user reads this one's memory: %v, %.80s", err, out)
		}
	}
}

// TestVeilRefuses: a directory that does not exist is an error, and nothing is left.
func TestVeilRefuses(t *testing.T) {
	if _, err := NewVeil([]string{"/", "/nonexistent"}, nil); err == nil || !strings.Contains(err.Error(), "/nonexistent") {
		t.Errorf("%v", err)
	}
}
