package cache

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree makes a directory with an inaccessible one in it, last used some time ago.
func tree(t *testing.T, d *Dir, name string, ago time.Duration) string {
	t.Helper()
	path := filepath.Join(d.Path(), name)
	if err := os.MkdirAll(filepath.Join(path, "closed/in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(path, "closed"), 0o500); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-ago)
	if err := os.Chtimes(path, then, then); err != nil {
		t.Fatal(err)
	}
	return path
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestTrimTrees: directories that were not used for long are removed, except those that a process holds, other users'
// and other kinds.
func TestTrimTrees(t *testing.T) {
	d := at(t)
	const day = 24 * time.Hour
	gone := []string{tree(t, d, "root-old", 31*day), tree(t, d, oldPrefix+"root-cut", 0)}
	stay := []string{tree(t, d, "root-new", 29*day), tree(t, d, "other-old", 31*day), tree(t, d, "root-held", 31*day)}
	link := filepath.Join(d.Path(), "root-link")
	if err := os.Symlink(tree(t, at(t), "elsewhere", 31*day), link); err != nil {
		t.Fatal(err)
	}
	stay = append(stay, link)
	if os.Geteuid() == 0 {
		theirs := tree(t, d, "root-theirs", 31*day)
		if err := os.Chown(theirs, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		stay = append(stay, theirs)
	}
	// Another process holds one, as the owner of a cluster does.
	f, err := openTree(filepath.Join(d.Path(), "root-held"))
	if err != nil {
		t.Fatal(err)
	}
	holder := exec.Command("cat")
	holder.ExtraFiles = []*os.File{f}
	in, err := holder.StdinPipe()
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_SH)
	}
	if err == nil {
		err = holder.Start()
	}
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	d.TrimTrees(30*day, "root-")
	for _, p := range gone {
		if there(p) {
			t.Errorf("%s is still there", p)
		}
	}
	for _, p := range stay {
		if !there(p) {
			t.Errorf("%s is gone", p)
		}
	}
	in.Close()
	if err := holder.Wait(); err != nil {
		t.Fatal(err)
	}
	d.TrimTrees(30*day, "root-")
	if there(filepath.Join(d.Path(), "root-held")) {
		t.Error("it stays after its holder's end")
	}
}

// TestHold: a directory that this process holds counts as used now.
func TestHold(t *testing.T) {
	d := at(t)
	p := tree(t, d, "root-a", 100*24*time.Hour)
	if err := d.Hold("root-a"); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(p)
	if err != nil || time.Since(fi.ModTime()) > time.Hour {
		t.Errorf("%v, %v", fi, err)
	}
	d.TrimTrees(0, "root-")
	if !there(p) {
		t.Error("a directory in use was removed")
	}
	if err := d.Hold("none"); err == nil {
		t.Error("none was held")
	}
}
