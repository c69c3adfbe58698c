package slurm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"nearmetal/internal/slurm/conf"
)

// Plugin is the file name of nearmetal's SPANK plugin.
const Plugin = "spank_nearmetal.so"

// Site is the doctor's input: the configuration of Slurm and the facts about this host.
type Site struct {
	Conf  *conf.Config // slurm.conf
	Gres  *conf.Config // gres.conf; nil if there is none
	Cgrp  *conf.Config // cgroup.conf; nil if there is none
	MPI   *conf.Config // mpi.conf; nil if there is none
	Stack []StackLine  // plugstack.conf and its includes
	// StackFile is the plugstack.conf in use; it may be missing.
	StackFile string
	// Major and Minor are Slurm's version, such as 22.5; 0, 0 if none of its programs could be queried.
	Major, Minor int
	VersionText  string
	Node         string // NodeName of this host; empty if slurm.conf has none for it
	NodeLine     *conf.Line
	Offer        *Gres  // resources that this host could offer
	root         string // "/", or a captured tree; "": a description, which has no files
	dir          string // of slurm.conf
}

// StackLine is one plugin of plugstack.conf.
type StackLine struct {
	File     string
	Number   int
	Required bool
	Path     string // of the plugin
	Args     []string
}

// Options select the doctor's input.
type Options struct {
	Conf string // slurm.conf; empty: $SLURM_CONF, else the paths of distributions
	Root string // empty or "/": this host; a directory that represents it; or a file that describes it, which requires Conf
	Node string // NodeName to check; empty: the one of this host's name
	// Hostname is the host's name; empty: the kernel's for this host, none for another.
	Hostname string
	Offer    *Gres
	// Ask runs Slurm's own programs for their version, unless Root is another host.
	Ask bool
}

// confPlaces are the default paths of slurm.conf: upstream's and Debian's, RHEL's, Debian 10's.
var confPlaces = []string{"/etc/slurm/slurm.conf", "/usr/local/etc/slurm.conf", "/etc/slurm-llnl/slurm.conf"}

// NewSite reads a site's configuration. An error names the file that could not be read.
func NewSite(ctx context.Context, o Options) (*Site, error) {
	s := &Site{root: o.Root, Offer: o.Offer}
	if s.root == "" {
		s.root = "/"
	} else if st, err := os.Stat(s.root); err != nil {
		return nil, err
	} else if !st.IsDir() {
		s.root = ""
	}
	file, err := s.findConf(o.Conf)
	if err != nil {
		return nil, err
	}
	s.dir = filepath.Dir(file)
	if s.Conf, err = conf.ReadOf(s.confFile, file); err != nil {
		return nil, err
	}
	if s.Gres, err = s.optional(filepath.Join(s.dir, "gres.conf")); err != nil {
		return nil, err
	}
	if s.Cgrp, err = s.optional(filepath.Join(s.dir, "cgroup.conf")); err != nil {
		return nil, err
	}
	if s.MPI, err = s.optional(filepath.Join(s.dir, "mpi.conf")); err != nil {
		return nil, err
	}
	s.StackFile = filepath.Join(s.dir, "plugstack.conf")
	if v, _, ok := s.Conf.Last("PlugStackConfig"); ok {
		s.StackFile = s.confFile(v)
	}
	if s.Stack, err = s.readStack(s.StackFile, 0); err != nil {
		return nil, err
	}
	if o.Ask && s.root == "/" {
		s.askVersion(ctx)
	}
	if o.Hostname == "" && s.root == "/" {
		o.Hostname, _ = os.Hostname()
	}
	return s, s.findNode(o)
}

// path returns the path at which an absolute path of the host can be read. For another host it is never a path of
// this one; for a description, no file exists at it.
func (s *Site) path(name string) string {
	switch s.root {
	case "/":
		return name
	case "":
		return filepath.Join("/dev/null", name)
	}
	return filepath.Join(s.root, name)
}

// confFile returns the path of a file of Slurm's configuration that is named by an absolute path. For a description,
// it is in the directory of the given slurm.conf.
func (s *Site) confFile(name string) string {
	if s.root != "" {
		return s.path(name)
	}
	for _, place := range confPlaces {
		if below, ok := strings.CutPrefix(name, filepath.Dir(place)+"/"); ok {
			return filepath.Join(s.dir, below)
		}
	}
	return filepath.Join(s.dir, filepath.Base(name))
}

// shows reports whether an absolute path of the host is visible: a capture has only some of the host's directories.
func (s *Site) shows(name string) bool {
	top, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
	st, err := os.Stat(s.path("/" + top))
	return s.root == "/" || err == nil && st.IsDir()
}

func (s *Site) findConf(given string) (string, error) {
	if given == "" && s.root == "/" {
		given = os.Getenv("SLURM_CONF")
	}
	if given != "" {
		return given, nil
	}
	if s.root == "" {
		return "", errors.New("a description of a host has no slurm.conf: name it by --conf FILE")
	}
	for _, place := range confPlaces {
		if _, err := os.Stat(s.path(place)); err == nil {
			return s.path(place), nil
		}
	}
	return "", fmt.Errorf("no slurm.conf in %s: name it by --conf FILE or SLURM_CONF, or write one by nearmetal slurm example", strings.Join(confPlaces, ", "))
}

// optional reads a file that may be missing.
func (s *Site) optional(name string) (*conf.Config, error) {
	c, err := conf.ReadOf(s.confFile, name)
	if errors.Is(err, os.ErrNotExist) && c != nil && len(c.Lines) == 0 {
		return nil, nil
	}
	return c, err
}

// readStack reads plugstack.conf (spank(8), CONFIGURATION): required|optional PLUGIN [ARGS], or include FILE, which
// may be a pattern.
func (s *Site) readStack(name string, depth int) ([]StackLine, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []StackLine
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		text, _, _ := strings.Cut(scan.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("%s:%d: %q is not followed by a plugin", name, n, words[0])
		}
		switch words[0] {
		case "required", "optional":
			out = append(out, StackLine{File: name, Number: n, Required: words[0] == "required", Path: words[1], Args: words[2:]})
		case "include":
			pattern := words[1]
			if filepath.IsAbs(pattern) {
				pattern = s.confFile(pattern)
			} else {
				pattern = filepath.Join(filepath.Dir(name), pattern)
			}
			if depth == 4 {
				return nil, fmt.Errorf("%s:%d: includes are more than %d deep", name, n, depth)
			}
			files, err := filepath.Glob(pattern)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", name, n, err)
			}
			for _, file := range files {
				more, err := s.readStack(file, depth+1)
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
			}
		default:
			return nil, fmt.Errorf("%s:%d: %q is not required, optional or include", name, n, words[0])
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

var versionNumber = regexp.MustCompile(`slurm(?:-wlm)? (\d+)\.(\d+)[.\d-]*`)

// askVersion queries the version of the first of Slurm's programs that runs.
func (s *Site) askVersion(ctx context.Context) {
	for _, program := range []string{"scontrol", "slurmd", "slurmctld", "srun"} {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := exec.CommandContext(ctx, program, "-V").Output()
		cancel()
		if m := versionNumber.FindSubmatch(out); err == nil && m != nil {
			s.VersionText = string(m[0])
			s.Major, _ = strconv.Atoi(string(m[1]))
			s.Minor, _ = strconv.Atoi(string(m[2]))
			return
		}
	}
}

// findNode finds this host's line in slurm.conf: by NodeName, else by NodeHostname.
func (s *Site) findNode(o Options) error {
	short, _, _ := strings.Cut(o.Hostname, ".")
	for _, l := range s.Conf.Records("NodeName") {
		names, err := conf.Expand(l.Pairs[0].Value)
		if err != nil {
			return fmt.Errorf("%s: NodeName: %w", l.Where(), err)
		}
		hosts := names
		if v, ok := l.Get("NodeHostname"); ok {
			if hosts, err = conf.Expand(v); err != nil {
				return fmt.Errorf("%s: NodeHostname: %w", l.Where(), err)
			}
		}
		for i, name := range names {
			// One NodeHostname may apply to all names: several slurmd on one host.
			host := hosts[min(i, len(hosts)-1)]
			if name == o.Node || o.Node == "" && (host == o.Hostname || host == short) {
				s.Node, s.NodeLine = name, l
				return nil
			}
		}
	}
	if o.Node != "" {
		return fmt.Errorf("%s: no NodeName is %q", s.Conf.File, o.Node)
	}
	return nil
}

// AtLeast reports whether Slurm is of this version or a later one; it returns false if the version is unknown.
func (s *Site) AtLeast(major, minor int) bool {
	return s.Major > major || s.Major == major && s.Minor >= minor
}

// StateFolder returns the plugin's directory of running jobs, from this host's plugstack.conf; "" if the host has
// neither the directory nor the plugin.
func StateFolder() (string, error) {
	state, loaded := DefaultState, false
	s := &Site{root: "/"}
	if file, err := s.findConf(""); err == nil {
		stackFile := filepath.Join(filepath.Dir(file), "plugstack.conf")
		if c, err := conf.ReadOf(s.confFile, file); err == nil {
			if v, _, ok := c.Last("PlugStackConfig"); ok {
				stackFile = v
			}
		}
		stack, err := s.readStack(stackFile, 0)
		if err != nil {
			return "", err
		}
		for _, l := range stack {
			if filepath.Base(l.Path) != Plugin {
				continue
			}
			loaded = true
			for _, a := range l.Args {
				if v, ok := strings.CutPrefix(a, "state="); ok {
					state = v
				}
			}
		}
	}
	if _, err := os.Stat(state); errors.Is(err, os.ErrNotExist) && !loaded {
		return "", nil
	}
	return state, nil
}
