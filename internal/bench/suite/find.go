package suite

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"nearmetal/internal/spec"
	"nearmetal/internal/text"
)

//go:embed suites/*.yaml
var shipped embed.FS

// Shipped returns nearmetal's own suites, by name.
func Shipped() ([]*Suite, error) {
	files, err := shipped.ReadDir("suites")
	if err != nil {
		return nil, err
	}
	var out []*Suite
	for _, f := range files {
		text, err := shipped.ReadFile("suites/" + f.Name())
		if err != nil {
			return nil, err
		}
		s, err := Parse("(nearmetal)/"+f.Name(), text)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Source returns the unchanged text of a suite's file, for users to start from.
func (s *Suite) Source() ([]byte, error) {
	if s.File != "" {
		return os.ReadFile(s.File)
	}
	return shipped.ReadFile("suites/" + s.Name + ".yaml")
}

// UserDir returns the directory of users' own suites.
func UserDir() string {
	if dir, err := os.UserConfigDir(); err == nil {
		return filepath.Join(dir, "nearmetal", "suites")
	}
	return ""
}

// ProgramsDir returns the directory into which bench install installs programs for a user who is not root.
func ProgramsDir() string {
	dir := os.Getenv("XDG_DATA_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(dir, "nearmetal", "programs")
}

// All returns every suite: the shipped ones, those in the user's directory, and those of files; a later one replaces
// an earlier one with the same name.
func All(files []string) ([]*Suite, error) {
	list, err := Shipped()
	if err != nil {
		return nil, err
	}
	if dir := UserDir(); dir != "" {
		own, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			return nil, err
		}
		sort.Strings(own)
		files = append(own, files...)
	}
	for _, path := range files {
		s, err := Load(path)
		if err != nil {
			return nil, err
		}
		list = put(list, s)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

func put(list []*Suite, s *Suite) []*Suite {
	for i := range list {
		if list[i].Name == s.Name {
			list[i] = s
			return list
		}
	}
	return append(list, s)
}

// Select returns the suites that arguments name: SUITE for all of its experiments, SUITE/EXPERIMENT for one.
func Select(list []*Suite, args []string) ([]*Suite, error) {
	var out []*Suite
	for _, arg := range args {
		name, experiment, one := strings.Cut(arg, "/")
		var s *Suite
		var known []string
		for _, c := range list {
			known = append(known, c.Name)
			if c.Name == name {
				s = c
			}
		}
		if s == nil {
			return nil, unknown("suite", name, known)
		}
		picked := *s
		if one {
			picked.Experiments = nil
			known = nil
			for _, e := range s.Experiments {
				known = append(known, e.Name)
				if e.Name == experiment {
					picked.Experiments = []Experiment{e}
				}
			}
			if picked.Experiments == nil {
				return nil, unknown("experiment of "+name, experiment, known)
			}
		}
		out = merge(out, &picked)
	}
	return out, nil
}

// merge adds a suite; its experiments are added to those of an existing suite with the same name.
func merge(list []*Suite, s *Suite) []*Suite {
	for _, have := range list {
		if have.Name != s.Name {
			continue
		}
	next:
		for _, e := range s.Experiments {
			for _, h := range have.Experiments {
				if h.Name == e.Name {
					continue next
				}
			}
			have.Experiments = append(have.Experiments, e)
		}
		return list
	}
	return append(list, s)
}

func unknown(what, name string, known []string) error {
	if near := spec.Nearest(name, known); near != "" {
		return fmt.Errorf("there is no %s %s: did you mean %s?", what, text.Quote(name), near)
	}
	return fmt.Errorf("there is no %s %s: there are %s", what, text.Quote(name), strings.Join(known, ", "))
}
