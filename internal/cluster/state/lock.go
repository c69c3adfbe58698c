package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A cluster's lock is an open-file-description lock (fcntl(2), F_OFD_SETLK) on a file in its directory. The kernel
// releases it when the owner dies, so that a free lock proves that nobody owns the cluster. The lock can be queried
// without acquiring it.

// errLocked reports that a cluster has an owner.
var errLocked = errors.New("in use")

// lock acquires the lock of the cluster in dir; it returns errLocked if another process holds it.
func lock(dir string) (*os.File, error) {
	return lockPath(filepath.Join(dir, lockFile), unix.F_OFD_SETLK)
}

func lockPath(path string, cmd int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.FcntlFlock(f.Fd(), cmd, &unix.Flock_t{Type: unix.F_WRLCK})
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		if err == unix.EAGAIN || err == unix.EACCES {
			return nil, errLocked
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// locked reports whether the cluster in dir has an owner. If the lock cannot be queried (on a file system without
// locks), locked returns an error, because that does not prove that there is no owner.
func locked(dir string) (bool, error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		defer f.Close()
		l := unix.Flock_t{Type: unix.F_WRLCK}
		for err = unix.EINTR; err == unix.EINTR; {
			err = askLock(f.Fd(), unix.F_OFD_GETLK, &l)
		}
		if err == nil {
			return l.Type != unix.F_UNLCK, nil
		}
	}
	return false, fmt.Errorf("cluster %q: its lock does not say whether it runs (%w): set NEARMETAL_RUNTIME_DIR to a directory of this host's own, such as /run/user/%d",
		filepath.Base(dir), err, os.Getuid())
}

// askLock is fcntl(2), except in tests.
var askLock = unix.FcntlFlock

// lockBase waits for the lock under which clusters' directories are created and swept, so that a sweep never finds a
// partly created cluster.
func lockBase(base string) (*os.File, error) {
	return lockPath(filepath.Join(base, ".lock"), unix.F_OFD_SETLKW)
}

// create creates the directory of the cluster called name and locks it. The caller has already swept any dead cluster
// of that name.
func create(base, name string) (dir string, l *os.File, err error) {
	b, err := lockBase(base)
	if err != nil {
		return "", nil, err
	}
	defer b.Close()
	dir = filepath.Join(base, name)
	if _, err := sweepOne(dir, name); err != nil {
		return "", nil, err
	}
	err = os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return "", nil, fmt.Errorf("a cluster called %q runs already: end it with nearmetal down %s, or take another name", name, name)
	}
	if err == nil {
		l, err = lock(dir)
	}
	if err != nil {
		return "", nil, fmt.Errorf("cluster %q: %w", name, err)
	}
	return dir, l, nil
}

// AwaitEnd waits until the cluster called name has no owner.
func AwaitEnd(name string) error {
	base, err := Base()
	if err != nil {
		return err
	}
	f, err := lockPath(filepath.Join(base, name, lockFile), unix.F_OFD_SETLKW)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		f.Close()
	}
	return err
}
