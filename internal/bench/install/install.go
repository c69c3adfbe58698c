// Package install installs the programs of suites: by the distribution's package client, from PyPI or by Spack, for
// root into the system and for others into a directory of the user. The same files run natively and in VMs, whose
// root is the host's.
package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nearmetal/internal/bench/suite"
)

// Sources are the sources of programs, in the order in which they are tried.
var Sources = []string{"apt", "dnf", "pip", "spack"}

// clients are the programs that each source needs.
var clients = map[string][]string{"apt": {"apt-get", "dpkg-deb"}, "dnf": {"dnf"}, "pip": {"python3"}, "spack": {"spack"}}

// Here describes this machine.
type Here struct {
	Root bool
	Has  func(program string) bool // whether PATH has it
	Dir  string                    // for programs without root (suite.ProgramsDir)
}

// This returns the description of this machine.
func This() Here {
	return Here{Root: os.Geteuid() == 0, Dir: suite.ProgramsDir(), Has: func(p string) bool {
		_, err := exec.LookPath(p)
		return err == nil
	}}
}

// Plan has the commands that install a suite's programs.
type Plan struct {
	Suite  string `json:"suite"`
	Source string `json:"source"`
	// Commands are shell commands, run one after the other.
	Commands []string `json:"commands"`
}

// Make returns the plan that installs a suite's programs. source is one of Sources, or "" for the first suitable one.
// The error states the alternative: a licence, or a manual build.
func Make(s *suite.Suite, source string, h Here) (*Plan, error) {
	if s.Licence != "" && len(s.Packages) == 0 {
		return nil, fmt.Errorf("%s: its licence bars that: %s; then %s", s.Name, s.Licence, s.Experiments[0].Install)
	}
	if source != "" && !slices.Contains(Sources, source) {
		return nil, fmt.Errorf("there is no source %q: there are %s", source, strings.Join(Sources, ", "))
	}
	var why []string
	for _, src := range Sources {
		names := s.Packages[src]
		if source != "" && src != source || len(names) == 0 {
			continue
		}
		if at := slices.IndexFunc(clients[src], func(p string) bool { return !h.Has(p) }); at >= 0 {
			why = append(why, fmt.Sprintf("%s is not here (for %s)", clients[src][at], strings.Join(names, ", ")))
			continue
		}
		if src == "dnf" && !h.Root {
			why = append(why, "dnf installs for root alone")
			continue
		}
		return &Plan{Suite: s.Name, Source: src, Commands: commands(src, names, h)}, nil
	}
	if len(why) == 0 {
		why = []string{"no package client has it"}
	}
	return nil, fmt.Errorf("%s: %s: %s", s.Name, strings.Join(why, "; "), s.Experiments[0].Install)
}

func commands(source string, names []string, h Here) []string {
	list := strings.Join(quoted(names), " ")
	dir := quote(h.Dir)
	switch source {
	case "apt":
		if h.Root {
			return []string{"apt-get install --yes --no-install-recommends " + list}
		}
		// Without root the packages and their missing dependencies are unpacked. The scripts of Wrap find their
		// libraries.
		packages := quote(filepath.Join(h.Dir, "packages"))
		return []string{
			"mkdir -p " + packages + " " + quote(filepath.Join(h.Dir, "root")),
			"cd " + packages + " && get=$(apt-get install --print-uris --yes -qq --no-install-recommends " + list +
				`) && get=$(echo "$get" | sed -n "s/^'[^']*' \([^_]*\)_.*/\1/p") && ` +
				`if [ -n "$get" ]; then apt-get download $get; else echo "installed in the system: nothing to get"; fi`,
			"for f in " + packages + "/*.deb; do [ ! -e \"$f\" ] || { dpkg-deb -x \"$f\" " + quote(filepath.Join(h.Dir, "root")) + " && rm \"$f\"; } || exit; done",
		}
	case "dnf":
		return []string{"dnf install --assumeyes " + list}
	case "pip":
		return []string{"python3 -m venv " + quote(filepath.Join(h.Dir, "venv")), quote(filepath.Join(h.Dir, "venv/bin/pip")) + " install " + list}
	}
	return []string{"spack install " + list, "mkdir -p " + dir, "spack view --dependencies no symlink " + quote(filepath.Join(h.Dir, "spack")) + " " + list}
}

func quoted(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, quote(s))
	}
	return out
}

// quote quotes one word for a shell. text.Shell is not used, because every word from a suite's file is quoted when
// commands are printed before they run.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// standIn returns 1 for directories of libraries that replace better ones with the same name: the reference BLAS and
// LAPACK, which Debian's alternatives rank last, and OpenFOAM's Pstream without MPI.
func standIn(folder string) int {
	if slices.Contains([]string{"blas", "lapack", "dummy"}, filepath.Base(folder)) {
		return 1
	}
	return 0
}

// Wrap makes a script in dir/bin for each program below dir/root, with the libraries that were unpacked there, and
// returns their number.
func Wrap(dir string) (int, error) {
	root := filepath.Join(dir, "root")
	var libraries []string
	seen := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, "usr/lib"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		if name := d.Name(); !d.IsDir() && strings.HasPrefix(name, "lib") && strings.Contains(name, ".so") && !seen[folder] {
			seen[folder] = true
			libraries = append(libraries, folder)
		}
		return nil
	})
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	slices.SortStableFunc(libraries, func(a, b string) int { return standIn(a) - standIn(b) })
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return 0, err
	}
	programs, err := filepath.Glob(filepath.Join(root, "usr/bin/*"))
	if err != nil {
		return 0, err
	}
	for _, p := range programs {
		text := "#!/bin/sh\nLD_LIBRARY_PATH=" + quote(strings.Join(libraries, ":")) + "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\nexport LD_LIBRARY_PATH\nexec " + quote(p) + " \"$@\"\n"
		if err := os.WriteFile(filepath.Join(bin, filepath.Base(p)), []byte(text), 0o755); err != nil {
			return 0, err
		}
	}
	return len(programs), nil
}
