package fix

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"nearmetal/internal/host/change"
	"nearmetal/internal/host/check"
	"nearmetal/internal/lazyregexp"
)

// File is a file that sets values at boot.
type File struct {
	Path    string
	Content string
	Link    string // target of a symbolic link, which is made instead of a file
}

const header = "# Written by nearmetal check --fix --persist; nearmetal check --undo removes it.\n"

const (
	sysctlFile   = "/etc/sysctl.d/90-nearmetal.conf"
	tmpfilesFile = "/etc/tmpfiles.d/nearmetal.conf"
	modprobeFile = "/etc/modprobe.d/nearmetal.conf"
	tunedFile    = "/etc/tuned/nearmetal/tuned.conf"
	unitFile     = "/etc/systemd/system/nearmetal-host.service"
	unitLink     = "/etc/systemd/system/multi-user.target.wants/nearmetal-host.service"
	limitsFile   = "/etc/security/limits.d/90-nearmetal.conf"
)

// plainValue matches values that need no quotes in a file or a unit's command line.
var (
	plainPath  = lazyregexp.New(`^/[A-Za-z0-9_.:@/+-]+$`)
	plainValue = lazyregexp.New(`^[A-Za-z0-9_.:,+-]{1,200}$`)
	moduleFile = lazyregexp.New(`^/sys/module/([a-z0-9_]+)/parameters/([a-z0-9_]+)$`)
)

// Files returns the files that set settings at each boot: sysctls in sysctl.d, parameters of modules in modprobe.d,
// attributes of devices that appear late (VFs, MTU) in a systemd unit, all others in /sys in tmpfiles.d; and a tuned
// profile that does not contradict them. memlock removes the users' limit on locked memory, and daemons are those
// whose children inherit their limit.
func Files(list []Setting, memlock bool, daemons []string) []File {
	var sysctl, tmpfiles, unit, tuned []string
	modules := map[string][]string{}
	for _, s := range list {
		if !plainPath().MatchString(s.Path) || !plainValue().MatchString(s.Value) {
			continue
		}
		if m := moduleFile().FindStringSubmatch(s.Path); m != nil {
			modules[m[1]] = append(modules[m[1]], m[2]+"="+s.Value)
			continue
		}
		switch name, isSysctl := strings.CutPrefix(s.Path, "/proc/sys/"); {
		case isSysctl:
			key := strings.ReplaceAll(name, "/", ".")
			sysctl = append(sysctl, key+" = "+s.Value)
			tuned = append(tuned, key+"="+s.Value)
		case strings.HasSuffix(s.Path, "/sriov_numvfs"), strings.HasPrefix(s.Path, "/sys/class/net/"):
			unit = append(unit, fmt.Sprintf("ExecStart=/bin/sh -c 'echo %s >%s'", s.Value, s.Path))
		default:
			tmpfiles = append(tmpfiles, fmt.Sprintf("w %s - - - - %s", s.Path, s.Value))
		}
	}
	var files []File
	add := func(path string, lines []string, before, after string) {
		if len(lines) > 0 {
			files = append(files, File{Path: path, Content: header + before + strings.Join(lines, "\n") + "\n" + after})
		}
	}
	add(sysctlFile, sysctl, "", "")
	add(tmpfilesFile, tmpfiles, "", "")
	var options []string
	for m := range modules {
		options = append(options, "options "+m+" "+strings.Join(modules[m], " "))
	}
	sort.Strings(options)
	add(modprobeFile, options, "", "")
	add(unitFile, unit, "[Unit]\nDescription=Settings of this host's network cards for VMs (nearmetal)\n"+
		"After=network-pre.target systemd-udev-settle.service\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n",
		"\n[Install]\nWantedBy=multi-user.target\n")
	if len(unit) > 0 {
		files = append(files, File{Path: unitLink, Link: unitFile})
	}
	if len(list) > 0 {
		files = append(files, tunedProfile(list, tuned))
	}
	if memlock {
		add(limitsFile, []string{"* soft memlock unlimited", "* hard memlock unlimited"}, "", "")
		for _, d := range daemons {
			if d == "slurmd" || d == "libvirtd" || d == "virtqemud" { // sshd's sessions follow limits.d
				files = append(files, File{Path: "/etc/systemd/system/" + d + ".service.d/90-nearmetal.conf",
					Content: header + "[Service]\nLimitMEMLOCK=infinity\n"})
			}
		}
	}
	return files
}

// tunedProfile returns the profile nearmetal, which is based on latency-performance and does not revert the values
// set by the other files.
func tunedProfile(list []Setting, sysctl []string) File {
	var b strings.Builder
	b.WriteString(header)
	b.WriteString("[main]\nsummary=Hosts of VMs that run MPI (nearmetal)\ninclude=latency-performance\n")
	for _, s := range list {
		if s.Path == "/sys/kernel/mm/transparent_hugepage/enabled" {
			b.WriteString("\n[vm]\ntransparent_hugepages=" + s.Value + "\n")
		}
	}
	if len(sysctl) > 0 {
		b.WriteString("\n[sysctl]\n" + strings.Join(sysctl, "\n") + "\n")
	}
	var sysfs []string
	for _, s := range list {
		if strings.HasPrefix(s.Path, "/sys/kernel/mm/ksm/") {
			sysfs = append(sysfs, s.Path+"="+s.Value)
		}
	}
	if len(sysfs) > 0 {
		b.WriteString("\n[sysfs]\n" + strings.Join(sysfs, "\n") + "\n")
	}
	return File{Path: tunedFile, Content: b.String()}
}

// Persist makes all values that Apply set, now and before, and the parameters that modules read when they are loaded
// next, persist across boots. It returns the files that it wrote. fixes are those that Apply made or was offered.
func Persist(o Options, fixes []check.Fix) ([]File, error) {
	list, err := settings(o)
	if err != nil {
		return nil, err
	}
	all := append([]Setting(nil), list...)
	memlock := false
	var daemons []string
	for _, f := range fixes {
		for _, w := range f.AtLoad {
			all = append(all, Setting{w.File, w.Value, w.Before})
		}
		memlock = memlock || f.Row.ID == "limits.memlock"
		for _, w := range f.Writes {
			if w.PID != 0 {
				daemons = append(daemons, w.Name)
			}
		}
	}
	files := Files(all, memlock, daemons)
	if len(files) == 0 {
		return nil, errors.New("nothing that --fix has set is in force: there is nothing to set at boot")
	}
	t, err := change.Begin(o.dir(), persistName)
	if err != nil {
		return nil, err
	}
	t.Under(o.Root)
	if err := persist(t, o, list, files); err != nil {
		_, bad := t.Rollback()
		return nil, errors.Join(err, bad)
	}
	return files, t.Commit()
}

func persist(t *change.Transaction, o Options, list []Setting, files []File) error {
	for _, s := range list {
		if err := t.Last(s.Path, s.Before); err != nil {
			return err
		}
	}
	for _, f := range files {
		path := filepath.Join(o.Root, f.Path)
		old, err := os.ReadFile(path)
		switch {
		case f.Link != "":
			if target, err := os.Readlink(path); err == nil && target == f.Link {
				continue
			}
			err = t.Link(f.Link, path)
		case errors.Is(err, fs.ErrNotExist):
			err = t.Make(path, f.Content, 0o644)
		case err == nil && strings.HasPrefix(string(old), header):
			// Parameters of an earlier --persist. A module that was loaded since no longer warns, but still needs its
			// line.
			if f.Path == modprobeFile {
				f.Content = mergeOptions(string(old), f.Content)
			}
			err = t.Replace(path, f.Content, 0o644)
		case err == nil:
			err = fmt.Errorf("%s is there already, and not nearmetal's: move it away first", f.Path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mergeOptions adds to next the lines of old for modules that next does not have.
func mergeOptions(old, next string) string {
	for _, line := range strings.Split(old, "\n") {
		w := strings.Fields(line)
		if len(w) > 2 && w[0] == "options" && !strings.Contains(next, "options "+w[1]+" ") {
			next += line + "\n"
		}
	}
	return next
}
