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

// fewHosts returns an error if an experiment needs more hosts than the run has. A program that uses a network card
// measures something else between two processes of one host.
func (r *runner) fewHosts(e *suite.Experiment) error {
	if have := r.request.Variants[0].nodes(); have < e.Hosts {
		return fmt.Errorf("it runs on %d hosts and this run has %d: run it in Slurm jobs (--nodes %[1]d), or over hosts that ssh reaches (--hosts)", e.Hosts, have)
	}
	return nil
}

// find returns the first of an experiment's programs that every variant which would run it has, with its path for
// each. If none exists it is the first one that is built for the MPI of some variants; partly names those for which
// it is not.
func (r *runner) find(e *suite.Experiment) (p suite.Program, paths map[int]string, partly error, err error) {
	var why []string
	if v := &r.request.Variants[0]; e.Launch == "plain" && (v.Step != nil || v.Hosts > 0) {
		return suite.Program{}, nil, nil, errors.New("it uses no MPI: there is nothing to run on several hosts")
	}
	for _, name := range e.Needs {
		if os.Getenv(name) == "" {
			return suite.Program{}, nil, nil, fmt.Errorf("$%s is not set: %s", name, e.Install)
		}
	}
	for _, c := range e.Programs {
		some, other, err := r.pathsOf(e, &c)
		if err == nil && other == nil {
			return c, some, nil, nil
		}
		if err == nil && paths == nil {
			p, paths, partly = c, some, other
		}
		why = append(why, errors.Join(err, other).Error())
	}
	if paths != nil {
		return p, paths, partly, nil
	}
	hint := ""
	if e.Install != "" {
		hint = ": " + e.Install + " (or nearmetal bench install)"
	}
	return suite.Program{}, nil, nil, fmt.Errorf("%s; none of its programs is there%s", strings.Join(why, "; "), hint)
}

// otherMPI reports a program that exists, but for another MPI than a variant's.
type otherMPI struct{ path, library, wanted string }

func (o *otherMPI) Error() string {
	return fmt.Sprintf("%s is built for %s, not for %s (--mpi %s)", o.path, o.library, o.wanted, strings.ToLower(strings.ReplaceAll(o.library, " ", "")))
}

// pathsOf returns a program's path for each variant that would run it; other is the reason why variants have none: if
// all have none it is an error.
func (r *runner) pathsOf(e *suite.Experiment, p *suite.Program) (paths map[int]string, other, err error) {
	paths = map[int]string{}
	for i := range r.request.Variants {
		v := &r.request.Variants[i]
		if e.Launch != "mpi" && !v.FirstMPI || e.Launch == "plain" && v.Step != nil {
			continue
		}
		path, err := r.pathOf(e, p, v)
		var not *otherMPI
		switch {
		case err == nil:
			paths[i] = path
		case !errors.As(err, &not):
			return nil, nil, err
		case other == nil:
			other = err
		}
	}
	if len(paths) == 0 && other != nil {
		return nil, nil, other
	}
	return paths, other, nil
}

func (r *runner) pathOf(e *suite.Experiment, p *suite.Program, v *Variant) (string, error) {
	if p.Kernel != "" {
		return v.MPI.Kernel(p.Kernel, r.request.KernelDirs)
	}
	var other error
	for _, name := range p.Find {
		for _, path := range candidates(name) {
			library, _ := mpi.Library(path)
			if e.Launch != "mpi" || library == "" || library == string(v.MPI.Family()) {
				return path, nil
			}
			other = &otherMPI{path, library, string(v.MPI.Launcher.Library)}
		}
	}
	if other != nil {
		return "", other
	}
	return "", fmt.Errorf("%s is not found", p.Name)
}

// candidates returns the programs that a name in a suite's find matches.
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
			return installed(name)
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

// installed returns a program that bench install installed in the user's directory.
func installed(name string) []string {
	dir := suite.ProgramsDir()
	if dir == "" {
		return nil
	}
	for _, bin := range []string{"bin", "venv/bin", "spack/bin"} {
		path := filepath.Join(dir, bin, name)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return []string{path}
		}
	}
	return nil
}

// Need is an experiment with the program that it would run here, for `nearmetal bench show`.
type Need struct {
	Program string // its path; "" if none is found
	Path    string
	Missing string // why none is found
}

// Look reports which program an experiment would run over an MPI flavour.
func Look(e *suite.Experiment, f mpi.Flavour, kernelDirs []string) Need {
	r := &runner{request: Request{Variants: []Variant{{MPI: f, FirstMPI: true}}, KernelDirs: kernelDirs}}
	p, paths, _, err := r.find(e)
	if err != nil {
		return Need{Missing: err.Error()}
	}
	return Need{Program: p.Name, Path: paths[0]}
}
