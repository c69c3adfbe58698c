// Package site reads the settings of a site and a user for all clusters: defaults for keys of the cluster file that
// neither a file nor a flag sets (config.yaml), and cluster files by name (templates/NAME.yaml). Both are in
// /etc/nearmetal and in ~/.config/nearmetal.
package site

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"nearmetal/internal/spec"
)

// Etc is the site's directory; tests set another.
var Etc = "/etc/nearmetal"

const (
	configFile  = "config.yaml"
	templates   = "templates"
	templateExt = ".yaml"
)

// dirs returns the directories with settings: the user's before the site's, because the first value counts.
func dirs() []string {
	list := []string{Etc}
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		list = append([]string{filepath.Join(dir, "nearmetal")}, list...)
	} else if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		list = append([]string{filepath.Join(home, ".config", "nearmetal")}, list...)
	}
	return list
}

// Defaults returns the defaults of the user and of the site, in the order of their priority. Relative paths in them
// are relative to their directory. A missing file has none; a file that anyone other than root and the caller could
// have written is an error.
func Defaults() ([]*spec.Cluster, error) {
	var list []*spec.Cluster
	for _, dir := range dirs() {
		path := filepath.Join(dir, configFile)
		c, err := load(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if c.Name != "" {
			return nil, fmt.Errorf("%s: name is of one cluster, and not for all: remove the key", path)
		}
		c.Resolve(dir)
		list = append(list, c)
	}
	return list, nil
}

// load reads a cluster file of the site or the user.
func load(path string) (*spec.Cluster, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return spec.Read(path, f)
}

// open opens a file that only root or the caller can have written, because it determines which programs run and which
// directories VMs see. A file that is not regular, such as a pipe, is rejected.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := trusted(f, path); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// trusted returns an error if others could have written f.
func trusted(f *os.File, path string) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", path)
	case !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: it is read only where it is root's or your own", path, st.Uid)
	case fi.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s can be written to by others (mode %04o): chmod go-w %[1]s", path, fi.Mode().Perm())
	}
	return nil
}

// Template opens the cluster file that a site or a user has under a name. The error is fs.ErrNotExist if it does not
// exist.
func Template(name string) (*os.File, error) {
	if spec.CheckName(name) != nil {
		return nil, fs.ErrNotExist
	}
	for _, dir := range dirs() {
		f, err := open(filepath.Join(dir, templates, name+templateExt))
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
	}
	return nil, fs.ErrNotExist
}

// Named is a template.
type Named struct {
	Name string `json:"name"`
	Path string `json:"path"` // of its file, absolute
}

// Templates returns the existing templates, by name. Of two with the same name the user's counts.
func Templates() []Named {
	found := map[string]string{}
	for _, dir := range dirs() {
		entries, _ := os.ReadDir(filepath.Join(dir, templates))
		for _, e := range entries {
			name, ok := strings.CutSuffix(e.Name(), templateExt)
			if _, have := found[name]; ok && !have && spec.CheckName(name) == nil {
				found[name] = filepath.Join(dir, templates, e.Name())
			}
		}
	}
	list := make([]Named, 0, len(found))
	for name, path := range found {
		list = append(list, Named{name, path})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}
