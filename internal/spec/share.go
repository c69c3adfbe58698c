package spec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nearmetal/internal/text"
)

// systemTrees are not shared by default, nor is anything below them: a guest
// that could write there could change the host, and what it needs of them it
// has from its root.
var systemTrees = []string{
	"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	"/var", "/boot", "/dev", "/proc", "/sys", "/run",
}

// scratchTrees are below a system tree but hold users' files.
var scratchTrees = []string{"/var/tmp", "/var/home"}

// DefaultShare returns the share of a cluster whose file has no `shares` key: the
// working directory cwd (absolute, without symbolic links), read-write, so that
// what a program writes there is there afterwards, or read-only where the caller may
// not write there. ok is false where cwd is /, a system directory, or a directory that
// each guest needs for itself (/tmp: MPI libraries keep sockets there, which a share
// cannot hold).
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

// ShareHome adds the home directory to c's shares, where c has home: share and they have not got it. home is an
// absolute path. It comes before shares in it, which are mounted over it. asRoot says that root starts the VMs: they
// may only read it unless c says rootWrites.
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

// LosesHome reports whether what programs write into the home directory, at the same path, is lost with the VMs, and
// nobody has chosen that (home: none). It is asked when all shares are known, and before Defaults.
func (c *Cluster) LosesHome(home string) bool {
	if _, ok := DefaultShare(home); !ok || c.Home != "" || c.Root == RootBackend {
		return false
	}
	return !slices.ContainsFunc(c.Shares, func(s Share) bool { return below(home, s.Target) })
}

// AddShare adds a share whose paths are absolute, unless c has one at its place. It comes before shares in it, which
// are mounted over it; asRoot is as in ShareHome.
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

// AtLeastIsolation makes c's isolation no less than least, one of the values of that key; "" is auto.
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

// WritesAsRoot says what is wrong with c where root starts its VMs: the first share that they could
// write to, where c does not ask for that; nil: nothing. What a VM of root's writes on the host, it writes as
// root: a program that sets the user id is one step from a guest to the host.
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

// reservedTarget returns what is wrong with a share's place in the guests, or "".
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

// Resolve makes the paths of c absolute: relative ones are taken below cwd (an
// absolute path), and a share without a target gets the path it has on the host.
// The program qemu is left alone unless it has a slash.
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
