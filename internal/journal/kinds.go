package journal

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/process"
)

// kind is a kind of change. It defines how its arguments are checked, how it is undone (did is false if there was
// nothing left to undo), and how it is described.
type kind struct {
	valid func(Change) error
	undo  func(Change) (did bool, err error)
	say   func(Change) string
}

var kinds map[string]kind

func init() {
	kinds = map[string]kind{
		"file":      {validPath, undoFile, func(c Change) string { return "file " + c.Args["path"] }},
		"process":   {validProcess, undoProcess, func(c Change) string { return c.Args["name"] + " (process " + c.Args["pid"] + ")" }},
		"link":      {validLink, undoLink, func(c Change) string { return "network interface " + c.Args["name"] }},
		"value":     {validValue, undoValue, sayValue},
		"memlock":   {validMemlock, undoMemlock, sayMemlock},
		"directory": {validPath, undoDirectory, func(c Change) string { return "directory " + c.Args["path"] }},
	}
}

// Register adds a kind of change, for a package that can undo it. valid checks a change that was read back, undo undoes
// it (did is false if there was nothing left to undo), and say describes it. Register is called from init functions.
func Register(name string, valid func(Change) error, undo func(Change) (did bool, err error), say func(Change) string) {
	kinds[name] = kind{valid, undo, say}
}

// File returns the change that creates a file at an absolute path.
func File(path string) Change {
	return Change{Kind: "file", Args: map[string]string{"path": path}}
}

func validPath(c Change) error {
	p := c.Args["path"]
	if !filepath.IsAbs(p) || filepath.Clean(p) != p {
		return fmt.Errorf("%q is not a clean absolute path", p)
	}
	return nil
}

func undoFile(c Change) (bool, error) {
	// unlink, never rmdir and never a whole tree, because a journal names single files.
	err := unix.Unlink(c.Args["path"])
	if err == unix.ENOENT {
		return false, nil
	}
	return err == nil, err
}

// Process returns the change that starts a process. Its start time in clock ticks since boot (proc(5), stat field 22)
// distinguishes it from a later process with the same number.
func Process(name string, pid int) (Change, error) {
	start, err := process.Start(pid)
	if err != nil {
		return Change{}, err
	}
	return Change{Kind: "process", Args: map[string]string{
		"name": name, "pid": strconv.Itoa(pid), "start": start}}, nil
}

func validProcess(c Change) error {
	pid, err := strconv.Atoi(c.Args["pid"])
	if err != nil || pid < 2 {
		return fmt.Errorf("%q is not a process", c.Args["pid"])
	}
	if c.Args["start"] == "" {
		return errors.New("no start time")
	}
	return nil
}

func undoProcess(c Change) (bool, error) {
	pid, _ := strconv.Atoi(c.Args["pid"])
	p, err := process.Find(pid, c.Args["start"])
	if errors.Is(err, process.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer p.Close()
	return p.Kill(10 * time.Second)
}

// Link returns the change that creates a network interface (a bridge or a tap) by name.
func Link(name string) Change {
	return Change{Kind: "link", Args: map[string]string{"name": name}}
}

func validLink(c Change) error {
	n := c.Args["name"]
	// nm-: only interfaces that nearmetal itself names are ever deleted.
	if !strings.HasPrefix(n, "nm-") || len(n) >= unix.IFNAMSIZ || strings.ContainsAny(n, "/ ") {
		return fmt.Errorf("%q is not the name of an interface of ours", n)
	}
	return nil
}

func undoLink(c Change) (bool, error) {
	name := c.Args["name"]
	if _, err := net.InterfaceByName(name); err != nil {
		return false, nil
	}
	if err := deleteLink(name); err != nil {
		return false, err
	}
	return true, nil
}
