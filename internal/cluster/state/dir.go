package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Base returns the directory of the user's clusters and creates it if it is missing: $NEARMETAL_RUNTIME_DIR, else
// $XDG_RUNTIME_DIR/nearmetal, else /tmp/nearmetal-UID. It fails unless the directory belongs to the user and is
// closed to others, because another user could have created it in /tmp before.
func Base() (string, error) {
	dir := os.Getenv("NEARMETAL_RUNTIME_DIR")
	if dir == "" {
		x, err := runtimeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(x, "nearmetal")
		if x == "" {
			dir = filepath.Join("/tmp", "nearmetal-"+strconv.Itoa(os.Getuid()))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := hideable(dir); err != nil {
		return "", fmt.Errorf("directory of clusters: %w; set NEARMETAL_RUNTIME_DIR to another", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("cannot make the directory of clusters: %w; set NEARMETAL_RUNTIME_DIR to one that can be", err)
	}
	if err := owned(dir); err != nil {
		return "", fmt.Errorf("directory of clusters: %w; set NEARMETAL_RUNTIME_DIR to another", err)
	}
	// The control socket's path has to fit into sockaddr_un (108 bytes, unix(7)).
	if n := len(dir) + 1 + MaxName + len("/control.sock"); n > 107 {
		return "", fmt.Errorf("directory of clusters: %s is too long by %d characters; set NEARMETAL_RUNTIME_DIR to a shorter one", dir, n-107)
	}
	return dir, nil
}

// runtimeDir returns $XDG_RUNTIME_DIR; "" if it is not set, does not exist (in a container), or is the private
// directory of another user (after su). Any other directory that does not belong to this user is an error.
func runtimeDir() (string, error) {
	x := os.Getenv("XDG_RUNTIME_DIR")
	if x == "" {
		return "", nil
	}
	fi, err := os.Lstat(x)
	if errors.Is(err, fs.ErrNotExist) && filepath.IsAbs(x) {
		return "", nil
	}
	if err == nil {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && fi.IsDir() && int(st.Uid) != os.Getuid() && fi.Mode().Perm()&0o077 == 0 {
			return "", nil
		}
		if err = owned(x); err == nil {
			err = hideable(x)
		}
	}
	if !filepath.IsAbs(x) {
		err = fmt.Errorf("%q is not an absolute path", x)
	}
	if err != nil {
		return "", fmt.Errorf("XDG_RUNTIME_DIR: %w; unset it, or set it to a private directory of your own", err)
	}
	return filepath.Clean(x), nil
}

// hideable returns an error if VMs need the contents of dir, so that dir cannot be hidden from them.
func hideable(dir string) error {
	dir = filepath.Clean(dir)
	for _, tree := range []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/proc", "/sys"} {
		if within(dir, tree) || within(tree, dir) {
			return fmt.Errorf("%s holds files of the system, which the VMs need", dir)
		}
	}
	for _, d := range []string{"/home", "/root", "/srv", "/opt", "/var/tmp", "/run", "/dev/shm", "/tmp", os.Getenv("HOME")} {
		if within(d, dir) {
			return fmt.Errorf("%s holds more than runtime files, and the VMs see nothing of what is in a runtime directory", dir)
		}
	}
	return nil
}

// within reports whether a clean path is dir or in it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// HiddenDirs returns the directories of the clusters and of the user's session, which VMs must not see.
func HiddenDirs() ([]string, error) {
	base, err := Base()
	if err != nil {
		return nil, err
	}
	list := []string{base, "/tmp/nearmetal-" + strconv.Itoa(os.Getuid())}
	x, err := runtimeDir()
	if err != nil {
		return nil, err
	}
	if x != "" {
		list = append(list, x)
	}
	return list, nil
}

// owned returns an error unless dir is a directory that only this user can write to.
func owned(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !ok || int(st.Uid) != os.Getuid():
		return fmt.Errorf("%s belongs to another user (%d)", dir, st.Uid)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others (mode %04o)", dir, fi.Mode().Perm())
	}
	return nil
}

// Files in a cluster's directory.
const (
	lockFile    = "lock"
	recordFile  = "record.json"
	journalFile = "journal"
	// ControlFile is the socket of the owner.
	ControlFile = "control.sock"
	// SupervisorFile has the last output of a supervisor.
	SupervisorFile = "supervisor.log"
)

// ConsoleFile returns the name of the log of a VM's console.
func ConsoleFile(vm string) string { return "console-" + vm + ".log" }
