package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Base returns the directory of the user's clusters and makes it if it is missing:
// $NEARMETAL_RUNTIME_DIR, else $XDG_RUNTIME_DIR/nearmetal, else /tmp/nearmetal-UID.
// It is the user's own and closed to others, or an error: another user could have made
// it in /tmp before.
func Base() (string, error) {
	dir := os.Getenv("NEARMETAL_RUNTIME_DIR")
	if dir == "" {
		if x := os.Getenv("XDG_RUNTIME_DIR"); x != "" && owned(x) == nil {
			dir = filepath.Join(x, "nearmetal")
		} else {
			dir = filepath.Join("/tmp", "nearmetal-"+strconv.Itoa(os.Getuid()))
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
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

// owned says why dir is not a directory that only this user can write to.
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

// The files of a cluster, below its directory.
const (
	lockFile    = "lock"
	recordFile  = "record.json"
	journalFile = "journal"
	// ControlFile is the socket of the owner.
	ControlFile = "control.sock"
	// SupervisorFile has the last words of a supervisor.
	SupervisorFile = "supervisor.log"
)

// ConsoleFile is the log of a VM's console.
func ConsoleFile(vm string) string { return "console-" + vm + ".log" }
