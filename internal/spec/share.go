package spec

import (
	"path/filepath"
	"strings"
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

// DefaultShare gives the share of a cluster whose file has no `shares` key: the
// working directory cwd (absolute, without symbolic links), read-write, so that
// what a program writes there is there afterwards. ok is false where cwd is /,
// a system directory, or a directory that each guest needs for itself (/tmp:
// MPI libraries keep sockets there, which a share cannot hold).
func DefaultShare(cwd string) (share Share, ok bool) {
	cwd = filepath.Clean(cwd)
	share = Share{Path: cwd, Target: cwd, Mode: "rw"}
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

// below tells whether the clean path is dir or in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// reservedTarget gives what is wrong with a share's place in the guests, or "".
func reservedTarget(s string) string {
	s = filepath.Clean(s)
	if s == "/" {
		return `"/" is the guests' root: name a directory to be its root with the key root`
	}
	for _, tree := range []string{"/proc", "/sys", "/dev", "/run", "/nearmetal"} {
		if below(s, tree) {
			return quote(s) + " is in " + tree + ", which belongs to each guest: choose another target"
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
	if c.Root != "host" {
		c.Root = absolute(c.Root)
	}
	c.Kernel = absolute(c.Kernel)
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
