package carry

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// PutAgent writes the agent's program to path, where launchers in the VM look for the remote shell. dir is nearmetal's
// own directory above it, which becomes one from which programs may be started.
func PutAgent(dir, path string, program []byte) error {
	if err := executable(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, program, 0o755)
}

// executable makes a directory in which programs may be started: Debian's initramfs mounts /run with noexec.
func executable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Flags&unix.ST_NOEXEC == 0 {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("no program may be started in %s, and mounting a file system there: %w", dir, err)
	}
	return nil
}

// AddHosts appends lines to file, the VM's /etc/hosts, below a comment that names the cluster's.
func AddHosts(file string, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "# nearmetal's cluster\n%s\n", strings.Join(lines, "\n"))
	return errors.Join(err, f.Close())
}
