package bed

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockName is the file by whose lock a directory has an owner: the kernel frees it with the
// owner's end, by kill -9 too.
const lockName = "owner.lock"

// Own makes a directory below /tmp whose name starts with prefix, this process's own. What an
// owner that was killed left of earlier ones is reaped first: the processes that have a
// path below such a directory in their environment, users whose home is there, and the directory.
func Own(prefix string) (string, error) {
	if err := reap(prefix); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("/tmp", prefix)
	if err != nil {
		return "", err
	}
	// It stays open, so that the lock lasts as long as this process; and it has its name only once it is
	// locked, so that nobody finds it without an owner.
	name := filepath.Join(dir, lockName)
	fd, err := unix.Open(name+".new", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	}
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	return dir, err
}

// reap removes the directories of dead owners, with what belongs to them.
func reap(prefix string) error {
	locks, err := filepath.Glob("/tmp/" + prefix + "*/" + lockName)
	if err != nil {
		return err
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // its owner was quicker
		}
		if err != nil {
			return err
		}
		if unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}) == nil {
			err = Remove(filepath.Dir(name))
		}
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove ends everything that belongs to a directory, takes off what is mounted below it, and removes it.
func Remove(dir string) error {
	err := Await("the end of what ran below "+dir, func() bool {
		list := Processes(dir + "/")
		for _, pid := range list {
			unix.Kill(pid, unix.SIGKILL)
		}
		return len(list) == 0
	})
	if err != nil {
		return err
	}
	if err := removeNetworks(dir); err != nil {
		return err
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return err
	}
	for _, line := range strings.Split(string(passwd), "\n") {
		if f := strings.Split(line, ":"); len(f) == 7 && strings.HasPrefix(f[5], dir+"/") {
			exec.Command("userdel", "-r", f[0]).Run()
		}
	}
	if err := unmount(dir); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// unmount takes off what is mounted below a directory: the folders of jobs.
func unmount(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	lines := strings.Split(string(mounts), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // what is mounted upon another stands behind it
		// proc(5): the fifth field is the mount point; no name of ours has a blank.
		if f := strings.Fields(lines[i]); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			errs = append(errs, unix.Unmount(f[4], unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW))
		}
	}
	return errors.Join(errs...)
}

// Processes are those with a text in their environment; zombies have none.
func Processes(text string) []int {
	var list []int
	procs, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, p := range procs {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
		if env, _ := os.ReadFile(p); pid != os.Getpid() && bytes.Contains(env, []byte(text)) {
			list = append(list, pid)
		}
	}
	return list
}
