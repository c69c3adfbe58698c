package state

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nearmetal/internal/journal"
	"nearmetal/internal/spec"
)

func base(t *testing.T) string {
	t.Helper()
	t.Setenv("NEARMETAL_RUNTIME_DIR", filepath.Join(t.TempDir(), "run"))
	t.Setenv("NEARMETAL_CLUSTER", "")
	dir, err := Base()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNameInUse(t *testing.T) {
	b := base(t)
	_, l, err := create(b, "one")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := create(b, "one"); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("a second cluster of the name: %v", err)
	}
	l.Close()
	if _, l, err := create(b, "one"); err != nil {
		t.Errorf("after the owner is gone: %v", err)
	} else {
		l.Close()
	}
}

func TestSweep(t *testing.T) {
	b := base(t)
	live, l, err := create(b, "live")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dead, ld, err := create(b, "dead")
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(t.TempDir(), "left")
	j, err := journal.Open(filepath.Join(dead, journalFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Record(journal.File(left)); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(left, nil, 0o600)
	for _, dir := range []string{live, dead} {
		r := Record{Name: filepath.Base(dir), State: Ready}
		if err := r.write(dir); err != nil {
			t.Fatal(err)
		}
	}
	ld.Close() // the owner dies

	list, err := List()
	if err != nil || len(list) != 2 || list[0].State != Dead || list[1].State != Ready {
		t.Errorf("list before: %+v, %v", list, err)
	}
	lines, err := Sweep()
	if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "dead") || !strings.Contains(lines[0], left) {
		t.Errorf("swept: %q, %v", lines, err)
	}
	for path, want := range map[string]bool{left: false, dead: false, live: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s there: %v, want %v", path, err == nil, want)
		}
	}
	if r, err := Find(""); err != nil || r.Name != "live" {
		t.Errorf("the only cluster: %v, %v", r, err)
	}
	if _, err := Find("dead"); err == nil {
		t.Error("a dead cluster was found")
	}
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "..", "a/b", "-a", "ä", "a b", strings.Repeat("a", 41)} {
		if spec.CheckName(bad) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for range 100 {
		if n := MakeName(); spec.CheckName(n) != nil {
			t.Errorf("made-up name %q is bad", n)
		}
	}
}

func TestBaseOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	os.Mkdir(dir, 0o777)
	os.Chmod(dir, 0o777)
	t.Setenv("NEARMETAL_RUNTIME_DIR", dir)
	if _, err := Base(); err == nil || !strings.Contains(err.Error(), "by others") {
		t.Errorf("a directory open to all: %v", err)
	}
	t.Setenv("NEARMETAL_RUNTIME_DIR", "/"+strings.Repeat("x", 80))
	if _, err := Base(); err == nil {
		t.Error("a path too long for a socket was taken")
	}
	os.Remove("/" + strings.Repeat("x", 80))
}

// Checks that the directories of clusters and the user's runtime directory are hidden from VMs, and that neither may
// be a directory that VMs need.
func TestRuntimeDir(t *testing.T) {
	home := t.TempDir()
	own, open, file := filepath.Join(home, "own"), filepath.Join(home, "open"), filepath.Join(home, "file")
	if err := errors.Join(os.Mkdir(own, 0o700), os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.WriteFile(file, nil, 0o600), os.Symlink("/usr", filepath.Join(home, "link"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	bad := []string{"/", "/usr", "/usr/", "/usr/lib", "/etc", "/home", "/tmp", "/var/tmp", "/run", "/var", home, filepath.Dir(home)}
	for _, key := range []string{"NEARMETAL_RUNTIME_DIR", "XDG_RUNTIME_DIR"} {
		t.Setenv("NEARMETAL_RUNTIME_DIR", "")
		t.Setenv("XDG_RUNTIME_DIR", "")
		for _, dir := range append(bad, open, file, filepath.Join(home, "link"), "usr") {
			t.Setenv(key, dir)
			if key == "NEARMETAL_RUNTIME_DIR" && dir == "usr" { // below the working directory
				continue
			}
			if got, err := Base(); err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s=%s: clusters are in %s, %v", key, dir, got, err)
			}
			if got, err := HiddenDirs(); err == nil {
				t.Errorf("%s=%s: hidden are %q", key, dir, got)
			}
		}
	}
	t.Setenv("NEARMETAL_RUNTIME_DIR", own)
	t.Setenv("XDG_RUNTIME_DIR", "/usr")
	if got, err := HiddenDirs(); err == nil || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR") {
		t.Errorf("hidden are %q, %v", got, err)
	}
	t.Setenv("NEARMETAL_RUNTIME_DIR", "")
	t.Setenv("XDG_RUNTIME_DIR", own)
	if got, err := Base(); err != nil || got != filepath.Join(own, "nearmetal") {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := HiddenDirs(); err != nil || !slices.Contains(got, own) {
		t.Errorf("hidden are %q, %v", got, err)
	}
	// The variable may name another user's directory after su, and a missing one in a container.
	names := []string{filepath.Join(home, "none")}
	if os.Getuid() == 0 {
		if err := os.Chown(own, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		names = append(names, own)
	}
	for _, dir := range names {
		t.Setenv("XDG_RUNTIME_DIR", dir)
		if got, err := Base(); err != nil || strings.HasPrefix(got, dir) {
			t.Errorf("%s: %s, %v", dir, got, err)
		}
		if got, err := HiddenDirs(); err != nil || slices.Contains(got, dir) {
			t.Errorf("%s: hidden are %q, %v", dir, got, err)
		}
	}
}

// Checks that a lock which the file system cannot query (NFS) is not taken for a free one: nothing of the cluster is
// removed.
func TestLockWithoutAnswer(t *testing.T) {
	b := base(t)
	live, l, err := create(b, "live")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := Record{Name: "live", State: Ready}
	if err := r.write(live); err != nil {
		t.Fatal(err)
	}
	defer func(f func(uintptr, int, *unix.Flock_t) error) { askLock = f }(askLock)
	for _, e := range []error{unix.EOPNOTSUPP, unix.ENOLCK, unix.EIO} {
		askLock = func(uintptr, int, *unix.Flock_t) error { return e }
		lines, err := Sweep()
		if len(lines) > 0 || !errors.Is(err, e) || !strings.Contains(err.Error(), "NEARMETAL_RUNTIME_DIR") {
			t.Errorf("%v: swept %q, %v", e, lines, err)
		}
		if _, err := os.Stat(live); err != nil {
			t.Fatal(err)
		}
		if list, err := List(); err != nil || len(list) != 1 || list[0].State == Dead {
			t.Errorf("%v: %+v, %v", e, list, err)
		}
	}
	os.Chmod(filepath.Join(live, lockFile), 0)
	askLock = unix.FcntlFlock
	if os.Getuid() != 0 {
		if _, err := Sweep(); err == nil {
			t.Error("a lock that may not be read is taken for none")
		}
	}
}

// Checks that a dead cluster with an unreadable journal is reported, and that the others are still swept.
func TestSweepBadJournal(t *testing.T) {
	b := base(t)
	for _, name := range []string{"a", "b", "c"} {
		dir, l, err := create(b, name)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		if name == "b" {
			text = "?\n"
		}
		if err := os.WriteFile(filepath.Join(dir, journalFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	lines, err := Sweep()
	if len(lines) != 2 || err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("%q, %v", lines, err)
	}
}
