package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nearmetal/internal/backend"
	"nearmetal/internal/lazyregexp"
)

// virtiofsd is an installed virtiofsd, the program that serves files of the host to VMs by virtiofs.
type virtiofsd struct {
	Path     string
	Version  Version
	ReadOnly bool // it has --readonly: nobody in a VM can write, root neither
	// NoSubmounts: it has --no-announce-submounts. Versions without it announce none.
	NoSubmounts bool
	MaxInodes   uint64 // files that a VM may know at a time, each with an open descriptor
}

// virtiofsdPaths are where distributions put virtiofsd, outside of PATH: Red Hat and Debian 13, Arch, and Debian 12.
var virtiofsdPaths = []string{"/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"}

// The oldest virtiofsd that is taken: Red Hat's of 9.2. Those in C, of QEMU before 8, number as QEMU does.
var minVirtiofsd = Version{Major: 1, Minor: 5}

// Bounds of the descriptors of a virtiofsd: what it asks for by itself, and the fewest that are taken, for a
// system has some hundred thousand files.
const (
	mostOpenFiles  = 1000000
	leastOpenFiles = 16384
)

// virtiofsdTimeout bounds each question; they take some ms.
const virtiofsdTimeout = 30 * time.Second

const (
	whatServesFiles = "install virtiofsd (Debian 13, Ubuntu 24.04, Red Hat 9 and Fedora have a package of that name)"
	noVeilVirtiofs  = "virtiofsd takes no directory of another namespace; say isolation: auto, or take a QEMU that is built with virtfs, with --qemu"
	moreOpenFiles   = "raise it (in /etc/security/limits.d: * hard nofile 524288; LimitNOFILE=524288 for a service such as slurmd) and log in again"
)

var virtiofsdVersion = lazyregexp.New(`^virtiofsd (version )?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`)

// findVirtiofsd finds the virtiofsd of this host, in PATH or where distributions put it, and asks it what it
// can. The error says what to install or to change.
func findVirtiofsd(ctx context.Context) (virtiofsd, error) {
	path, err := exec.LookPath("virtiofsd")
	for _, p := range virtiofsdPaths {
		if err == nil {
			break
		}
		path, err = exec.LookPath(p)
	}
	if err != nil {
		return virtiofsd{}, fmt.Errorf("no virtiofsd (in PATH, or %s): %s", strings.Join(virtiofsdPaths, ", "), whatServesFiles)
	}
	if path, err = filepath.Abs(path); err != nil {
		return virtiofsd{}, err
	}
	d, err := askVirtiofsd(ctx, path)
	var l unix.Rlimit
	if err == nil {
		err = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	}
	if err == nil {
		d.MaxInodes, err = openFiles(l)
	}
	if err == nil && !d.ReadOnly && os.Geteuid() == 0 {
		err = fmt.Errorf("virtiofsd %s (%s) cannot keep root in a VM from writing to this host's root (--readonly came with 1.13.0): start VMs as a user, or %s", d.Version, d.Path, whatServesFiles)
	}
	return d, err
}

// askVirtiofsd asks the virtiofsd at path for its version and options.
func askVirtiofsd(ctx context.Context, path string) (virtiofsd, error) {
	d := virtiofsd{Path: path}
	ctx, cancel := context.WithTimeout(ctx, virtiofsdTimeout)
	defer cancel()
	ask := func(option string) (string, error) {
		out, err := exec.CommandContext(ctx, path, option).CombinedOutput()
		if err != nil {
			if said := oneLine(string(out)); said != "" {
				return "", fmt.Errorf("%s does not work: %s", path, said)
			}
			return "", fmt.Errorf("%s: %w", path, plainError(err))
		}
		return string(out), nil
	}
	said, err := ask("--version")
	if err != nil {
		return d, err
	}
	m := virtiofsdVersion().FindStringSubmatch(said)
	if m == nil {
		return d, fmt.Errorf("%s: its version is not understood: %.80q", path, said)
	}
	for i, to := range []*int{&d.Version.Major, &d.Version.Minor, &d.Version.Micro} {
		*to, _ = strconv.Atoi(m[i+2])
	}
	if m[1] != "" || d.Version.less(minVirtiofsd) {
		return d, fmt.Errorf("virtiofsd %s (%s) is too old: nearmetal needs %d.%d or newer: %s", d.Version, path, minVirtiofsd.Major, minVirtiofsd.Minor, whatServesFiles)
	}
	if said, err = ask("--help"); err != nil {
		return d, err
	}
	d.ReadOnly = strings.Contains(said, "--readonly")
	d.NoSubmounts = strings.Contains(said, "--no-announce-submounts")
	return d, nil
}

// openFiles is how many files a virtiofsd may open by the limits of this process; it raises the soft one itself.
func openFiles(l unix.Rlimit) (uint64, error) {
	if l.Max < leastOpenFiles {
		return 0, fmt.Errorf("virtiofsd may open %d files, and holds one open for each that a VM has looked at; at least %d are needed: %s", l.Max, leastOpenFiles, moreOpenFiles)
	}
	return min(l.Max, mostOpenFiles), nil
}

// args is the command line that serves an export. Its first inherited file is the listening socket.
func (d virtiofsd) args(e backend.Export) []string {
	cache := "auto" // a share may change under the VM, within a second it is seen
	if e.ReadOnly && e.Tag == rootTag {
		cache = "always"
	}
	args := []string{d.Path, fmt.Sprintf("--fd=%d", firstFD), "--shared-dir", e.Path, "--sandbox", "none",
		"--cache", cache, "--log-level", "error", "--rlimit-nofile", strconv.FormatUint(d.MaxInodes, 10)}
	if d.NoSubmounts {
		args = append(args, "--no-announce-submounts")
	}
	if e.ReadOnly && d.ReadOnly {
		args = append(args, "--readonly")
	}
	return args
}

// vhostFS is a virtiofs device at the other end of a virtiofsd.
type vhostFS struct {
	Chardev chardev
	Export  backend.Export
}

func (v vhostFS) Valid() error {
	if v.Export.Veiled {
		// 1.13 takes the directory's name and opens it anew, outside of the veil; 1.14 does not find its mount.
		return fmt.Errorf("export %s: %s", v.Export.Tag, noVeilVirtiofs)
	}
	return errors.Join(validExport(v.Export), v.Chardev.Valid())
}

func (v vhostFS) Args() []string {
	return append(v.Chardev.Args(), "-device",
		option("vhost-user-fs-pci", "chardev="+v.Chardev.ID, "tag="+v.Export.Tag, "queue-size=1024"))
}
