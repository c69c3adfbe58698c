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
	"nearmetal/internal/host/isolate"
	"nearmetal/internal/lazyregexp"
)

// virtiofsd is an installed virtiofsd, the program that serves files of the host to VMs by virtiofs.
type virtiofsd struct {
	Path     string
	Version  Version
	ReadOnly bool // it has --readonly: nobody in a VM can write, including root
	// NoSubmounts: it has --no-announce-submounts. Versions without it announce none.
	NoSubmounts bool
	Translates  bool   // it has --translate-uid and --translate-gid (from 1.13 on)
	MaxInodes   uint64 // files that a VM may know at a time, each with an open descriptor
}

// virtiofsdPaths are where distributions install virtiofsd, outside of PATH: Red Hat and Debian 13, Arch, and Debian
// 12.
var virtiofsdPaths = []string{"/usr/libexec/virtiofsd", "/usr/lib/virtiofsd", "/usr/lib/qemu/virtiofsd"}

// minVirtiofsd is the oldest supported virtiofsd: Red Hat's of 9.2. The C versions of QEMU before 8 have QEMU's
// version numbers.
var minVirtiofsd = Version{Major: 1, Minor: 5}

// Bounds of the descriptors of a virtiofsd: its own default, and the fewest that are accepted, because a system has
// some hundred thousand files.
const (
	mostOpenFiles  = 1000000
	leastOpenFiles = 16384
)

// virtiofsdTimeout bounds each query; they last some ms.
const virtiofsdTimeout = 30 * time.Second

const (
	whatServesFiles = "install virtiofsd (Debian 13, Ubuntu 24.04, Red Hat 9 and Fedora have a package of that name)"
	moreOpenFiles   = "raise it (in /etc/security/limits.d: * hard nofile 524288; LimitNOFILE=524288 for a service such as slurmd) and log in again"
)

var virtiofsdVersion = lazyregexp.New(`^virtiofsd (version )?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`)

// findVirtiofsd finds the virtiofsd of this host, in PATH or where distributions install it, and queries its
// capabilities. The error states what to install or to change.
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

// askVirtiofsd queries the version and options of the virtiofsd at path.
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
		return d, fmt.Errorf("%s: cannot read its version: %.80q", path, said)
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
	d.Translates = strings.Contains(said, "--translate-uid")
	d.NoSubmounts = strings.Contains(said, "--no-announce-submounts")
	return d, nil
}

// openFiles returns how many files a virtiofsd may open by the limits of this process; virtiofsd raises the soft
// limit itself.
func openFiles(l unix.Rlimit) (uint64, error) {
	if l.Max < leastOpenFiles {
		return 0, fmt.Errorf("virtiofsd may open %d files, and holds one open for each that a VM has looked at; at least %d are needed: %s", l.Max, leastOpenFiles, moreOpenFiles)
	}
	return min(l.Max, mostOpenFiles), nil
}

// noCapabilities drops the capabilities that a virtiofsd would require as root, and that root does not have in a
// jail.
const noCapabilities = "-chown:-dac_override:-fowner:-fsetid:-setgid:-setuid:-mknod:-setfcap"

// servedAt is the path of the export in a virtiofsd's jail.
const servedAt = "/export"

// jail returns the jail of a virtiofsd that serves a veiled export. It contains the export, virtiofsd and its
// libraries. The tree comes from Files.Exports. It is in no cgroup of the VM, because its descriptors bound its
// memory.
func (d virtiofsd) jail(e backend.Export, listener, tree *os.File) (*isolate.Jail, error) {
	j := &isolate.Jail{
		DropsRights: true,
		OpenFiles:   d.MaxInodes,
		// It reads this file at its start.
		ProcFiles: map[string]string{"/proc/sys/fs/nr_open": fmt.Sprintln(d.MaxInodes)},
		Files:     []isolate.JailFile{{File: listener}, {File: tree, Reopen: true, Write: !e.ReadOnly, At: servedAt}},
	}
	if p := os.Getenv("LD_LIBRARY_PATH"); p != "" {
		j.Env = append(j.Env, "LD_LIBRARY_PATH="+p)
	}
	var err error
	if j.Binds, err = isolate.Needs(d.Path, j.Env); err != nil {
		return nil, fmt.Errorf("cannot find out what virtiofsd needs: %w", err)
	}
	return j, nil
}

// overflowID is the user and group that own all other users' files in a user namespace with one user.
const overflowID = 65534

// owners returns options that make a VM of user uid see all others' files as root's, which nearly all of them are: in
// a jail with only this user (isolate.OneUser) they belong to overflowID.
func (d virtiofsd) owners(uid, gid int) (args []string) {
	if !d.Translates {
		return nil
	}
	if uid != overflowID {
		args = append(args, "--translate-uid", fmt.Sprintf("host:%d:0:1", overflowID))
	}
	if gid != overflowID {
		args = append(args, "--translate-gid", fmt.Sprintf("host:%d:0:1", overflowID))
	}
	return args
}

// args returns the command line that serves an export. Its first inherited file is the listening socket. oneUser: the
// jail has only this user.
func (d virtiofsd) args(e backend.Export, oneUser bool) []string {
	cache := "auto" // a share may change under the VM, which sees the change within a second
	if e.ReadOnly && e.Tag == rootTag {
		cache = "always"
	}
	dir, files := e.Path, d.MaxInodes
	if e.Veiled {
		dir, files = servedAt, 0 // the jail sets the limit
	}
	args := []string{d.Path, fmt.Sprintf("--fd=%d", firstFD), "--shared-dir", dir, "--sandbox", "none",
		"--cache", cache, "--log-level", "error", "--rlimit-nofile", strconv.FormatUint(files, 10)}
	if d.NoSubmounts {
		args = append(args, "--no-announce-submounts")
	}
	if e.ReadOnly && d.ReadOnly {
		args = append(args, "--readonly")
	}
	if e.Veiled && !oneUser {
		args = append(args, "--modcaps="+noCapabilities)
	}
	if e.Veiled && oneUser {
		args = append(args, d.owners(os.Geteuid(), os.Getegid())...)
	}
	return args
}

// vhostFS is a virtiofs device connected to a virtiofsd.
type vhostFS struct {
	Chardev chardev
	Export  backend.Export
}

func (v vhostFS) Valid() error {
	return errors.Join(validExport(v.Export), v.Chardev.Valid())
}

func (v vhostFS) Args() []string {
	return append(v.Chardev.Args(), "-device",
		option("vhost-user-fs-pci", "chardev="+v.Chardev.ID, "tag="+v.Export.Tag, "queue-size=1024"))
}
