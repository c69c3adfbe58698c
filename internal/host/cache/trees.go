package cache

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// TreeAge is how long a directory in a cache stays after its last use.
const TreeAge = 30 * 24 * time.Hour

// oldPrefix marks directories that are being removed.
const oldPrefix = ".old-"

// held are the directories that this process uses: open, with a shared lock, until it ends.
var held []*os.File

// Hold marks a directory of the cache as used now, and keeps TrimTrees from removing it while this process lives.
func (d *Dir) Hold(name string) error {
	f, err := openTree(filepath.Join(d.path, name))
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("%s: it is being removed: %w", f.Name(), err)
	}
	now := time.Now()
	os.Chtimes(f.Name(), now, now)
	held = append(held, f)
	return nil
}

// TrimTrees removes the directories whose names begin with one of prefixes, that no process holds and that were not
// used for age. Directories that cannot be removed stay until the next call.
func (d *Dir) TrimTrees(age time.Duration, prefixes ...string) {
	list, err := os.ReadDir(d.path)
	if err != nil {
		return
	}
	for _, e := range list {
		path := filepath.Join(d.path, e.Name())
		for _, p := range append([]string{oldPrefix}, prefixes...) {
			if e.IsDir() && strings.HasPrefix(e.Name(), p) {
				trimTree(path, filepath.Join(d.path, oldPrefix+strings.TrimPrefix(e.Name(), oldPrefix)), age)
				break
			}
		}
	}
}

// trimTree renames a directory before it removes it, so that nobody finds a part of it.
func trimTree(path, aside string, age time.Duration) {
	f, err := openTree(path)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	// The time of use is read under the lock: a process may have used and released the directory in the meantime.
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || int(st.Uid) != os.Geteuid() {
		return
	}
	if path != aside && (time.Since(time.Unix(st.Mtim.Unix())) < age || os.Rename(path, aside) != nil) {
		return
	}
	RemoveTree(aside)
}

// openTree opens a directory without following a symbolic link.
func openTree(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// RemoveTree removes a directory, including subdirectories that their owner cannot enter.
func RemoveTree(dir string) error {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}
