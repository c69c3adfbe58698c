package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/process"
	"nearmetal/internal/words"
)

// valueMax bounds a value of a kernel attribute, in bytes.
const valueMax = 4096

// Value returns the change that writes a kernel attribute at a path below /sys or /proc/sys. before is its present
// value (ReadValue). A value of the running kernel ends with that kernel, so that after another boot there is nothing
// to undo, unless lasting is set, which means that the value is set at each boot. root is the captured tree that
// contains the path, "" for this host.
func Value(root, path, before string, lasting bool) Change {
	args := map[string]string{"path": path, "before": before}
	if lasting {
		args["lasting"] = "yes"
	}
	if root != "" {
		args["root"] = root
	} else {
		args["boot"] = BootID()
	}
	return Change{Kind: "value", Args: args}
}

// BootID returns this boot's identity (proc(5), random/boot_id).
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func validValue(c Change) error {
	if err := validPath(c); err != nil {
		return err
	}
	p, root := c.Args["path"], c.Args["root"]
	if !strings.HasPrefix(p, "/sys/") && !strings.HasPrefix(p, "/proc/sys/") {
		return fmt.Errorf("%q is not below /sys or /proc/sys", p)
	}
	if root != "" && (!filepath.IsAbs(root) || filepath.Clean(root) != root) {
		return fmt.Errorf("%q is not a clean absolute path", root)
	}
	if len(c.Args["before"]) > valueMax || strings.ContainsAny(c.Args["before"], "\n\x00") {
		return errors.New("not the value of an attribute")
	}
	return nil
}

func sayValue(c Change) string {
	return fmt.Sprintf("%s = %s", c.Args["path"], c.Args["before"])
}

func undoValue(c Change) (bool, error) {
	if boot := c.Args["boot"]; boot != "" && boot != BootID() && c.Args["lasting"] == "" {
		return false, nil
	}
	path, before := filepath.Join(c.Args["root"], c.Args["path"]), c.Args["before"]
	now, err := ReadValue(path)
	if gone(err) || errors.Is(err, unix.ENODEV) || err == nil && now == before {
		return false, nil
	}
	// An attribute that can be written but not read is written back without comparison.
	if err := WriteValue(path, before); gone(err) || errors.Is(err, unix.ENODEV) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

// ReadValue reads a kernel attribute: its first line, or the selected word of a choice such as "always [madvise]
// never". The number of huge pages is the one that was requested: the kernel adds surplus pages on demand, which it
// frees again (nr_hugepages and surplus_hugepages in Documentation/admin-guide/mm/hugetlbpage.rst).
func ReadValue(path string) (string, error) {
	value, err := readLine(path)
	if err != nil || filepath.Base(path) != "nr_hugepages" {
		return value, err
	}
	surplus, err := readLine(filepath.Join(filepath.Dir(path), "surplus_hugepages"))
	if errors.Is(err, fs.ErrNotExist) {
		return value, nil
	}
	all, bad := strconv.ParseUint(value, 10, 64)
	over, bad2 := strconv.ParseUint(surplus, 10, 64)
	if err == nil && bad == nil && bad2 == nil {
		value = strconv.FormatUint(all-min(all, over), 10)
	}
	return value, err
}

// readLine reads an attribute's first line, or the selected word in it.
func readLine(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, valueMax))
	if err != nil {
		return "", err
	}
	s, _, _ := strings.Cut(string(b), "\n")
	if _, after, ok := strings.Cut(s, "["); ok {
		if word, _, ok := strings.Cut(after, "]"); ok {
			s = word
		}
	}
	return strings.TrimSpace(s), nil
}

// WriteValue writes a kernel attribute. It changes the number of VFs by way of 0, as the kernel requires
// (Documentation/ABI/testing/sysfs-bus-pci, sriov_numvfs).
func WriteValue(path, value string) error {
	if filepath.Base(path) == "sriov_numvfs" && value != "0" {
		if now, err := ReadValue(path); err == nil && now != "0" {
			if err := writeFile(path, "0"); err != nil {
				return err
			}
		}
	}
	return writeFile(path, value)
}

func writeFile(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	if bad := f.Close(); err == nil {
		err = bad
	}
	return err
}

// Memlock returns the change that raises a process's limit on locked memory. A later process with the same number is
// distinguished as by Process. The change stores the present soft and hard limits, in bytes.
func Memlock(name string, pid int) (Change, error) {
	c, err := Process(name, pid)
	if err != nil {
		return Change{}, err
	}
	var now unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &now); err != nil {
		return Change{}, err
	}
	c.Kind = "memlock"
	c.Args["soft"], c.Args["hard"] = strconv.FormatUint(now.Cur, 10), strconv.FormatUint(now.Max, 10)
	return c, nil
}

func validMemlock(c Change) error {
	for _, name := range []string{"soft", "hard"} {
		if _, err := strconv.ParseUint(c.Args[name], 10, 64); err != nil {
			return fmt.Errorf("%q is not a limit", c.Args[name])
		}
	}
	return validProcess(c)
}

func sayMemlock(c Change) string {
	limit := "unlimited"
	if n, _ := strconv.ParseUint(c.Args["soft"], 10, 64); n != unix.RLIM_INFINITY {
		limit = words.Bytes(n)
	}
	return fmt.Sprintf("limit on locked memory of %s (process %s) = %s", c.Args["name"], c.Args["pid"], limit)
}

func undoMemlock(c Change) (bool, error) {
	pid, _ := strconv.Atoi(c.Args["pid"])
	if start, err := process.Start(pid); gone(err) || errors.Is(err, unix.ESRCH) || err == nil && start != c.Args["start"] {
		return false, nil
	} else if err != nil {
		return false, err
	}
	var want, now unix.Rlimit
	want.Cur, _ = strconv.ParseUint(c.Args["soft"], 10, 64)
	want.Max, _ = strconv.ParseUint(c.Args["hard"], 10, 64)
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &now); err != nil || now == want {
		return false, err
	}
	err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &want, nil)
	return err == nil, err
}

// Directory returns the change that creates a directory at an absolute path. Undoing it removes the directory if empty.
func Directory(path string) Change {
	return Change{Kind: "directory", Args: map[string]string{"path": path}}
}

func undoDirectory(c Change) (bool, error) {
	err := unix.Rmdir(c.Args["path"])
	if err == unix.ENOENT || err == unix.ENOTEMPTY || err == unix.EEXIST {
		return false, nil
	}
	return err == nil, err
}
