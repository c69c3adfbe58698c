package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/sys/unix"

	"nearmetal/internal/host/cache"
)

// Kernel is a kernel of the host with its modules.
type Kernel struct {
	Path    string // the bzImage, /boot/vmlinuz-VERSION or vmlinuz in Modules
	Version string // 6.1.0-56-amd64
	// The directory of its modules, such as /lib/modules/VERSION; empty: all modules it needs are assumed to be built
	// in.
	Modules string
}

// Explain adds to the error of a VM that did not start the properties of k that could not be checked beforehand. If
// there are none it returns err itself.
func (k Kernel) Explain(err error) error {
	if err == nil || k.Path == "" || k.Modules != "" {
		return err
	}
	return fmt.Errorf("%w (kernel %s has no modules in /lib/modules/%s or below its own root: %s and 9p or virtiofs must be built into it, or name their directory by --kernel-modules)",
		err, k.Path, k.Version, strings.Join(baseModules, ", "))
}

// Finder searches kernels below Root; the zero value searches on this machine.
type Finder struct {
	Root    string // empty: /
	Release string // the running kernel's version; empty: uname's
	// Modules is the directory of a named kernel's modules; empty: it is searched.
	Modules string
	// Cache has the fetched kernels; nil: the user's, or with a Root none.
	Cache *cache.Dir
}

// FindKernel returns the kernel for VMs. want is the path of a bzImage, which gets the modules of the root that it is
// in, else this host's, else none. If want is empty, it is the running kernel in /boot, else the newest there that
// has its modules. If /boot's cannot be read, the copy in the directory of its modules is used, or the one that
// nearmetal kernel fetch has put into the user's cache. The error states the remedy: the package to install, or how
// to make a kernel readable.
func FindKernel(want string) (Kernel, error) { return Finder{}.Find(want) }

// Find is FindKernel below f.Root; want is not below it.
func (f Finder) Find(want string) (Kernel, error) {
	if want != "" {
		return f.named(want)
	}
	versions, err := f.versions()
	if err != nil {
		return Kernel{}, err
	}
	var unreadable, bare []string
	for _, v := range versions {
		k := Kernel{Path: f.path("/boot/vmlinuz-" + v), Version: v, Modules: f.modules(v)}
		switch {
		case k.Modules == "":
			bare = append(bare, v)
		case readable(k.Path) == nil:
			return k, nil
		default:
			// Fedora, Red Hat and others also install the kernel in the directory of its modules.
			unreadable = append(unreadable, k.Path)
			if k.Path = filepath.Join(k.Modules, besideModules); readable(k.Path) == nil {
				return k, nil
			}
			if k.Path = f.fetched(v); k.Path != "" {
				return k, nil
			}
		}
	}
	switch {
	case len(unreadable) > 0:
		return Kernel{}, unreadableError(unreadable[0])
	case len(bare) > 0:
		return Kernel{}, fmt.Errorf("no modules of kernel %s (looked for /lib/modules/%s/modules.dep): %s", bare[0], bare[0], whatToInstall)
	}
	return Kernel{}, fmt.Errorf("no kernel to start VMs with (looked for /boot/vmlinuz-*): %s, or name one with --kernel", whatToInstall)
}

const whatToInstall = "install one with its modules: linux-image-amd64 on Debian, linux-image-generic or linux-image-virtual on Ubuntu, kernel-core on Fedora and Red Hat"

// unreadableError states how to make a kernel readable: Ubuntu installs them with mode 0600.
func unreadableError(path string) error {
	return fmt.Errorf("%s cannot be read by you: nearmetal kernel fetch gets you a copy from the distribution's archive; or, as root, chmod 0644 %s, and to keep it so on a Debian or Ubuntu system dpkg-statoverride --add root root 0644 %s", path, path, path)
}

// named returns the kernel whose bzImage is at a path. Its version is in the file's name, or otherwise in its header.
func (f Finder) named(path string) (Kernel, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Kernel{}, err
	}
	if err := readable(abs); err != nil {
		if errors.Is(err, os.ErrPermission) {
			return Kernel{}, unreadableError(abs)
		}
		return Kernel{}, fmt.Errorf("kernel %w", err)
	}
	versions := f.candidates(abs)
	if len(versions) == 0 {
		return Kernel{}, fmt.Errorf("kernel %s: not a Linux bzImage", abs)
	}
	if f.Modules != "" {
		if err := readable(filepath.Join(f.Modules, modulesDep)); err != nil {
			return Kernel{}, fmt.Errorf("kernel %s: no modules: %w (name their directory, which depmod has filled: /lib/modules/%s for example)", abs, err, versions[0])
		}
		return Kernel{Path: abs, Version: versions[0], Modules: f.Modules}, nil
	}
	for _, v := range versions {
		if m := ownModules(abs, v); m != "" {
			return Kernel{Path: abs, Version: v, Modules: m}, nil
		}
		if m := f.modules(v); m != "" {
			return Kernel{Path: abs, Version: v, Modules: m}, nil
		}
	}
	return Kernel{Path: abs, Version: versions[0]}, nil
}

// ownModules returns the directory of a kernel's modules in its own root: below ROOT if the kernel is ROOT/boot/FILE,
// or its own directory if they are there. "": none, or one that belongs to another user, whose modules would run in
// the VMs.
func ownModules(path, version string) string {
	paths := []string{path}
	if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
		paths = append(paths, real)
	}
	for _, p := range paths {
		dir := filepath.Dir(p)
		var list []string
		if filepath.Base(dir) == version {
			list = append(list, dir)
		}
		if root := filepath.Dir(dir); filepath.Base(dir) == "boot" {
			list = append(list, filepath.Join(root, "lib/modules", version), filepath.Join(root, "usr/lib/modules", version))
		}
		for _, m := range list {
			if st, err := os.Stat(filepath.Join(m, modulesDep)); err == nil && st.Mode().IsRegular() && sameOwner(st, p) {
				return m
			}
		}
	}
	return ""
}

// sameOwner reports whether a file belongs to root, to the caller, or to the owner of the file at a path.
func sameOwner(st os.FileInfo, path string) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if s.Uid == 0 || int(s.Uid) == os.Geteuid() {
		return true
	}
	of, err := os.Stat(path)
	if err != nil {
		return false
	}
	o, ok := of.Sys().(*syscall.Stat_t)
	return ok && o.Uid == s.Uid
}

// candidates returns the possible versions of a bzImage, most likely first: that in its header, then that in its
// name.
func (f Finder) candidates(path string) []string {
	var list []string
	if v, err := bzVersion(path); err == nil {
		list = append(list, v)
	}
	real := path
	if r, err := filepath.EvalSymlinks(path); err == nil {
		real = r
	}
	if v, ok := strings.CutPrefix(filepath.Base(real), "vmlinuz-"); ok && versionOK(v) && len(list) > 0 && v != list[0] {
		list = append(list, v)
	}
	return list
}

// modulesDep is the file of depmod that identifies a directory of modules.
const modulesDep = "modules.dep"

// besideModules is the name of a kernel in the directory of its modules.
const besideModules = "vmlinuz"

// versions returns those of the kernels in /boot and in the directories of their modules, the running one first, then
// the newest first.
func (f Finder) versions() ([]string, error) {
	list, err := os.ReadDir(f.path("/boot"))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
		return nil, err
	}
	running := f.Release
	if running == "" {
		var u unix.Utsname
		if err := unix.Uname(&u); err == nil {
			running = unix.ByteSliceToString(u.Release[:])
		}
	}
	var versions []string
	for _, e := range list {
		if v, ok := strings.CutPrefix(e.Name(), "vmlinuz-"); ok && versionOK(v) && !strings.HasSuffix(v, ".old") {
			versions = append(versions, v)
		}
	}
	beside, _ := filepath.Glob(filepath.Join(f.path("/lib/modules"), "*", besideModules))
	for _, path := range beside {
		if v := filepath.Base(filepath.Dir(path)); versionOK(v) && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	sort.SliceStable(versions, func(i, j int) bool {
		a, b := versions[i], versions[j]
		if (a == running) != (b == running) {
			return a == running
		}
		return newer(a, b)
	})
	return versions, nil
}

// modules returns the directory of a kernel's modules, or "".
func (f Finder) modules(version string) string {
	for _, base := range []string{"/lib/modules/", "/usr/lib/modules/"} {
		dir := f.path(base + version)
		if st, err := os.Stat(filepath.Join(dir, modulesDep)); err == nil && st.Mode().IsRegular() {
			return dir
		}
	}
	return ""
}

func (f Finder) path(p string) string {
	if f.Root == "" {
		return p
	}
	return filepath.Join(f.Root, p)
}

// readable returns the reason why a file cannot be read, or nil.
func readable(path string) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// openRegular opens a regular file. It does not wait for the other end of a pipe.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// versionOK reports whether v is acceptable as a kernel's version, which becomes part of paths.
func versionOK(v string) bool {
	if v == "" || len(v) > 100 || v[0] == '.' {
		return false
	}
	for _, c := range v {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._+-~", c)) {
			return false
		}
	}
	return true
}

// newer compares versions in natural order: runs of digits as numbers, the rest as text.
func newer(a, b string) bool {
	for a != "" && b != "" {
		x, y := chunk(a), chunk(b)
		a, b = a[len(x):], b[len(y):]
		if x == y {
			continue
		}
		if unicode.IsDigit(rune(x[0])) && unicode.IsDigit(rune(y[0])) {
			x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
			if len(x) != len(y) {
				return len(x) > len(y)
			}
		}
		if x != y {
			return x > y
		}
	}
	return len(a) > len(b)
}

// chunk returns the leading run of digits, or of other characters.
func chunk(s string) string {
	digit := unicode.IsDigit(rune(s[0]))
	for i, c := range s {
		if unicode.IsDigit(c) != digit {
			return s[:i]
		}
	}
	return s
}
