package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"nearmetal/internal/bench/mpi"
	"nearmetal/internal/bench/suite"
)

// find gives the first of an experiment's programs that every variant which would run it
// has, with its path for each.
func (r *runner) find(e *suite.Experiment) (suite.Program, map[int]string, error) {
	var why []string
	if e.Launch != "mpi" && r.order.Variants[0].Step != nil {
		return suite.Program{}, nil, errors.New("it uses no MPI: there is nothing to run on several nodes")
	}
	for _, p := range e.Programs {
		paths, err := r.pathsOf(e, &p)
		if err == nil {
			return p, paths, nil
		}
		why = append(why, err.Error())
	}
	hint := ""
	if e.Install != "" {
		hint = ": " + e.Install
	}
	return suite.Program{}, nil, fmt.Errorf("%s; none of its programs is there%s", strings.Join(why, "; "), hint)
}

func (r *runner) pathsOf(e *suite.Experiment, p *suite.Program) (map[int]string, error) {
	out := map[int]string{}
	for i := range r.order.Variants {
		v := &r.order.Variants[i]
		if e.Launch != "mpi" && (!v.FirstMPI || v.Step != nil) {
			continue
		}
		path, err := r.pathOf(e, p, v)
		if err != nil {
			return nil, err
		}
		out[i] = path
	}
	return out, nil
}

func (r *runner) pathOf(e *suite.Experiment, p *suite.Program, v *Variant) (string, error) {
	if p.Kernel != "" {
		return v.MPI.Kernel(p.Kernel, r.order.KernelDirs)
	}
	other := ""
	for _, name := range p.Find {
		for _, path := range candidates(name) {
			library, _ := mpi.Library(path)
			if e.Launch != "mpi" || library == "" || library == string(v.MPI.Family()) {
				return path, nil
			}
			other = fmt.Sprintf("%s is built for %s, not for %s", path, library, v.MPI.Launcher.Library)
		}
	}
	if other != "" {
		return "", fmt.Errorf("%s", other)
	}
	return "", fmt.Errorf("%s is not found", p.Name)
}

// candidates gives the programs that a name of a suite's find stands for.
func candidates(name string) []string {
	missing := false
	name = os.Expand(name, func(v string) string {
		value := os.Getenv(v)
		missing = missing || value == ""
		return value
	})
	if missing {
		return nil
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil
		}
		name = filepath.Join(home, rest)
	}
	if !strings.Contains(name, "/") {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil
		}
		return []string{path}
	}
	list, _ := filepath.Glob(name)
	sort.Strings(list)
	var out []string
	for _, path := range list {
		abs, err := filepath.Abs(path)
		if err != nil {
			continue
		}
		if st, err := os.Stat(abs); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			out = append(out, abs)
		}
	}
	return out
}

// Need is an experiment with what it would run here, for `nearmetal bench show`.
type Need struct {
	Program string // found; "" if none is
	Path    string
	Missing string // why none is
}

// Look tells which program an experiment would run over an MPI flavour.
func Look(e *suite.Experiment, f mpi.Flavour, kernelDirs []string) Need {
	r := &runner{order: Order{Variants: []Variant{{MPI: f, FirstMPI: true}}, KernelDirs: kernelDirs}}
	p, paths, err := r.find(e)
	if err != nil {
		return Need{Missing: err.Error()}
	}
	return Need{Program: p.Name, Path: paths[0]}
}
