package spec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

// systemTrees, and directories below them, are not shared by default: a guest that could write there could change the
// host, and the guest has the files it needs of them from its root.
var systemTrees = []string{
	"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/var", "/boot", "/dev", "/proc", "/sys", "/run",
}

// scratchTrees are below a system tree but contain users' files.
var scratchTrees = []string{"/var/tmp", "/var/home"}

// DefaultShare returns the share of a cluster whose file has no `shares` key: the working directory cwd (absolute,
// without symbolic links), read-write, so that files that a program writes there persist, or read-only if the caller
// may not write there. ok is false if cwd is /, a system directory, or a directory that each guest needs for itself
// (/tmp: MPI libraries keep sockets there, which a share cannot contain).
func DefaultShare(cwd string) (share Share, ok bool) {
	cwd = filepath.Clean(cwd)
	share = Share{Path: cwd, Target: cwd, Mode: "rw"}
	if err := unix.Access(cwd, unix.W_OK); err == unix.EACCES || err == unix.EROFS {
		share.Mode = "ro"
	}
	switch cwd {
	case "/", "/opt", "/tmp", "/var/tmp":
		return Share{}, false
	}
	if !filepath.IsAbs(cwd) || path(cwd) != "" {
		return Share{}, false
	}
	for _, tree := range scratchTrees {
		if below(cwd, tree) {
			return share, true
		}
	}
	for _, tree := range systemTrees {
		if below(cwd, tree) {
			return Share{}, false
		}
	}
	return share, true
}

// ShareHome adds the home directory to c's shares, if c has home: share and they do not contain it. home is an
// absolute path. It is placed before shares in it, which are mounted over it. asRoot means that root starts the VMs:
// they may only read it unless c has rootWrites.
func (c *Cluster) ShareHome(home string, asRoot bool) error {
	if c.Home != "share" {
		return nil
	}
	share, ok := DefaultShare(home)
	if !ok {
		return fmt.Errorf("home directory %s cannot be shared: it is none, or a directory of the system (--no-home, home: none)", clip(home))
	}
	c.AddShare(share, asRoot)
	return nil
}

// LosesHome reports whether files that programs write into the home directory, at the same path, are lost with the
// VMs, and the user has not chosen that (home: none). It is called when all shares are known, and before Defaults.
func (c *Cluster) LosesHome(home string) bool {
	if _, ok := DefaultShare(home); !ok || c.Home != "" || c.Root == RootBackend {
		return false
	}
	return !slices.ContainsFunc(c.Shares, func(s Share) bool { return below(home, s.Target) })
}

// AddShare adds a share whose paths are absolute, unless c has one with its target. It is placed before shares in it,
// which are mounted over it; asRoot is as in ShareHome.
func (c *Cluster) AddShare(s Share, asRoot bool) {
	if asRoot && !c.RootWrites {
		s.Mode = "ro"
	}
	at := len(c.Shares)
	for i, other := range c.Shares {
		if other.Target == s.Target {
			return
		}
		if at > i && below(other.Target, s.Target) {
			at = i
		}
	}
	c.Shares = slices.Insert(c.Shares, at, s)
}

// isolations are in the order of their strictness.
var isolations = []string{"auto", "standard", "strict"}

// AtLeastIsolation raises c's isolation to at least least, one of the values of that key; "" is auto.
func (c *Cluster) AtLeastIsolation(least string) error {
	if least == "" {
		return nil
	}
	want := slices.Index(isolations, least)
	if want < 0 {
		return fmt.Errorf("isolation %q: one of %s", clip(least), strings.Join(isolations, ", "))
	}
	if slices.Index(isolations, c.Isolation) < want {
		c.Isolation = least
	}
	return nil
}

// WritesAsRoot returns an error if root starts c's VMs: it names the first share to which they could write although c
// does not request that; nil: none. A VM of root writes files on the host as root: a setuid program is one step from
// a guest to the host.
func (c *Cluster) WritesAsRoot() error {
	if c.RootWrites {
		return nil
	}
	for _, s := range c.Shares {
		if s.Mode != "ro" {
			return fmt.Errorf("the VMs of root could write to %s as root: share it read-only (%s:ro), or allow it with --root-writes (rootWrites: true)", s.Path, s.Path)
		}
	}
	return nil
}

// below reports whether the clean path is dir or in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// reservedTarget returns the fault of a share's target, or "".
func reservedTarget(s string) string {
	s = filepath.Clean(s)
	if s == "/" {
		return `"/" is the guests' root: name a directory to be its root with the key root`
	}
	for _, tree := range []string{"/proc", "/sys", "/dev", "/run", "/nearmetal"} {
		if below(s, tree) {
			return text.Quote(s) + " is in " + tree + ", which belongs to each guest: choose another target"
		}
	}
	return ""
}

// Resolve makes the paths of c absolute: relative ones are relative to cwd (an absolute path), and a share without a
// target gets its path on the host. The program qemu is not changed unless it has a slash.
func (c *Cluster) Resolve(cwd string) {
	absolute := func(s string) string {
		if s == "" || filepath.IsAbs(s) {
			return s
		}
		return filepath.Join(cwd, s)
	}
	if c.Root != "host" && c.Root != RootBackend {
		c.Root = absolute(c.Root)
	}
	c.Kernel = absolute(c.Kernel)
	c.KernelModules = absolute(c.KernelModules)
	if strings.Contains(c.QEMU, "/") {
		c.QEMU = absolute(c.QEMU)
	}
	for i := range c.Shares {
		s := &c.Shares[i]
		s.Path = filepath.Clean(absolute(s.Path))
		if s.Target == "" {
			s.Target = s.Path
		}
		s.Target = filepath.Clean(s.Target)
	}
}
