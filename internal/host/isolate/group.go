package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host"
)

// Limits are the limits of a cgroup: of all its processes together.
type Limits struct {
	MemoryBytes uint64
	Processes   int // including threads
	CPUs        int
	IOWeight    int // 1 to 10000; others have 100
}

// groupControllers enforce the limits; without the first two no group is made.
var groupControllers = []string{"memory", "pids", "cpu", "io"}

// GroupParent returns the directory in which this process may make cgroups (v2) for its children, and the controllers
// that are missing there. It is the nearest parent of this process's own cgroup that has most of them.
func GroupParent() (dir string, missing []string, err error) {
	dirs, v2 := host.Host{}.CgroupDirs("memory")
	if !v2 {
		return "", nil, errors.New("this host's cgroups are not of version 2")
	}
	return groupParent(dirs)
}

func groupParent(dirs []string) (dir string, missing []string, err error) {
	writable := func(path string) bool { return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil }
	for _, d := range dirs {
		if !writable(d) || !writable(d+"/cgroup.procs") {
			break // a process can only be moved below a cgroup of its user
		}
		b, err := os.ReadFile(d + "/cgroup.subtree_control")
		if err != nil {
			continue
		}
		has := strings.Fields(string(b))
		var lack []string
		for _, c := range groupControllers {
			if !slices.Contains(has, c) {
				lack = append(lack, c)
			}
		}
		if slices.Contains(lack, "memory") || slices.Contains(lack, "pids") {
			continue
		}
		if dir == "" || len(lack) < len(missing) {
			dir, missing = d, lack
		}
	}
	if dir == "" {
		return "", nil, errors.New("no cgroup with limits on memory and processes is yours to make cgroups in (systemd-run --user --scope makes one)")
	}
	return dir, missing, nil
}

// MakeGroup makes a cgroup at path and sets its limits, except those of missing controllers. It returns its
// directory, open. The caller has recorded its path before: RemoveGroup undoes it.
func MakeGroup(path string, l Limits, missing []string) (*os.File, error) {
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	for _, v := range []struct{ controller, file, value string }{
		{"memory", "memory.max", strconv.FormatUint(l.MemoryBytes, 10)},
		{"pids", "pids.max", strconv.Itoa(l.Processes)},
		{"cpu", "cpu.max", fmt.Sprintf("%d 100000", l.CPUs*100000)},
		{"io", "io.weight", strconv.Itoa(l.IOWeight)},
	} {
		if slices.Contains(missing, v.controller) {
			continue
		}
		err := os.WriteFile(filepath.Join(path, v.file), []byte(v.value), 0)
		if v.controller == "io" && errors.Is(err, os.ErrNotExist) {
			continue // no scheduler of this kernel uses weights
		}
		if err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
	}
	return os.OpenFile(path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// groupTime bounds the end of a cgroup's processes.
const groupTime = 30 * time.Second

// RemoveGroup kills the processes of a cgroup and removes it; did is false if it did not exist.
func RemoveGroup(path string) (did bool, err error) {
	events, err := os.Open(filepath.Join(path, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer events.Close()
	// Linux 5.14; without it other code kills the processes, or they keep the group.
	os.WriteFile(filepath.Join(path, "cgroup.kill"), []byte("1"), 0)
	for end := time.Now().Add(groupTime); ; {
		var b [512]byte
		n, err := events.ReadAt(b[:], 0)
		if n == 0 {
			return false, err
		}
		err = unix.Rmdir(path)
		if err == nil || err == unix.ENOENT {
			return true, nil
		}
		left := time.Until(end)
		if err != unix.EBUSY || left <= 0 {
			return false, fmt.Errorf("%s: %w", path, err)
		}
		if !strings.Contains(string(b[:n]), "populated 1") {
			left = min(left, 10*time.Millisecond) // the last process is being removed
		}
		unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, max(1, int(left.Milliseconds())))
	}
}
